"""Rows of inputs and targets of any kind: counted, selected, replaced, and described for a fingerprint."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain._hashing import digest
from geh_explain._types import Ints
from geh_explain.errors import GEHTypeError, GEHValueError


def count_rows(name: str, value: Any) -> int:
    """Return the number of rows of the argument ``name``; of its first part if it is a tuple."""
    part = value[0] if isinstance(value, tuple) and value else value
    try:
        return len(part)
    except TypeError:
        raise GEHTypeError(f"{name} is a {type(value).__name__}; give a tensor, an array or a DataFrame.") from None


def check_rows(X: Any, y: Any) -> int:
    """Return the number of rows n, which inputs and target must share."""
    n_inputs, n_targets = count_rows("X", X), count_rows("y", y)
    if n_inputs != n_targets:
        raise GEHValueError(f"X has {n_inputs} rows and y {n_targets}; give inputs and targets of the same rows.")
    if n_targets < 2:
        raise GEHValueError(f"y has {n_targets} row(s); give at least two.")
    return n_targets


def take_rows(value: Any, order: Ints) -> Any:
    """Return the rows ``order`` of inputs or targets, of the same type; of every part of a tuple of inputs.

    >>> take_rows(["a", "b", "c"], np.array([2, 0]))
    ['c', 'a']
    """
    if isinstance(value, tuple):
        return tuple(take_rows(part, order) for part in value)
    if hasattr(value, "iloc"):
        return value.iloc[order]
    if isinstance(value, list):
        return [value[i] for i in order]
    return value[torch.as_tensor(order, device=value.device)] if isinstance(value, Tensor) else np.asarray(value)[order]


def reorder_rows(y: Any, order: Ints) -> Any:
    """Return n of the rows of ``y`` as a new target of the same type, one for each row of X."""
    rows = take_rows(y, order)
    # The index stays in its order: ``fit`` may align X and y by it, which would undo the new order.
    return rows.set_axis(y.index) if hasattr(y, "iloc") else rows


def to_array(value: Any) -> NDArray[Any]:
    """Return a tensor, array, list, Series or DataFrame as an array."""
    if isinstance(value, Tensor):
        return np.asarray(value.detach().cpu().double() if value.is_floating_point() else value.detach().cpu())
    return np.asarray(value)


def replace_values(y: Any, values: NDArray[Any]) -> Any:
    """Return numbers as a target of the type, shape and dtype of ``y``; they are rounded if ``y`` holds integers.

    >>> replace_values(torch.zeros(2, 1), np.array([[0.5], [1.5]]))
    tensor([[0.5000],
            [1.5000]])
    """
    values = values.reshape(to_array(y).shape)
    if isinstance(y, Tensor):
        return torch.as_tensor(values if y.is_floating_point() else values.round(), dtype=y.dtype, device=y.device)
    if isinstance(y, list):
        return values.tolist()
    if hasattr(y, "iloc"):
        dtypes = y.dtypes if values.ndim == 2 else y.dtype
        # Nullable dtypes of pandas have a kind, too; as an array their columns may be objects.
        is_whole = [dtype.kind in "iu" for dtype in np.atleast_1d(np.asarray(dtypes, dtype=object))]
        axes = {"index": y.index, "columns": y.columns} if values.ndim == 2 else {"index": y.index, "name": y.name}
        return type(y)(np.where(is_whole, values.round(), values), **axes).astype(dtypes)
    dtype = np.asarray(y).dtype
    return (values.round() if np.issubdtype(dtype, np.integer) else values).astype(dtype)


def data_digest(value: Any) -> str:
    """Return the hash of the contents of data: equal data have equal hashes, in any process."""
    return digest(_as_arrays(value))


def _as_arrays(value: Any) -> Any:
    """Return data as arrays, or lists of arrays, which :func:`digest` hashes by their contents.

    A DataFrame or Series does not keep its values in attributes that ``digest`` reads, and an array of objects holds
    addresses; the objects are compared by their repr.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (tuple, list)):
        return [_as_arrays(part) for part in value]
    if hasattr(value, "columns"):
        # Column names are the names of the units in the result.
        return [[str(name) for name in value.columns], _as_arrays(value.to_numpy())]
    array = np.asarray(value)
    return [array.shape, repr(array.tolist())] if array.dtype.hasobject else array
