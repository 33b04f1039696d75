"""TODO."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from geh_explain._types import Shape
from geh_explain.errors import GEHValueError
from geh_explain.units.base import Units


class Tokens(Units):
    """Positions of a sequence: all features of one token move together, in layers (N, L, C).

    They move by the same amount, which is one direction among many: in a wide embedding it need not mean anything.
    Where words are what matters, explain an embedding of few numbers, or by differences from word to word.

    >>> Tokens().count((12, 64))
    12
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
