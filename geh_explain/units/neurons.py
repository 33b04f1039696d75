"""TODO."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from geh_explain._types import Shape
from geh_explain.units.base import Units


class Neurons(Units):
    """Every number of the layer is a unit of its own (at the inputs: every feature or pixel).

    >>> Neurons().count((3, 4))
    12
    """

    def count(self, shape: Shape) -> int:
        return math.prod(shape)

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        return t.reshape(-1, *shape)

    def members(self, activations: Tensor) -> Tensor:
        return activations.flatten(1)[:, :, None]

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        if len(shape) < 2:
            return list(columns) if columns is not None else super().names(shape, prefix)
        return [f"{prefix}[{','.join(map(str, index))}]" for index in np.ndindex(*shape)]
