"""Squares of an image as units."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from geh_explain._types import Shape
from geh_explain._validation import check_int
from geh_explain.errors import GEHValueError
from geh_explain.units.base import Units


class Patches(Units):
    """One unit per rectangle of an image or of feature maps: all of its pixels and channels shift together.

    Column k of B is 1 at patch k, in all channels, and 0 elsewhere. Patches are numbered row by row from the top left;
    those at the right and bottom edges may be smaller.

    Parameters
    ----------
    size
        Height and width of a patch in pixels, or one number for both.
    channels_last
        Whether a row is (H, W, C) instead of (C, H, W). Rows (H, W) are accepted too.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> geh.units.Patches(7).count((1, 28, 56))
    32
    >>> geh.units.Patches(2).shift(torch.eye(4), (1, 4, 3))[1, 0]
    tensor([[0., 0., 1.],
            [0., 0., 1.],
            [0., 0., 0.],
            [0., 0., 0.]])
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

    def count(self, shape: Shape) -> int:
        return math.prod(self._grid(shape))

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        """Return what is added to each pixel of the patches."""
        rows, columns = self._grid(shape)
        height, width = self._image_size(shape)
        image = t.reshape(len(t), rows, columns)
        # Enlarge each number to a full patch, and cut off what exceeds the image.
        image = image.repeat_interleave(self.size[0], 1)[:, :height].repeat_interleave(self.size[1], 2)[:, :, :width]
        if len(shape) == 2:
            return image
        return image.unsqueeze(-1 if self.channels_last else 1)

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        n_rows, n_columns = self._grid(shape)
        return [f"{prefix}[{row},{column}]" for row in range(n_rows) for column in range(n_columns)]

    def _grid(self, shape: Shape) -> tuple[int, int]:
        """Return the number of patches from top to bottom and from left to right, rounded up."""
        height, width = self._image_size(shape)
        return -(-height // self.size[0]), -(-width // self.size[1])

    def _image_size(self, shape: Shape) -> tuple[int, int]:
        """Return height and width of the image in pixels."""
        return (shape[0], shape[1]) if self.channels_last or len(shape) == 2 else (shape[1], shape[2])

    def __repr__(self) -> str:
        return f"Patches({self.size}{', channels_last=True' if self.channels_last else ''})"
