"""What all baselines read: a table and a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.data.reader import Reader
from geh_explain.errors import GEHValueError


def read(X: Any, y: Any, names: Sequence[str] | None) -> tuple[Floats, Floats, list[str]]:
    """Return a table (n, D), its target (n,), and the names of its columns."""
    points = Reader().read(X)
    x = np.concatenate([rows.inputs[0].double().numpy() for rows in points.batches()])
    target = np.asarray(y.detach().cpu() if hasattr(y, "detach") else y, dtype=float)
    if x.ndim != 2 or x.shape[1] < 2:
        raise GEHValueError(f"X has shape {x.shape}; give a table of at least two columns.")
    if target.size != len(x) or not np.isfinite(target).all():
        raise GEHValueError(f"y has shape {target.shape} for {len(x)} rows of X; give one finite number per row.")
    return x, target.reshape(-1), names_for(x.shape[1], names or points.columns)


def names_for(columns: int, names: Sequence[str] | None) -> list[str]:
    """Return the names of columns, x0, x1, ... where there are none."""
    found = [f"x{column}" for column in range(columns)] if names is None else [str(name) for name in names]
    if len(found) != columns:
        raise GEHValueError(f"names has {len(found)} entries for {columns} columns.")
    return found


def scaled(x: Floats, low: float, high: float) -> Floats:
    """Bring columns to (low, high), as the paper does; constant ones to low."""
    span = x.max(axis=0) - x.min(axis=0)
    return np.asarray(low + (high - low) * (x - x.min(axis=0)) / np.where(span > 0, span, 1.0))
