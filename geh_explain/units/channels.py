"""Feature maps as units."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from geh_explain._types import Shape
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.units.base import Units
from geh_explain.units.layout import channels_first


class Channels(Units):
    """One unit per channel: all positions of a feature map shift by the same amount.

    For a layer of shape (C, H, W), D = C and column c of B is 1 at (c, :, :) and 0 elsewhere.

    Parameters
    ----------
    dim
        Channel dimension of the layer's output, counted with the batch dimension: 1 for convolutions, -1 for
        channels-last layers. None takes it from the type of the layer, or from its neighbours if it is a bare
        activation; where neither shows it, 1 for images and -1 for sequences, with a warning.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> units = geh.units.Channels(dim=1)
    >>> units.count((16, 7, 7))
    16
    >>> units.shift(torch.eye(2), (2, 3, 3)).expand(2, 2, 3, 3)[1].flatten(1)
    tensor([[0., 0., 0., 0., 0., 0., 0., 0., 0.],
            [1., 1., 1., 1., 1., 1., 1., 1., 1.]])
    """

    def __init__(self, dim: int | None = None) -> None:
        if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int)):
            raise GEHTypeError(f"Channels(dim={dim!r}): give the number of a dimension, such as 1 or -1, or None.")
        self.dim = dim

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Channels:
        if self.dim is None:
            # A row (C,) has one dimension, so there is nothing to decide.
            return Channels(1 if len(shape) == 1 or channels_first(shape, module) else -1)
        rank = len(shape) + 1
        if not (1 <= self.dim < rank or -rank < self.dim <= -1):
            raise GEHValueError(
                f"units=Channels(dim={self.dim}): the layer's output has {rank} dimensions, batch included; "
                f"take 1 to {rank - 1}, or a negative one down to {1 - rank}."
            )
        return self

    def axis(self, shape: Shape) -> int:
        """Return the channel dimension as an index into ``shape``, which has no batch dimension."""
        dim = 1 if self.dim is None else self.dim
        return dim - 1 if dim > 0 else len(shape) + dim

    def count(self, shape: Shape) -> int:
        return shape[self.axis(shape)]

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        """Return what is added to each position of the channels."""
        axis = self.axis(shape)
        return t.reshape(len(t), *(shape[axis] if i == axis else 1 for i in range(len(shape))))

    def members(self, activations: Tensor) -> Tensor:
        channels_at_1 = activations.movedim(self.axis(tuple(activations.shape[1:])) + 1, 1)
        return channels_at_1.reshape(*channels_at_1.shape[:2], -1)

    def __repr__(self) -> str:
        return "Channels()" if self.dim is None else f"Channels(dim={self.dim})"
