"""Point estimates: the trained network as it is, without uncertainty of its weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn


class PointEstimate:
    """The trained network itself, as a single draw. Intervals of its scores are over points like the explained ones.

    Dropout is off, as in eval mode.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> product = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    >>> float(product.explain(torch.rand(20, 2), groups=1, progress=False).geh.mean[0, 1])
    1.0
    """

    keeps_below = True

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield one draw, whatever ``n`` and ``seed`` are."""
        yield nullcontext()

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "PointEstimate()"
