"""The contract of a posterior, and the functions with which the package uses one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import nn

from geh_explain._process import SafeContext, defer_interrupt, safe_contextmanager
from geh_explain.errors import GEHTypeError


@runtime_checkable
class Posterior(Protocol):
    """A distribution over functions. A user's own posterior needs only the method ``draws``.

    ``draws`` yields at most ``n`` context managers. Inside each of them ``model`` is one fixed function: every row,
    batch and derivative uses the same weights or masks. Leaving it must restore the model, also after an exception.
    The first forward pass inside a draw has a single row, so that a posterior can sample there whatever depends on
    the shape of a row.

    A posterior may also define any of

    ``inputs_only = True``
        Hidden units do not correspond from draw to draw, as in an ensemble. Only ``layer=None`` is accepted then.
    ``__len__()``
        The number of draws, if it is limited.
    ``fixed(model, seed)``
        A context manager in which the model is one function outside of any draw. Needed if its forward pass is random.
    ``batched(model, draws, seed)``
        A context manager for several draws at once, see :class:`BatchedPosterior`. Makes small data sets fast.
    ``concern``
        A warning about the posterior, as text; None where there is none.
    ``prepared(model, output)``
        Returns the posterior that a run uses, fitted to the model. Called once, before the first draw; ``output`` is
        that of the explainer.
    ``keeps_below = True``
        Draws change the model only by giving parameters or buffers other memory (``weight.data = sample``). What is
        below the layer is then computed once, unless its weights are drawn. A class that overrides ``draws`` or
        ``batched`` has to state it again.

    Examples
    --------
    >>> import contextlib, torch, geh_explain as geh
    >>> class NoisyWeights:
    ...     def draws(self, model, n, seed):
    ...         generator = torch.Generator().manual_seed(seed)
    ...         for _ in range(n):
    ...             yield self.shifted(model.weight, 0.1 * torch.randn(model.weight.shape, generator=generator))
    ...
    ...     @contextlib.contextmanager
    ...     def shifted(self, weight, noise):
    ...         before = weight.data
    ...         weight.data = before + noise
    ...         try:
    ...             yield
    ...         finally:
    ...             weight.data = before
    >>> explainer = geh.GEHExplainer(torch.nn.Linear(3, 2), output="probability", posterior=NoisyWeights())
    >>> explainer.explain(torch.randn(30, 3), target=0, groups=1, draws=10, progress=False).geh.draws.shape
    (10, 3)
    """

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield at most ``n`` draws. Each is entered once, and left before the next one is requested.

        The same ``seed`` must give the same draws, and the first draws must not depend on ``n``.
        """
        ...


@runtime_checkable
class BatchedPosterior(Protocol):
    """A posterior that can evaluate several draws in one forward pass.

    It may also define ``draws_at_once(model, fitting)``: how many draws to compute at once, of those that fit into a
    chunk of rows; 1 where it cannot or should not do so for a model. Draws of such a posterior are compared with a
    single draw before they are used.
    """

    def batched(self, model: nn.Module, draws: range, seed: int) -> AbstractContextManager[Any]:
        """Return a context in which the model evaluates the draws with the numbers ``draws`` at once.

        The first forward pass inside has a single row. Every later one has ``len(draws) * n`` rows: the same n rows
        repeated for each draw, first all rows of the first draw, then all rows of the second, and so on.
        """
        ...


def prepared(posterior: Posterior, model: nn.Module, output: Any) -> Posterior:
    """Return the posterior's ``prepared(model, output)`` where it has that method, else the posterior itself."""
    method = getattr(posterior, "prepared", None)
    return posterior if method is None else method(model, output)


def n_available(posterior: Posterior, n: int) -> int:
    """Return the number of draws of a posterior where it is limited, else ``n``."""
    try:
        return len(posterior)  # type: ignore[arg-type]
    except TypeError:
        return n


def fixed(posterior: Posterior, model: nn.Module, seed: int) -> AbstractContextManager[Any]:
    """Return a context in which ``model`` is one function outside of any draw.

    This is the posterior's method ``fixed(model, seed)`` where it has one, and a context without effect otherwise.
    """
    method = getattr(posterior, "fixed", None)
    return nullcontext() if method is None else SafeContext(method(model, seed))


def keeps_below(posterior: Posterior) -> bool:
    """Return whether draws change what is below a layer only in ways that are seen, see :class:`Posterior`.

    A class that overrides the draws of another one does not inherit its promise.

    >>> from geh_explain.posterior import PointEstimate
    >>> class Other(PointEstimate):
    ...     def draws(self, model, n, seed):
    ...         return super().draws(model, n, seed)
    >>> keeps_below(PointEstimate()), keeps_below(Other())
    (True, False)
    """
    for kind in type(posterior).__mro__:
        if "keeps_below" in vars(kind):
            return bool(vars(kind)["keeps_below"])
        if not {"draws", "batched", "fixed"}.isdisjoint(vars(kind)):
            return False
    return False


@safe_contextmanager
def enter_draws(
    posterior: Posterior, model: nn.Module, n: int, seed: int, first_forward: Callable[[], Any]
) -> Iterator[Iterator[int]]:
    """Enter the draws of a posterior one after the other.

    A context whose value iterates over the numbers 0, 1, ... of the draws. The body of the loop runs inside the draw.
    A draw is left before the next one is entered; the last one is left when the iterator ends or, after an exception
    or a ``break``, when the ``with`` block ends. So the model is restored before an exception reaches the caller,
    which a plain generator would only do once it is garbage collected.

    Parameters
    ----------
    posterior
        The posterior; its generator of draws is closed at the end.
    model
        The model that the draws change.
    n
        Maximum number of draws. A posterior may yield fewer.
    seed
        Seed of the draws.
    first_forward
        Called once inside each draw, before the body. It must run the model on a single row, from which masks are
        sampled (see :class:`Posterior`).

    Raises
    ------
    GEHTypeError
        If ``posterior.draws`` returns something that cannot be iterated, or yields something that is not a
        context manager.

    Examples
    --------
    >>> import torch
    >>> from geh_explain.posterior import WeightSamples
    >>> model, x = torch.nn.Linear(1, 1, bias=False), torch.ones(1, 1)
    >>> posterior = WeightSamples([{"weight": torch.tensor([[float(k)]])} for k in (5, 6, 7)])
    >>> with enter_draws(posterior, model, n=2, seed=0, first_forward=lambda: model(x)) as draws:
    ...     for number in draws:
    ...         print(number, model(x).item())
    0 5.0
    1 6.0
    """
    draws = _iterate(posterior, model, n, seed)
    current = ExitStack()
    numbers = _enter_each(posterior, islice(draws, n), current, first_forward)
    try:
        yield numbers
    except BaseException as error:
        # The draw gets the exception, as in a plain with statement, but must not suppress it.
        current.__exit__(type(error), error, error.__traceback__)
        raise
    finally:
        current.close()
        numbers.close()
        # A generator may restore the model in a finally clause of its own.
        if hasattr(draws, "close"):
            draws.close()


def _iterate(posterior: Posterior, model: nn.Module, n: int, seed: int) -> Iterator[Any]:
    """Return an iterator over the draws; None counts as no draws."""
    draws: Any = posterior.draws(model, n, seed)
    if draws is None:
        return iter(())
    try:
        return iter(draws)
    except TypeError as error:
        raise GEHTypeError(
            f"posterior={posterior!r}: draws(model, n, seed) returned a {type(draws).__name__}; it must be a generator "
            "or a list of context managers."
        ) from error


def _enter_each(
    posterior: Posterior, draws: Iterator[Any], current: ExitStack, first_forward: Callable[[], Any]
) -> Generator[int, None, None]:
    """Yield the number of each draw while it is entered on the stack ``current``."""
    for number, draw in enumerate(draws):
        if not isinstance(draw, AbstractContextManager):
            raise GEHTypeError(
                f"posterior={posterior!r}: draw {number} is a {type(draw).__name__}; draws must yield context "
                "managers (see contextlib.contextmanager), inside which the model is one function."
            )
        with defer_interrupt():
            current.enter_context(draw)
        first_forward()
        yield number
        with defer_interrupt():
            current.close()


def seed_of_draw(seed: int, draw: int) -> int:
    """Return the seed of draw number ``draw``, a 63-bit integer.

    It depends on both numbers only, so that the first draws of a run are the same however many follow.

    >>> seed_of_draw(0, 0)
    7896617691693857887
    """
    # Half of an unsigned 64-bit integer fits into the signed integer that torch.manual_seed takes.
    return int(np.random.SeedSequence([seed, draw]).generate_state(1, np.uint64)[0] >> np.uint64(1))
