"""Responses of a layer's units to inputs: one number per row and unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geh_explain.data.rows import Rows
from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError, warn
from geh_explain.model.cut import Cut
from geh_explain.model.layers import Layer, find_layer
from geh_explain.units.base import Units
from geh_explain.units.channels import Channels
from geh_explain.units.subset import Subset

#: Names in a message about dead units before it is shortened.
_MAX_NAMES = 8


@dataclass(frozen=True)
class HiddenUnits:
    """Units of one hidden layer of a model.

    Attributes
    ----------
    model
        The network.
    layer
        A dotted name, a module, or a :class:`~geh_explain.Layer`.
    units
        The unit set, or None for neurons (channels of feature maps).
    """

    model: nn.Module
    layer: Any
    units: Units | None

    def cut(self, rows: Rows, argument: str) -> Cut:
        """Return the model cut at the layer.

        Parameters
        ----------
        rows
            A few rows on which the model is tried.
        argument
            The user's name for these rows, for error messages.

        Raises
        ------
        GEHTypeError
            If the layer is None: the inputs are no hidden units.
        GEHError
            If the model raises an exception on these rows, typically because of their shape.
        """
        if self.layer is None:
            raise GEHTypeError(
                "layer=None: each input responds to itself only; name a hidden layer, such as layer='fc2'."
            )
        return Cut(self.model, find_layer(self.model, self.layer), self.units, "raw", replace(rows, argument=argument))


@dataclass(frozen=True)
class Responses:
    """Responses of U units to n rows.

    Attributes
    ----------
    values
        Activations (n, U), reduced over the numbers that belong to one unit.
    places
        Positions (n, U, r) of the maxima in feature maps with r dimensions; None if units are not channels or the
        reduction is the mean.
    """

    values: Tensor
    places: Tensor | None


def as_unit_set(units: Any) -> Units | None:
    """Return the unit set for an index, several indices, a unit set, or None (all units).

    >>> list(as_unit_set(3).indices), list(as_unit_set([0, 2]).indices), as_unit_set(None)
    ([3], [0, 2], None)
    """
    if units is None or isinstance(units, Units):
        return units
    if isinstance(units, Tensor) and not units.ndim:
        units = units.item()
    if isinstance(units, (int, np.integer)) and not isinstance(units, bool):
        return Subset([int(units)])
    if isinstance(units, (str, Layer)) or not isinstance(units, Iterable):
        raise GEHTypeError(
            f"units={units!r} is not supported; give the index of a unit, a list of indices, a unit set such as "
            "geh_explain.units.Channels(), or None for all units."
        )
    return Subset(units)  # type: ignore[arg-type]


def reduce_activations(cut: Cut, activations: Tensor, reduce: str) -> Responses:
    """Return the units' responses in a layer's output.

    Parameters
    ----------
    cut
        The model cut at the layer.
    activations
        Output ``(n, *shape)`` of the layer.
    reduce
        ``"max"`` or ``"mean"`` over the numbers that belong to one unit, such as the pixels of a channel.
    """
    members = cut.units.members(activations)
    if members.shape[2] == 1:
        return Responses(members[:, :, 0], None)
    if reduce == "mean":
        # Units of unequal size are padded with -inf, which must not enter the mean.
        is_member = torch.isfinite(members)
        return Responses(members.masked_fill(~is_member, 0).sum(dim=2) / is_member.sum(dim=2), None)
    values, flat = members.max(dim=2)
    shape = map_shape(cut)
    if shape is None:
        return Responses(values, None)
    return Responses(values, torch.stack(torch.unravel_index(flat, shape), dim=-1))


def map_shape(cut: Cut) -> tuple[int, ...] | None:
    """Return the shape of one channel's feature map, without the batch dimension; None if units are not channels."""
    units: Units | None = cut.units
    # A subset of channels is made of channels too.
    while isinstance(units, Subset):
        units = units.of
    if not isinstance(units, Channels):
        return None
    axis = units.axis(cut.shape)
    return cut.shape[:axis] + cut.shape[axis + 1 :]


def check_reduce(reduce: str) -> None:
    """Raise GEHValueError unless ``reduce`` is "max" or "mean"."""
    if reduce not in ("max", "mean"):
        raise GEHValueError(f"reduce={reduce!r} is unknown; use 'max' or 'mean'.")


def check_finite(values: Tensor, rows: Rows, description: str) -> None:
    """Raise GEHRuntimeError with the first row at which ``values`` (n, ...) are NaN or infinite."""
    # One sum is faster than a test of each number; an overflow of the sum alone passes the second test.
    if bool(torch.isfinite(values.sum())):
        return
    is_bad = ~torch.isfinite(values).reshape(len(values), -1).all(dim=1)
    if bool(is_bad.any()):
        row = rows.index_of(int(is_bad.nonzero()[0]))
        raise GEHRuntimeError(
            f"{description} is NaN or infinite at candidate {row}; check this candidate, or leave it out."
        )


def report_dead(dead: NDArray[np.bool_], names: Sequence[str], reason: str) -> None:
    """Warn about dead units; raise GEHValueError if all units are dead.

    Parameters
    ----------
    dead
        Mask (U,).
    names
        Names of the U units.
    reason
        The observation, as a verb phrase: "gave the same value for every candidate".
    """
    if not dead.any():
        return
    dead_names = [name for name, is_dead in zip(names, dead, strict=True) if is_dead]
    suffix = " and others" if len(dead_names) > _MAX_NAMES else ""
    message = f"units: {', '.join(dead_names[:_MAX_NAMES])}{suffix} {reason} (dead, or not connected to the inputs)"
    if dead.all():
        raise GEHValueError(message + "; choose other units, or the layer before its activation function.")
    warn(message + "; their inputs are arbitrary.")
