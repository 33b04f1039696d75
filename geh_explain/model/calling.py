"""One call of the model with some rows, as tensors or as a data frame."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from geh_explain.data.points import InMemoryPoints, Points
from geh_explain.data.rows import Rows
from geh_explain.model.call_errors import CALL_ERRORS, call_error
from geh_explain.model.callable_model import CallableModel
from geh_explain.model.estimators import EstimatorModel

#: Rows with which a callable is tried; one more where a table has as many columns.
_TRIED_ROWS = 2


def call_model(model: nn.Module, rows: Rows, inputs: tuple[Tensor, ...] | None = None) -> Any:
    """Return what the model returns for ``rows``, or for other ``inputs`` of theirs.

    It is called on copies: one that works in place must not change the user's data. Rows with the layout of a data
    frame are passed as a frame.
    """
    inputs = inputs or tuple(x.clone() for x in rows.inputs)
    extra = tuple(value.clone() if isinstance(value, Tensor) else value for value in rows.additional_forward_args)
    n_positional = len(extra) - len(rows.forward_args.keywords)
    keywords = dict(zip(rows.forward_args.keywords, extra[n_positional:], strict=True))
    values = inputs if rows.frame is None else (rows.frame.to_frame(inputs[0]),)
    # Inputs that came as a dict are passed by name.
    named_inputs = dict(zip(rows.input_names, values, strict=True)) if rows.input_names else {}
    positional = (*(() if rows.input_names else values), *extra[:n_positional])
    try:
        return model(*positional, **named_inputs, **keywords)
    except (*CALL_ERRORS, KeyError) as error:
        # Models look up other things than columns, too, and their names are their own business.
        is_own = isinstance(error, KeyError) and rows.frame is None
        in_words = error if is_own else call_error(error, model, rows)
        if in_words is error:
            raise
        raise in_words from error


def as_the_model_takes(model: nn.Module, points: Points) -> Points:
    """Return points that came as a data frame as the model takes them: as a frame, or as a tensor.

    Estimators get frames. A plain callable gets tensors if it computes with torch's gradients, which a frame would
    lose, or if it does not take frames. Columns of text leave no choice.
    """
    frame = points.first.frame
    if frame is None or frame.coded or isinstance(model, EstimatorModel) or not isinstance(points, InMemoryPoints):
        return points
    as_tensors = points.without_frame()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tried = slice(_TRIED_ROWS + (len(frame.dtypes) == _TRIED_ROWS))
        few = as_tensors.first[tried]
        returned = _try(model, few, tuple(x.clone().requires_grad_() for x in few.inputs))
        if _has_gradients(returned, len(few)) or not isinstance(model, CallableModel):
            return as_tensors
        of_frame = _try(model, points.first[tried])
        if not isinstance(of_frame, Exception):
            return points
        # A function that fails for both is called again, for its error: one that looks up names takes frames.
        takes_names = isinstance(of_frame.__cause__, KeyError) and isinstance(returned, Exception)
        return points if takes_names else as_tensors


def _try(model: nn.Module, rows: Rows, inputs: tuple[Tensor, ...] | None = None) -> Any:
    """Return what the model returns, or the exception that it raises."""
    try:
        return call_model(model, rows, inputs)
    except Exception as error:
        return error


def _has_gradients(returned: Any, rows: int) -> bool:
    """Return whether a tensor of ``rows`` rows, which a model returned as such or in an object, requires gradients."""
    if isinstance(returned, Tensor):
        # A function of frames that is given a tensor may take rows for columns.
        return returned.requires_grad and (returned.ndim == 0 or len(returned) == rows)
    if isinstance(returned, Mapping):
        return any(_has_gradients(value, rows) for value in returned.values())
    if isinstance(returned, (tuple, list)):
        return any(_has_gradients(value, rows) for value in returned)
    fields = getattr(returned, "__dict__", {}).values()
    return any(_has_gradients(value, rows) for value in fields if isinstance(value, Tensor))
