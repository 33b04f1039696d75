"""Which scalar is explained: from whatever the model returns to one number per row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError

Output = str | Callable[[Any], Tensor]


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
