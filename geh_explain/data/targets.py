"""TODO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain.errors import GEHTypeError, GEHValueError

Target = int | tuple[int, ...] | Tensor | Sequence[int] | Sequence[tuple[int, ...]] | None


def select(value: Tensor, target: Target) -> Tensor:
    """Pick one number per row from ``value`` (rows, ...), by Captum's rules for ``target``."""
    rows = value.shape[0]
    if target is None and value.shape[1:].numel() == 1:
        return value.reshape(rows)
    value = value[:, None] if value.ndim == 1 else value
    shape = tuple(value.shape[1:])
    if target is None:
        last = ", ".join(str(size - 1) for size in shape)
        raise GEHValueError(
            f"target=None, but the model has {value.shape[1:].numel()} outputs per row (shape {shape}); "
            f"say which one to explain, target=0 to {last if len(shape) == 1 else f'({last})'}."
        )
    index = _index(target, rows)
    if index.shape[1] != len(shape):
        raise GEHValueError(
            f"target={_show(target)} has {index.shape[1]} number(s) per row, but one row of the output has shape "
            f"{shape}; give {len(shape)} number(s)."
        )
    sizes = torch.tensor(shape)
    if bool(((index < -sizes) | (index >= sizes)).any()):
        raise GEHValueError(
            f"target={_show(target)} is out of range: one row of the output has shape {shape}, so the largest "
            f"target is {tuple(s - 1 for s in shape) if len(shape) > 1 else shape[0] - 1}"
            + (", or None for the only output." if shape == (1,) else ".")
        )
    columns = [column.expand(rows).to(value.device) for column in index.T]
    return value[(torch.arange(rows, device=value.device), *columns)]


def _index(target: Any, rows: int) -> Tensor:
    """Return ``target`` as whole numbers of shape (1 or rows, output dimensions)."""
    if isinstance(target, bool):
        raise GEHTypeError(f"target={target!r}: give the number of the output to explain.")
    if isinstance(target, (int, np.integer)):
        return torch.tensor([[int(target)]])
    if isinstance(target, tuple):
        return _whole(target).reshape(1, -1)
    if isinstance(target, (Tensor, np.ndarray, list)):
        index = _whole(target)
        if index.numel() == 1 and index.ndim <= 1:
            return index.reshape(1, 1)
        if index.ndim in (1, 2) and len(index) == rows:
            return index.reshape(rows, -1)
        raise GEHValueError(
            f"target has shape {tuple(index.shape)} for {rows} rows; give one number, one tuple, or one per row."
        )
    raise GEHTypeError(f"target={target!r} is a {type(target).__name__}; give an int, a tuple, or one per row.")


def check_target(target: Target, rows: int) -> None:
    """Refuse a ``target`` that cannot belong to ``rows`` rows, whatever the outputs."""
    if target is not None:
        _index(target, rows)


def _whole(target: Any) -> Tensor:
    try:
        index = torch.as_tensor(target.copy() if isinstance(target, np.ndarray) else target).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        kind = GEHValueError if "expected sequence" in str(error) else GEHTypeError
        raise kind(f"target={_show(target)}: give whole numbers, one or one tuple for all, or one per row.") from error
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise GEHTypeError(f"target={_show(target)} has dtype {index.dtype}; targets are whole numbers.")
    return index.long()


def _show(target: Any) -> str:
    text = repr(target).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."
