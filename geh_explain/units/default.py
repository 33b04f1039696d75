"""The unit set that ``units=None`` means."""

from __future__ import annotations

from torch import nn

from geh_explain._types import Shape
from geh_explain.units.base import Units
from geh_explain.units.channels import Channels
from geh_explain.units.neurons import Neurons


def default_units(shape: Shape, module: nn.Module | None) -> Units:
    """Return :class:`Neurons` at the inputs and at layers with rows (D,), else :class:`Channels`.

    A feature map has far too many numbers for all of their pairs, and its channels are what it computes.

    >>> default_units((28, 28), None), default_units((16, 7, 7), nn.Conv2d(3, 16, 3))
    (Neurons(), Channels())
    """
    return Neurons() if module is None or len(shape) <= 1 else Channels()
