"""The rules of Captum for ``target``: which of the model's outputs is explained at each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain.data.conversion import check_unmasked
from geh_explain.errors import GEHTypeError, GEHValueError

#: An index of an output, a tuple of indices, or one of these per row; labels of classes where the model has labels.
Target = int | str | tuple[int, ...] | Tensor | Sequence[int] | Sequence[str] | Sequence[tuple[int, ...]] | None
#: A target without labels of classes.
NumberedTarget = int | tuple[int, ...] | Tensor | Sequence[int] | Sequence[tuple[int, ...]] | None


def select(value: Tensor, target: Target) -> Tensor:
    """Return one number per row, shape (n,), from the outputs ``value`` (n, ...).

    Parameters
    ----------
    value
        Outputs of the model; the first dimension is the rows.
    target
        None if there is one output per row. An int for outputs (n, k), a tuple of ints for outputs with more
        dimensions; a tensor, array or list with one entry per row, each an int or a tuple. Negative numbers count from
        the end.

    Raises
    ------
    GEHValueError
        If the target is missing, out of range, or has another number of indices than a row of ``value`` has dimensions.
    GEHTypeError
        If it is not made of whole numbers.

    Examples
    --------
    >>> outputs = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> select(outputs, 1).tolist(), select(outputs, [0, 1]).tolist()
    ([2.0, 4.0], [1.0, 4.0])
    """
    rows = value.shape[0]
    if target is None and value.shape[1:].numel() == 1:
        return value.reshape(rows)
    value = value[:, None] if value.ndim == 1 else value
    shape = tuple(value.shape[1:])
    if target is None:
        last = ", ".join(str(size - 1) for size in shape)
        raise GEHValueError(
            f"target=None, but the model has {value.shape[1:].numel()} outputs per row (shape {shape}); "
            f"say which one to explain, target=0 to {last if len(shape) == 1 else f'({last})'}"
            + (", or target='all' in explain(...)." if len(shape) == 1 else ".")
        )
    index = _index(target, rows)
    _check_range(index, shape, target)
    columns = [column.expand(rows).to(value.device) for column in index.T]
    return value[(torch.arange(rows, device=value.device), *columns)]


def check_target(target: Target, rows: int) -> None:
    """Raise if ``target`` cannot belong to ``rows`` rows, whatever the outputs.

    This finds mistakes before the model is called, and while the number of all rows is known: a target with as many
    entries as one batch has rows would otherwise be accepted.
    """
    if target is not None:
        _index(target, rows)


def _check_range(index: Tensor, shape: tuple[int, ...], target: Any) -> None:
    """Raise if an index (1 or n, dimensions) does not fit outputs whose rows have that shape."""
    if index.shape[1] != len(shape):
        raise GEHValueError(
            f"target={_shorten(target)} has {index.shape[1]} number(s) per row, but one row of the output has shape "
            f"{shape}; give {len(shape)} number(s)."
        )
    # Checked here, as indexing out of range on a GPU fails later and without a usable message.
    sizes = torch.tensor(shape)
    if bool(((index < -sizes) | (index >= sizes)).any()):
        raise GEHValueError(
            f"target={_shorten(target)} is out of range: one row of the output has shape {shape}, so the largest "
            f"target is {tuple(s - 1 for s in shape) if len(shape) > 1 else shape[0] - 1}"
            + (", or None for the only output." if shape == (1,) else ".")
        )


def _index(target: Any, rows: int) -> Tensor:
    """Return ``target`` as a long tensor of shape (1 or n, output dimensions)."""
    # A bool is an int in Python, but most likely a mask here.
    if isinstance(target, bool):
        raise GEHTypeError(f"target={target!r}: give the number of the output to explain.")
    if isinstance(target, (int, np.integer)):
        return torch.tensor([[int(target)]])
    if isinstance(target, tuple):
        return _as_long(target).reshape(1, -1)
    if isinstance(target, (Tensor, np.ndarray, list)):
        index = _as_long(target)
        if index.numel() == 1 and index.ndim <= 1:
            return index.reshape(1, 1)
        if index.ndim in (1, 2) and len(index) == rows:
            return index.reshape(rows, -1)
        raise GEHValueError(
            f"target has shape {tuple(index.shape)} for {rows} rows; give one number, one tuple, or one per row."
        )
    raise GEHTypeError(f"target={target!r} is a {type(target).__name__}; give an int, a tuple, or one per row.")


def _as_long(target: Any) -> Tensor:
    """Return a tensor, array or sequence of whole numbers as a long tensor on the CPU."""
    check_unmasked(target, "target")
    try:
        # A copy, as torch warns about arrays that are read-only.
        index = torch.as_tensor(target.copy() if isinstance(target, np.ndarray) else target).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        # Ragged lists have numbers, only not in a rectangular shape.
        kind = GEHValueError if "expected sequence" in str(error) else GEHTypeError
        raise kind(
            f"target={_shorten(target)}: give whole numbers, one or one tuple for all, or one per row."
        ) from error
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise GEHTypeError(f"target={_shorten(target)} has dtype {index.dtype}; targets are whole numbers.")
    return index.long()


def _shorten(target: Any) -> str:
    """Return the target as one line of at most 60 characters, for messages."""
    text = repr(target).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."
