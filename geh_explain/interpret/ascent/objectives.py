"""Objectives of gradient ascent: a unit, a direction in the space of units, or a pair of units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.units.base import Units

#: Sharpness a of the smooth minimum of standardised activations: at a difference of 1 standard deviation, the lower
#: one gets 98 % of the gradient.
_SHARPNESS = 4.0


@dataclass(frozen=True)
class Objective:
    """A number to maximise, as a function of the activations h (D,) of all units.

    - one unit i: h_i
    - a pair (i, j): softmin((h_i - m_i) / s_i, (h_j - m_j) / s_j), with mean m and standard deviation s of each unit
    - a direction w: w^T h

    Attributes
    ----------
    units
        Indices of one or two units; empty for a direction.
    weights
        Direction (D,), or None.
    """

    units: tuple[int, ...] = ()
    weights: Tensor | None = None

    def name(self, names: Sequence[str]) -> str:
        """Return the objective's name: those of its units joined by "and", or "direction"."""
        return "direction" if self.weights is not None else " and ".join(names[unit] for unit in self.units)

    def __call__(self, values: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """Return the objective (n,) of activations (n, D); ``mean`` and ``std`` (D,) standardise those of a pair."""
        if self.weights is not None:
            return values @ self.weights.to(values)
        if len(self.units) == 1:
            return values[:, self.units[0]]
        pair = list(self.units)
        return soft_minimum((values[:, pair] - mean[pair]) / std[pair])


def soft_minimum(values: Tensor) -> Tensor:
    """Return the smooth minimum (n,) of values (n, m).

    softmin(z) = -1/a * log(1/m * sum_i exp(-a z_i)) with a = 4. It lies between min(z) and min(z) + log(m) / a. A
    product would also grow with two negative values, and a sum with one large value alone.

    >>> soft_minimum(torch.tensor([[3.0, 3.0], [0.0, 10.0]]))
    tensor([3.0000, 0.1733])
    """
    return (math.log(values.shape[1]) - torch.logsumexp(-_SHARPNESS * values, dim=1)) / _SHARPNESS


def parse_objectives(units: Any, n_units: int) -> list[Objective]:
    """Return the objectives that a user's ``units`` describe.

    Parameters
    ----------
    units
        Index of a unit, a pair of indices (a tuple), a direction (a floating-point tensor (n_units,)), a list of
        these, or None for each unit of the layer.
    n_units
        Number of units of the layer.

    Raises
    ------
    GEHTypeError
        If an entry is none of these.
    GEHValueError
        If an index is out of range, a pair is not two different units, or a direction has another length.
    """
    if units is None:
        return [Objective((unit,)) for unit in range(n_units)]
    if isinstance(units, Units):
        raise GEHTypeError(f"units={units!r}: pass a unit set as unit_set=, and the indices of units as units=.")
    # An integer tensor holds indices, a floating-point one is a direction.
    if isinstance(units, Tensor) and not units.is_floating_point():
        units = units.tolist()
    entries = units if isinstance(units, list) else list(units) if isinstance(units, (range, np.ndarray)) else [units]
    if not entries:
        raise GEHValueError("units=[] is empty; give at least one unit.")
    return [_parse_entry(entry, n_units) for entry in entries]


def _parse_entry(entry: Any, n_units: int) -> Objective:
    """Return the objective of one entry of the list."""
    if isinstance(entry, Tensor) and entry.ndim:
        if entry.shape != (n_units,) or not bool(torch.isfinite(entry).all()):
            raise GEHValueError(
                f"units: a direction has shape {tuple(entry.shape)}; give a finite number for each of {n_units} units."
            )
        return Objective(weights=entry.detach().clone())
    indices = entry if isinstance(entry, tuple) else (entry,)
    for index in indices:
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
            raise GEHTypeError(
                f"units: {entry!r} is not supported; give the index of a unit, a pair (i, j), or a tensor with a "
                f"weight for each of the {n_units} units."
            )
        if not 0 <= index < n_units:
            raise GEHValueError(
                f"units: {index} is out of range; there are {n_units} units, with indices 0 to {n_units - 1}."
            )
    if len(set(indices)) < len(indices) or not 1 <= len(indices) <= 2:
        raise GEHValueError(f"units: {entry!r} is not a pair; give two different units.")
    return Objective(tuple(int(index) for index in indices))
