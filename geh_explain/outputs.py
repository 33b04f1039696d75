"""Which scalar is explained: from whatever the model returns to one number per row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError

Output = str | Callable[[Any], Tensor]
Target = int | tuple[int, ...] | Tensor | Sequence[int] | Sequence[tuple[int, ...]] | None


def check_output(output: Output) -> None:
    """Refuse an ``output`` that is neither a known word nor a callable."""
    if not callable(output) and not isinstance(output, str):
        raise GEHTypeError(
            f"output={output!r} is unknown; use 'raw', 'probability' (sigmoid for one column, softmax for more), the "
            "key of a tensor in what the model returns, or a callable that takes that and returns a tensor."
        )


def read(raw: Any, output: Output, rows: int) -> Tensor:
    """Turn what the model returned into a tensor (rows, ...), as ``output`` asks."""
    value = output(raw) if callable(output) else _pick(raw, None if output in ("raw", "probability") else output)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        value = torch.as_tensor(value.copy())
    if not isinstance(value, Tensor):
        by = "output=... returned" if callable(output) else "the model returned"
        raise GEHTypeError(
            f"{by} a {type(value).__name__}, not a tensor; pass output=callable that picks the tensor, "
            f"for instance {_hint(value)}."
        )
    if not value.is_floating_point():
        raise GEHTypeError(
            f"the model's output is {value.dtype}, which has no derivatives; explain the scores before they are "
            "rounded or compared (for instance the logits)."
        )
    if value.ndim == 0 and rows == 1:
        value = value.reshape(1)
    if value.ndim == 0 or value.shape[0] != rows:
        raise GEHRuntimeError(
            f"the model's output has shape {tuple(value.shape)} for {rows} rows; its first dimension must be the "
            "rows of the batch. Use output=callable to reshape it, and no mean or sum over the batch."
        )
    if output == "probability":
        return value.sigmoid() if value.shape[1:].numel() == 1 else value.softmax(dim=1)
    return value


def _pick(raw: Any, key: str | None) -> Any:
    """Return the tensor ``key`` of what the model returned; without a key the logits of a result that has them."""
    wanted = "logits" if key is None else key
    if isinstance(raw, Mapping) and wanted in raw:
        return raw[wanted]
    if not isinstance(raw, (Tensor, Mapping)) and hasattr(raw, wanted):
        return getattr(raw, wanted)
    if key is None:
        return raw
    known = list(raw) if isinstance(raw, Mapping) else [name for name in getattr(raw, "__dict__", {}) if name[0] != "_"]
    raise GEHValueError(
        f"output={key!r} is neither 'raw' nor 'probability', and the model returned a {type(raw).__name__} "
        + (f"with {known}." if known else "without entries of that name.")
        + " Use one of these, or a callable that takes what the model returns."
    )


def _hint(value: Any) -> str:
    if isinstance(value, dict):
        return f"lambda out: out[{next(iter(value), 'key')!r}] (keys: {list(value)})"
    if isinstance(value, (tuple, list)):
        return f"lambda out: out[0] (it has {len(value)} entries)"
    fields = [name for name in vars(value) if not name.startswith("_")] if hasattr(value, "__dict__") else []
    return f"lambda out: out.{fields[0]} (fields: {fields})" if fields else "lambda out: out.logits"


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
