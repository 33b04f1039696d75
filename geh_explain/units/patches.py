"""TODO."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from geh_explain._types import Shape
from geh_explain._validation import check_int
from geh_explain.errors import GEHValueError
from geh_explain.units.base import Units


class Patches(Units):
    """Squares of an image, or of feature maps, that brighten together: all channels of ``size`` x ``size`` pixels.

    ``channels_last`` says that a row is (H, W, C) and not (C, H, W). Patches at the far edges may be smaller.

    >>> Patches(7).count((1, 28, 56))
    32
    """

    def __init__(self, size: int | tuple[int, int], *, channels_last: bool = False) -> None:
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        self.size = (check_int("size", height, 1), check_int("size", width, 1))
        self.channels_last = channels_last

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Patches:
        if len(shape) not in (2, 3):
            raise GEHValueError(
                f"units=Patches(...): one row has shape {shape}, which is no image; it needs (C, H, W) or (H, W)."
            )
        return self

    def _grid(self, shape: Shape) -> tuple[int, int]:
        height, width = self._image(shape)
        return -(-height // self.size[0]), -(-width // self.size[1])

    def _image(self, shape: Shape) -> tuple[int, int]:
        return (shape[0], shape[1]) if self.channels_last or len(shape) == 2 else (shape[1], shape[2])

    def count(self, shape: Shape) -> int:
        return math.prod(self._grid(shape))

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        rows, columns = self._grid(shape)
        height, width = self._image(shape)
        image = t.reshape(len(t), rows, columns)
        image = image.repeat_interleave(self.size[0], 1)[:, :height].repeat_interleave(self.size[1], 2)[:, :, :width]
        if len(shape) == 2:
            return image
        return image.unsqueeze(-1 if self.channels_last else 1)

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        down, across = self._grid(shape)
        return [f"{prefix}[{row},{column}]" for row in range(down) for column in range(across)]

    def __repr__(self) -> str:
        return f"Patches({self.size}{', channels_last=True' if self.channels_last else ''})"
