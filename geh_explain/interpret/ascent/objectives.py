"""What gradient ascent climbs: a unit, a direction, or a pair of units that shall both respond."""

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

#: How sharp the minimum of two standardised activations is: the lower one gets most of the gradient.
_SHARPNESS = 4.0


@dataclass(frozen=True)
class Objective:
    """A unit, a pair of units, or weights (D,) of all units."""

    units: tuple[int, ...] = ()
    weights: Tensor | None = None

    def name(self, names: Sequence[str]) -> str:
        """Return what it is called."""
        return "direction" if self.weights is not None else " and ".join(names[unit] for unit in self.units)

    def __call__(self, values: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """Return the objective (n,) of the units' values (n, D), whose usual mean and spread (D,) are given."""
        if self.weights is not None:
            return values @ self.weights.to(values)
        if len(self.units) == 1:
            return values[:, self.units[0]]
        chosen = list(self.units)
        return soft_minimum((values[:, chosen] - mean[chosen]) / std[chosen])


def soft_minimum(values: Tensor) -> Tensor:
    """Return a smooth minimum (n,) of values (n, m), at most the true one's distance log(m) / sharpness above it.

    A product would grow with two negative values too, and a sum with one of them alone.
    """
    return (math.log(values.shape[1]) - torch.logsumexp(-_SHARPNESS * values, dim=1)) / _SHARPNESS


def parse(units: Any, count: int) -> list[Objective]:
    """Read a unit, a pair (a tuple), a direction (a tensor with a weight for each of ``count`` units), or a list.

    None stands for every unit.
    """
    if units is None:
        return [Objective((unit,)) for unit in range(count)]
    if isinstance(units, Units):
        raise GEHTypeError(f"units={units!r}: say what a unit is by unit_set=, and which units to maximise by units=.")
    if isinstance(units, Tensor) and not units.is_floating_point():
        units = units.tolist()
    entries = units if isinstance(units, list) else list(units) if isinstance(units, (range, np.ndarray)) else [units]
    if not entries:
        raise GEHValueError("units=[] is empty; give at least one unit.")
    return [_one(entry, count) for entry in entries]


def _one(entry: Any, count: int) -> Objective:
    if isinstance(entry, Tensor) and entry.ndim:
        if entry.shape != (count,) or not bool(torch.isfinite(entry).all()):
            raise GEHValueError(
                f"units: a direction has shape {tuple(entry.shape)}; give a finite number for each of {count} units."
            )
        return Objective(weights=entry.detach().clone())
    numbers = entry if isinstance(entry, tuple) else (entry,)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise GEHTypeError(
                f"units: {entry!r} is not understood; give the number of a unit, a pair (i, j), or a tensor with a "
                f"weight for each of the {count} units."
            )
        if not 0 <= number < count:
            raise GEHValueError(f"units: there are {count} units, numbered 0 to {count - 1}; {number} is none of them.")
    if len(set(numbers)) < len(numbers) or not 1 <= len(numbers) <= 2:
        raise GEHValueError(f"units: {entry!r} is not a pair; give two different units.")
    return Objective(tuple(int(number) for number in numbers))
