"""Held-out labels as users pass them: converted to an array of numbers or classes, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from numbers import Complex, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain.errors import GEHTypeError, GEHValueError

#: Why labels of some kinds of numpy dtypes are refused.
_REFUSED = {
    "c": "complex numbers; give real numbers, for instance y.real or abs(y)",
    "M": "dates; give numbers, for instance the days since the first date",
    "m": "durations; give numbers, for instance y / np.timedelta64(1, 'D')",
    "V": "records; give one of their fields",
}


def as_label_array(y: Any, n_rows: int) -> np.ndarray[Any, Any]:
    """Return labels as an array (n,) or (n, k) without missing values, of at least two different ones.

    Raises
    ------
    GEHValueError, GEHTypeError
        If there is not one label per row, or labels are missing, the same, or neither numbers nor classes.
    """
    values = _to_numpy(y)
    if values.ndim == 0:
        raise GEHTypeError(f"y is a {type(y).__name__}; give one label per row{_way_out(y)}.")
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim not in (1, 2) or len(values) != n_rows:
        raise GEHValueError(
            f"y has shape {values.shape} for {n_rows} held-out rows; give one label per row, in the order of the rows."
        )
    _check_present(_missing(values))
    values = _convert_objects(np.asarray(values))
    if values.dtype.kind in _REFUSED:
        raise GEHTypeError(f"y has the dtype {values.dtype}, {_REFUSED[values.dtype.kind]}.")
    if values.dtype.kind == "f":
        _check_present(~np.isfinite(values))
    check_varies(values)
    return values


def check_varies(values: np.ndarray[Any, Any]) -> None:
    """Raise if all labels (n,) are the same."""
    if values.ndim == 1 and np.unique(values).size < 2:
        raise GEHValueError(
            f"y has the same value, {values[0]}, in all {len(values)} held-out rows; a test needs labels that vary."
        )


def are_numbers_as_text(values: np.ndarray[Any, Any]) -> bool:
    """Return whether labels are text, all of which can be read as numbers.

    >>> are_numbers_as_text(np.array(["1.5", "-2e3"])), are_numbers_as_text(np.array(["1.5", "low"]))
    (True, False)
    """
    try:
        np.asarray(values).astype(float)
    except (TypeError, ValueError):
        return False
    return all(isinstance(value, (str, bytes)) for value in values.ravel())


def _to_numpy(y: Any) -> np.ndarray[Any, Any]:
    """Return what numpy makes of labels; a scalar array of what it does not know."""
    if isinstance(y, Tensor):
        y = y.detach().cpu()
        y = y if y.layout == torch.strided else y.to_dense()
        # numpy has no numbers of 16 bits in the manner of bfloat16.
        return np.asarray((y.double() if y.is_floating_point() else y).numpy())
    try:
        values: np.ndarray[Any, Any] = np.ma.asanyarray(y)
    except ValueError:
        raise GEHValueError("y has rows of different lengths; give one label per row.") from None
    return values


def _way_out(y: Any) -> str:
    """Return how to convert an object that numpy does not know to labels, for an error message."""
    if hasattr(y, "toarray"):
        return ", y.toarray()"
    if isinstance(y, Mapping):
        return ", the entry of y that has them"
    if isinstance(y, Iterable) and not isinstance(y, (str, bytes)):
        return ", in a list or an array: list(y) if y yields one label at a time"
    return ", in a list, an array, a tensor or a column of a data frame"


def _missing(values: np.ndarray[Any, Any]) -> NDArray[np.bool_]:
    """Return which labels are masked, NaN, None or missing values of pandas."""
    import pandas as pd

    missing = np.ma.getmaskarray(values)
    return missing | pd.isna(np.asarray(values)) if values.dtype.kind in "OMm" else missing


def _check_present(missing: NDArray[np.bool_]) -> None:
    """Raise if labels (n,) or (n, k) are missing."""
    rows = np.flatnonzero(missing.reshape(len(missing), -1).any(axis=1))
    if len(rows):
        raise GEHValueError(f"y is missing or infinite in {len(rows)} rows, first in row {rows[0]}; leave them out.")


def _convert_objects(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return labels of dtype object as numbers or text; raise if they are something else, or some of each."""
    if values.dtype.kind != "O":
        return values
    entries = values.ravel().tolist()
    for kinds in ((Real, Decimal, np.bool_), (Complex,), (str,), (bytes,)):
        if all(isinstance(entry, kinds) for entry in entries):
            converted = np.array(entries)
            return (converted.astype(float) if converted.dtype.kind == "O" else converted).reshape(values.shape)
    types = sorted({type(entry).__name__ for entry in entries})
    raise GEHTypeError(f"y has labels of type {' and '.join(types)}; give all numbers, or all text for classes.")
