"""Tables and targets as the baselines take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.data.reader import Reader
from geh_explain.errors import GEHValueError


def read_table(X: Any, y: Any, names: Sequence[str] | None) -> tuple[Floats, Floats, list[str]]:
    """Return a table (n, D) and its target (n,) in double precision, and the names of the columns.

    Raises
    ------
    GEHValueError
        If the table has fewer than two columns, the target does not have one finite number per row, or the number of
        names is not the number of columns.
    """
    points = Reader().read(X)
    x = np.concatenate([rows.inputs[0].double().numpy() for rows in points.batches()])
    target = np.asarray(y.detach().cpu() if hasattr(y, "detach") else y, dtype=float)
    if x.ndim != 2 or x.shape[1] < 2:
        raise GEHValueError(f"X has shape {x.shape}; give a table of at least two columns.")
    if target.size != len(x) or not np.isfinite(target).all():
        raise GEHValueError(f"y has shape {target.shape} for {len(x)} rows of X; give one finite number per row.")
    return x, target.reshape(-1), column_names(x.shape[1], names or points.columns)


def column_names(n_columns: int, names: Sequence[str] | None) -> list[str]:
    """Return the names of the columns as strings, x0, x1, ... for None.

    >>> column_names(3, None)
    ['x0', 'x1', 'x2']
    """
    if names is None:
        return [f"x{column}" for column in range(n_columns)]
    if len(names) != n_columns:
        raise GEHValueError(f"names has {len(names)} entries for {n_columns} columns; give one name per column.")
    return [str(name) for name in names]


def scale_columns(x: Floats, low: float, high: float) -> Floats:
    """Return columns scaled linearly to (low, high); constant ones become low.

    >>> scale_columns(np.array([[0.0, 7.0], [4.0, 7.0]]), 0.5, 1.5)
    array([[0.5, 0.5],
           [1.5, 0.5]])
    """
    span = x.max(axis=0) - x.min(axis=0)
    # A constant column has no span to divide by.
    return np.asarray(low + (high - low) * (x - x.min(axis=0)) / np.where(span > 0, span, 1.0))
