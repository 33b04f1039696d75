"""Positions of a sequence as units."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from geh_explain._types import Shape
from geh_explain.errors import GEHValueError
from geh_explain.units.base import Units


class Tokens(Units):
    """One unit per position of a sequence: all features of a token shift by the same amount, in layers (L, C).

    D = L, and column l of B is 1 at (l, :) and 0 elsewhere.

    This is one direction among the C directions of a token, and in a wide embedding it need not have a meaning. To
    explain words, use an embedding of few numbers, or differences between the embeddings of words.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> units = geh.units.Tokens()
    >>> units.count((12, 64))
    12
    >>> units.shift(torch.eye(3), (3, 2)).expand(3, 3, 2)[1]
    tensor([[0., 0.],
            [1., 1.],
            [0., 0.]])
    """

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Tokens:
        if len(shape) != 2:
            raise GEHValueError(
                f"units=Tokens(): one row has shape {shape}; a sequence has (length, features), as the output of an "
                "embedding or a transformer block does."
            )
        return self

    def count(self, shape: Shape) -> int:
        return shape[0]

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        return t[:, :, None]

    def members(self, activations: Tensor) -> Tensor:
        return activations
