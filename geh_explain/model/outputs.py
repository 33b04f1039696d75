"""``output``: from whatever the model returns to a tensor with one row per row of the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError
from geh_explain.model.call_errors import CALL_ERRORS, output_error

Output = str | Callable[[Any], Tensor]


def check_output(output: Output) -> None:
    """Raise if ``output`` is neither a string nor a callable; a key can be checked only when the model returns."""
    if not callable(output) and not isinstance(output, str):
        raise GEHTypeError(
            f"output={output!r} is unknown; use 'raw', 'probability' (sigmoid for one column, softmax for more), the "
            "key of a tensor in what the model returns, or a callable that takes that and returns a tensor."
        )


def read_output(raw: Any, output: Output, rows: int) -> Tensor:
    """Return what the model returned as a floating-point tensor (rows, ...).

    Parameters
    ----------
    raw
        What the model returned. Of a mapping or object with ``logits`` these are taken.
    output
        ``"raw"``; ``"probability"`` for the sigmoid of one output per row, or the softmax over dimension 1 of several,
        in double precision; a key or attribute of ``raw``; or a callable that turns ``raw`` into a tensor.
    rows
        Number of rows of the batch.

    Raises
    ------
    GEHTypeError
        If the result is not a tensor, or not of floating point.
    GEHValueError
        If ``raw`` does not have the key.
    GEHRuntimeError
        If the first dimension is not the rows of the batch.

    Examples
    --------
    >>> read_output({"logits": torch.zeros(3, 2), "loss": 0.1}, "probability", rows=3)[0]
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    if callable(output):
        value = _apply(output, raw)
    else:
        value = _pick(raw, None if output in ("raw", "probability") else output)
    if not isinstance(value, Tensor) and hasattr(value, "to_numpy"):  # a column or table of pandas
        value = value.to_numpy()
    # Black boxes often compute in NumPy; the copy allows arrays that are read-only.
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiubc":
        value = torch.as_tensor(value.copy())
    if isinstance(value, (float, np.floating)):
        value = torch.as_tensor(float(value))
    if not isinstance(value, Tensor):
        source = "output=... returned" if callable(output) else "the model returned"
        raise GEHTypeError(
            f"{source} a {type(value).__name__}, not a tensor; pass output=callable that picks the tensor, "
            f"for instance {_suggest_callable(value)}."
        )
    if value.is_complex():
        raise GEHTypeError(
            f"the model's output is {value.dtype}; choose a real number, for instance output=torch.abs or "
            "output=torch.real."
        )
    if not value.is_floating_point():
        raise GEHTypeError(
            f"the model's output is {value.dtype}, which has no derivatives; explain the scores before they are "
            "rounded or compared (for instance the logits, or predict_proba of a classifier)."
        )
    if value.layout != torch.strided:
        raise GEHTypeError(f"the model's output is sparse ({value.layout}); pass output=lambda out: out.to_dense().")
    # Models that squeeze return a scalar for a batch of one row.
    if value.ndim == 0 and rows == 1:
        value = value.reshape(1)
    if value.ndim == 0 or value.shape[0] != rows:
        raise GEHRuntimeError(
            f"the model's output has shape {tuple(value.shape)} for {rows} rows; its first dimension must be the "
            "rows of the batch. Use output=callable to reshape it, and no mean or sum over the batch."
        )
    if output == "probability":
        # Single precision holds no digits of 1 - p at a confident prediction, and so none of the derivatives p (1 - p)
        # and p (1 - p) (1 - 2 p). Devices of type "mps" have no double precision.
        value = value if value.device.type == "mps" else value.double()
        return value.sigmoid() if value.shape[1:].numel() == 1 else value.softmax(dim=1)
    return value


def _apply(output: Callable[[Any], Tensor], raw: Any) -> Any:
    """Return what the callable ``output`` makes of ``raw``, what the model returned."""
    try:
        return output(raw)
    except (*CALL_ERRORS, KeyError) as error:
        in_words = error if isinstance(error, KeyError) and not isinstance(raw, Mapping) else output_error(error, raw)
        if in_words is error:
            raise
        raise in_words from error


def _pick(raw: Any, key: str | None) -> Any:
    """Return the entry or attribute ``key`` of ``raw``; without a key its ``logits`` if there are any, else ``raw``."""
    name = "logits" if key is None else key
    if isinstance(raw, Mapping) and name in raw:
        return raw[name]
    if not isinstance(raw, (Tensor, Mapping)) and hasattr(raw, name):
        return getattr(raw, name)
    if key is None:
        return raw
    names = list(raw) if isinstance(raw, Mapping) else [name for name in getattr(raw, "__dict__", {}) if name[0] != "_"]
    raise GEHValueError(
        f"output={key!r} is neither 'raw' nor 'probability', and the model returned a {type(raw).__name__} "
        + (f"with {names}." if names else "without entries of that name.")
        + " Use one of these, or a callable that takes what the model returns."
    )


def _suggest_callable(value: Any) -> str:
    """Return code for ``output=`` that picks the first entry of ``value``, for messages."""
    if isinstance(value, dict):
        return f"lambda out: out[{next(iter(value), 'key')!r}] (keys: {list(value)})"
    if isinstance(value, (tuple, list)) and value and all(isinstance(entry, (int, float)) for entry in value):
        return f"output=numpy.asarray, which makes an array of its {len(value)} numbers"
    if isinstance(value, (tuple, list)):
        return f"lambda out: out[0] (it has {len(value)} entries)"
    fields = [name for name in vars(value) if not name.startswith("_")] if hasattr(value, "__dict__") else []
    return f"lambda out: out.{fields[0]} (fields: {fields})" if fields else "lambda out: out.logits"
