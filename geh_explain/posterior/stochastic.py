"""Models whose forward pass samples their own weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch import nn

from geh_explain._process import OwnGenerators, OwnStates, OwnTorchGenerator, other_threads_draw, safe_contextmanager
from geh_explain.posterior.forward import replace_forward
from geh_explain.posterior.protocols import seed_of_draw


class Stochastic:
    """A model whose forward pass samples its own weights (blitz, bayesian-torch, torchbnn, ...).

    Inside a draw, the random numbers of torch, NumPy and ``random`` that the model draws begin with the same seed in
    every forward pass, so that it samples the same weights each time. The noise must not be drawn per row: a model
    that does so is refused, because its rows would depend on their position in the batch.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> def noisy(x):
    ...     return x[:, 0] * x[:, 1] * torch.normal(2.0, 0.1, ())
    >>> result = geh.GEHExplainer(noisy, posterior=geh.posterior.Stochastic()).explain(
    ...     torch.rand(20, 2), groups=1, draws=50, progress=False)
    >>> bool(abs(result.geh.mean[0, 1] - 2) < 0.1 and result.geh.std[0, 1] > 0.05)
    True
    """

    def __init__(self) -> None:
        #: Whether NumPy's and Python's generators, which all threads share, are seeded too.
        self._seeds_others = True

    def examined(self, call: Callable[[], Any]) -> Stochastic:
        """Return a posterior that seeds only generators from which the model draws.

        Other threads that draw from NumPy's or Python's generators would get the same numbers in each forward pass.

        Parameters
        ----------
        call
            Runs the model on a single row.
        """
        others = OwnStates(seed=None)
        with OwnTorchGenerator(seed=0).active(), others.active():
            call()
        found = Stochastic()
        found._seeds_others = others.drew and not other_threads_draw()
        return found

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield ``n`` draws, each with a random state of its own."""
        for draw in range(n):
            yield self._reseed_each_forward(model, seed_of_draw(seed, draw))

    def fixed(self, model: nn.Module, seed: int) -> AbstractContextManager[Any]:
        """Return the first draw, as the function that is used outside of draws (for groups and scales)."""
        return self._reseed_each_forward(model, seed_of_draw(seed, 0))

    @safe_contextmanager
    def _reseed_each_forward(self, model: nn.Module, seed: int) -> Iterator[None]:
        """Give every forward pass of ``model`` random numbers that begin with the same seed."""
        original = model.forward

        def seeded(*args: Any, **kwargs: Any) -> Any:
            with OwnGenerators(seed).active(with_others=self._seeds_others):
                return original(*args, **kwargs)

        with replace_forward(model, seeded):
            yield

    def __repr__(self) -> str:
        return "Stochastic()"
