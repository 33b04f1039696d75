"""Attention heads as units."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from geh_explain._types import Shape
from geh_explain._validation import check_int
from geh_explain.errors import GEHValueError
from geh_explain.units.base import Units


class Heads(Units):
    """One unit per attention head: the last dimension C of a layer (..., C), cut into equal blocks of features.

    Column h of B is 1 at the features of block h, at all positions, and 0 elsewhere. Use it where the heads are
    concatenated: before the output projection, or at the output of a block.

    Parameters
    ----------
    count
        Number of heads D, a divisor of C.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> units = geh.units.Heads(2)
    >>> units.count((12, 64))
    2
    >>> units.shift(torch.eye(2), (3, 4)).flatten(1)  # the same at each of the 3 positions
    tensor([[1., 1., 0., 0.],
            [0., 0., 1., 1.]])
    """

    def __init__(self, count: int) -> None:
        self.heads = check_int("count", count, 1)

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Heads:
        if not shape or shape[-1] % self.heads:
            raise GEHValueError(
                f"units=Heads({self.heads}): one row has shape {shape}, whose last dimension cannot be cut into "
                f"{self.heads} equal heads."
            )
        return self

    def count(self, shape: Shape) -> int:
        return self.heads

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        features = t.repeat_interleave(shape[-1] // self.heads, dim=1)
        return features.reshape(len(t), *(1 for _ in shape[:-1]), shape[-1])

    def members(self, activations: Tensor) -> Tensor:
        return activations.reshape(*activations.shape[:-1], self.heads, -1).movedim(-2, 1).flatten(2)

    def __repr__(self) -> str:
        return f"Heads({self.heads})"
