"""TODO."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from geh_explain._types import Floats
from geh_explain.data.points import Points
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.model.cut import Cut


def unit_factors(cut: Cut, points: Points, scale: Any, batch_size: int | None) -> Floats:
    """Return what ``scale`` multiplies each unit by (D,)."""
    if scale is None:
        return np.ones(cut.count)
    if isinstance(scale, str):
        if scale != "std":
            raise GEHValueError(f"scale={scale!r} is unknown; use None, 'std' or an array with one number per unit.")
        return unit_moments(cut, points, batch_size)[1]
    try:
        factors = np.asarray(scale.tolist() if isinstance(scale, Tensor) else scale, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GEHTypeError(
            f"scale={scale!r} is not an array of numbers; give one for each of the {cut.count} units, or 'std' or None."
        ) from error
    if factors.shape != (cut.count,) or not np.isfinite(factors).all():
        raise GEHValueError(
            f"scale has shape {factors.shape}; give one finite number for each of the {cut.count} units of {cut.place}."
        )
    return factors


def unit_moments(cut: Cut, points: Points, batch_size: int | None) -> tuple[Floats, Floats]:
    """Return mean and standard deviation, each (D,), of the units' values over the points."""
    count, mean, squares = 0, np.zeros(cut.count), np.zeros(cut.count)
    for rows in points.split(batch_size):
        values = cut.units.values(cut.activations(rows)).double().cpu().numpy()
        # Chan's update: the same for any chunking, and safe for large means.
        total, delta = count + len(rows), values.mean(axis=0) - mean
        squares += ((values - values.mean(axis=0)) ** 2).sum(axis=0) + delta**2 * count * len(rows) / total
        mean, count = mean + delta * len(rows) / total, total
    return mean, np.asarray(np.sqrt(squares / count))
