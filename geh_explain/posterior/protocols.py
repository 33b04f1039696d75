"""The contract of a posterior, and what its kinds share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import nn


@runtime_checkable
class Posterior(Protocol):
    """A distribution over functions. This one method is all that a posterior of your own needs.

    ``draws`` yields at most ``n`` context managers. Inside each, ``model`` is one fixed function: every
    row, batch and derivative sees the same weights or masks. The first forward inside a draw has a
    single row, so that whatever depends on the shape of a row can be drawn then.

    Three things more may be said: ``inputs_only = True`` by a posterior whose hidden units do not correspond
    from draw to draw; ``steady(model, seed)``, a context manager, by one whose model is random outside its draws;
    and ``together(model, draws, seed)``, a context manager for a range of draws at once, which makes small data sets
    fast: rows then come once for each of the draws, one draw after the other.

    >>> import contextlib, torch, geh_explain as geh
    >>> class Shaken:
    ...     def draws(self, model, n, seed):
    ...         generator = torch.Generator().manual_seed(seed)
    ...         for _ in range(n):
    ...             yield self.shaken(model.weight, torch.randn(model.weight.shape, generator=generator))
    ...     @contextlib.contextmanager
    ...     def shaken(self, weight, noise):
    ...         before = weight.data
    ...         weight.data = before + 0.1 * noise
    ...         try:
    ...             yield
    ...         finally:
    ...             weight.data = before  # the very same tensor
    >>> explainer = geh.GEHExplainer(torch.nn.Linear(3, 2), output="probability", posterior=Shaken())
    >>> explainer.explain(torch.randn(30, 3), target=0, groups=1, draws=10, progress=False).geh.draws.shape
    (10, 3)
    """

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield the draws, each to be entered once and left before the next."""
        ...


@runtime_checkable
class BatchedPosterior(Protocol):
    """A posterior that can give several draws at once."""

    def together(self, model: nn.Module, draws: range, seed: int) -> AbstractContextManager[Any]:
        """Return a context in which rows come once for each of ``draws``, one draw after the other."""
        ...


def steady(posterior: Posterior, model: nn.Module, seed: int) -> AbstractContextManager[Any]:
    """Return a context in which the model is one function outside of any draw."""
    hold = getattr(posterior, "steady", None)
    return nullcontext() if hold is None else hold(model, seed)


def seed_of_draw(seed: int, draw: int) -> int:
    """Return the seed of one draw; the first draws are the same however many follow."""
    return int(np.random.SeedSequence([seed, draw]).generate_state(1, np.uint64)[0] >> np.uint64(1))


@contextmanager
def enter_draws(
    posterior: Posterior, model: nn.Module, n: int, seed: int, first_forward: Callable[[], Any]
) -> Iterator[Iterator[int]]:
    """Temporary."""
    from geh_explain.errors import GEHTypeError

    draws = posterior.draws(model, n, seed) or iter(())
    current = ExitStack()

    def each() -> Iterator[int]:
        for number, draw in enumerate(islice(draws, n)):
            if not isinstance(draw, AbstractContextManager):
                raise GEHTypeError(
                    f"posterior={posterior!r}: draw {number} is a {type(draw).__name__}; draws must yield context "
                    "managers (see contextlib.contextmanager), inside which the model is one function."
                )
            current.enter_context(draw)
            first_forward()
            yield number
            current.close()

    with current:
        yield each()
