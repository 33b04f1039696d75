"""Exceptions that a model raises when it is called, in words that name the inputs, the layer and the way out."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain.data.conversion import image_conversion
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHError, GEHRuntimeError, GEHTypeError, GEHValueError
from geh_explain.model.layers import LayerRef
from geh_explain.units.unit_lookup import list_names

#: What a model raises for inputs that it was not made for; exceptions of other types are its own business.
CALL_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, AttributeError, AssertionError)


def call_error(error: Exception, model: nn.Module, rows: Rows) -> Exception:
    """Return the error to raise instead of ``error``, which the model raised for ``rows``.

    It is also a ``TypeError`` or ``ValueError`` if ``error`` is one, else a ``RuntimeError``. Errors of the package,
    and errors for lack of memory, are returned as they are.
    """
    if isinstance(error, (GEHError, torch.OutOfMemoryError)) or "allocate memory" in str(error):
        return error
    # Torch's message for batch statistics of a single row.
    if "more than 1 value per channel" in str(error):
        return GEHRuntimeError(
            "model: it mixes rows: a batch normalisation computes over the batch. Put the networks inside a callable "
            "into eval mode, and give BatchNorm running statistics."
        )
    text = _text(error)
    if type(error).__name__ == "NotFittedError":
        return GEHRuntimeError(f"model: it is not fitted; call model.fit(X, y) first. It raised: {text}")
    return _kind(error)(
        f"{rows.argument}: the model does not take {_describe(rows)}: {_failing_layer(error.__traceback__, model)}"
        f"{type(error).__name__}: {text}{'' if text.endswith('.') else '.'} {_way_out(text, model, rows)}"
    )


def output_error(error: Exception, raw: Any) -> Exception:
    """Return the error to raise instead of ``error``, which a callable ``output`` raised for what the model returned.

    Its type is chosen as by :func:`call_error`.
    """
    if isinstance(error, GEHError):
        return error
    given = f"a {type(raw).__name__}"
    given += f" of shape {tuple(raw.shape)}" if isinstance(raw, Tensor) else ""
    given += f" with the keys {list(raw)}" if isinstance(raw, Mapping) else ""
    return _kind(error)(
        f"output=...: the callable raised {type(error).__name__}: {_text(error)}. It was given what the model "
        f"returned, {given}, and must return a tensor with one row per row."
    )


def _kind(error: Exception) -> type[GEHError]:
    """Return the error of the package that is of the same builtin type as ``error``, else GEHRuntimeError."""
    kinds: dict[type[Exception], type[GEHError]] = {TypeError: GEHTypeError, ValueError: GEHValueError}
    return next((kind for builtin, kind in kinds.items() if isinstance(error, builtin)), GEHRuntimeError)


def _text(error: Exception) -> str:
    """Return the line of a message that says what went wrong: the first one, or the last one of TorchScript."""
    lines = str(error).strip().splitlines() or ["no message"]
    return lines[-1].removeprefix("RuntimeError: ") if "TorchScript" in lines[0] else lines[0]


def _describe(rows: Rows) -> str:
    """Return shape, precision and device of the inputs of one row."""
    if rows.frame is not None:
        return f"a data frame with the columns {list_names(list(rows.frame.columns))}"
    tensors = [f"rows of shape {tuple(x.shape[1:])} ({x.dtype}, {x.device})" for x in rows.inputs]
    return tensors[0] if len(tensors) == 1 else f"{len(tensors)} tensors, {', '.join(tensors)}"


def _failing_layer(traceback: TracebackType | None, model: nn.Module) -> str:
    """Return "layer 'fc' (Linear(...)) raised " for the innermost module without submodules in a traceback, if any."""
    names = {module: name for name, module in model.named_modules()}
    found = ""
    while traceback is not None:
        module = traceback.tb_frame.f_locals.get("self")
        if isinstance(module, nn.Module) and next(module.children(), None) is None and names.get(module) != "":
            layer = f"layer {names[module]!r} ({module})" if module in names else f"{module}"
            found = f"{layer} raised "
        traceback = traceback.tb_next
    return found


def _way_out(text: str, model: nn.Module, rows: Rows) -> str:
    """Return what to do about a message of Python or torch."""
    if any(x.dtype == torch.uint8 and x.ndim > 2 for x in rows.inputs):
        conversion = image_conversion(rows.inputs[0])
        return conversion[0].upper() + conversion[1:]
    if "unexpected keyword argument" in text:
        return "Dicts of inputs and of additional_forward_args are passed by name: use the names of model.forward."
    if "missing" in text and "required" in text:
        return "Pass further arguments of model.forward with additional_forward_args=."
    if "positional argument" in text and len(rows.inputs) > 1:
        return (
            "A tuple of inputs is passed as separate arguments, as in Captum; for a model that takes one tuple, pass "
            "lambda *tensors: model(tensors), or a module whose forward(self, *tensors) does this."
        )
    if "positional argument" in text:
        return "additional_forward_args= are passed after the inputs: give as many as model.forward takes."
    if rows.frame is not None and "unknown categor" in text:
        return (
            "A column of whole numbers that the model takes for categories was moved to another one; let it jump "
            "between its values, engine=Difference(discrete=[...])."
        )
    if rows.frame is not None:
        return "A callable that is given a data frame is called with one of the same columns and dtypes."
    if "dtype" in text and next(model.parameters(), None) is None:
        return "A plain callable gets the inputs in their own precision: convert them first (inputs.float())."
    if "does not require grad" in text:
        return "It takes gradients in its forward pass: let it do so inside of `with torch.enable_grad():`."
    if rows.additional_forward_args:
        return (
            f"Pass {rows.argument} and additional_forward_args with which the model runs; arguments with one entry per "
            "row must have as many entries as there are rows."
        )
    return "Give rows of the shape and type on which the model was trained."


def not_reached(model: nn.Module, layer_ref: LayerRef, calls: int) -> str:
    """Return the error message for a layer that was called ``calls`` times, fewer than required."""
    if calls:
        return (
            f"layer={layer_ref.name!r}, call={layer_ref.call}: it is called {calls} time(s) in a forward; take 0 "
            f"to {calls - 1}."
        )
    parent = layer_ref.name.rpartition(".")[0]
    if parent and isinstance(model.get_submodule(parent), nn.MultiheadAttention):
        return (
            f"layer={layer_ref.name!r} was never reached: nn.MultiheadAttention uses its weights without calling it; "
            f"take layer={parent!r}, whose output is the same."
        )
    return (
        f"layer={layer_ref.name!r} was never reached in the model's forward; choose a layer that these inputs pass "
        "through (auxiliary heads and unused modules are skipped in eval mode)."
    )
