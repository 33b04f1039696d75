"""Models that draw their own weights in forward."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from geh_explain.posterior.protocols import seed_of_draw


class Stochastic:
    """A model whose forward draws its own weights (blitz, bayesian-torch, torchbnn, ...).

    Within a draw every forward starts from the same random state, so that it draws the same weights.
    The noise must not be per row: a model that draws some for each row is refused as mixing rows.

    >>> import torch, geh_explain as geh
    >>> def noisy(x):
    ...     return x[:, 0] * x[:, 1] * torch.normal(2.0, 0.1, ())
    >>> result = geh.GEHExplainer(noisy, posterior=geh.posterior.Stochastic()).explain(
    ...     torch.rand(20, 2), groups=1, draws=50, progress=False)
    >>> bool(abs(result.geh.mean[0, 1] - 2) < 0.1 and result.geh.std[0, 1] > 0.05)
    True
    """

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield ``n`` draws, each a random state that every forward starts from."""
        for draw in range(n):
            yield _frozen(model, seed_of_draw(seed, draw))

    def steady(self, model: nn.Module, seed: int) -> AbstractContextManager[Any]:
        """Return what holds the model still while the data are looked at: the first draw."""
        return _frozen(model, seed_of_draw(seed, 0))

    def __repr__(self) -> str:
        return "Stochastic()"


@contextmanager
def _frozen(model: nn.Module, seed: int) -> Iterator[None]:
    def restart(module: nn.Module, args: Any) -> None:
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)

    handle = model.register_forward_pre_hook(restart)
    try:
        yield
    finally:
        handle.remove()
