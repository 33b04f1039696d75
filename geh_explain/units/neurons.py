"""Single numbers of a layer as units."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from geh_explain._types import Shape
from geh_explain.units.base import Units


class Neurons(Units):
    """One unit per number of the layer; at the inputs one per feature or pixel.

    B is the identity, and D the product of the layer's shape.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> units = geh.units.Neurons()
    >>> units.count((3, 4)), units.names((2, 2), "conv1")
    (12, ['conv1[0,0]', 'conv1[0,1]', 'conv1[1,0]', 'conv1[1,1]'])
    >>> units.shift(torch.eye(3), (3,))
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """

    def count(self, shape: Shape) -> int:
        return math.prod(shape)

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        return t.reshape(-1, *shape)

    def members(self, activations: Tensor) -> Tensor:
        return activations.flatten(1)[:, :, None]

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        # Column names exist for tables only, whose rows have one dimension.
        if len(shape) < 2:
            return list(columns) if columns is not None else super().names(shape, prefix)
        return [f"{prefix}[{','.join(map(str, index))}]" for index in np.ndindex(*shape)]
