"""The argument ``baseline``, and the data that it and smoothing refer to."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._process import cached_property
from geh_explain.data.conversion import is_frame
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.local.text_columns import recoded, with_levels_of
from geh_explain.model.cut import Cut
from geh_explain.model.input_tensors import join_inputs
from geh_explain.run.setup import ModelSetup
from geh_explain.units.categorical import Categorical

#: Baselines of a sample at most: an account is computed for each.
_MAX_BASELINES = 1000


class SharedArguments(Points):
    """Points that are passed to the model as one row is: in its precision, with its target and further arguments.

    They must have as many input tensors as the row. ``row`` may hold several rows, the first of which counts.
    """

    def __init__(self, points: Points, row: Rows) -> None:
        self._points = points
        self._row = row
        self.columns = points.columns
        self.ordered = points.ordered

    def __len__(self) -> int:
        return len(self._points)

    def batches(self) -> Iterator[Rows]:
        for batch in self._points.batches():
            rows = recoded(batch, self._row)
            pairs = zip(rows.inputs, self._row.inputs, strict=False)
            inputs = tuple(x.to(own.dtype) if x.is_floating_point() else x for x, own in pairs)
            yield replace(rows, inputs=inputs, forward_args=self._row.forward_args.take([0] * len(rows)))

    def digest(self) -> str:
        return self._points.digest()


@dataclass(frozen=True)
class ReferenceData:
    """The rows from which the mean baseline and the sharpness of smoothing are taken.

    ``values`` are what the user passed as ``data``, or to the last ``explain()``; None if there are neither.
    ``argument`` and ``of_rows`` are the arguments by which the user passed them, and the rows that are explained.
    """

    setup: ModelSetup
    values: Any
    argument: str = "data"
    of_rows: str = "x_row"

    @cached_property
    def points(self) -> Points | None:
        """The rows, read once; None where there are none."""
        if self.values is None:
            return None
        return self.setup.read_points(self.values, None, None, None, self.argument)

    def check(self, row: Rows, columns: list[str] | None) -> None:
        """Raise if the rows have other shapes or columns than ``row``, which has these ``columns``."""
        if self.points is None:
            return
        given, expected = ([tuple(x.shape[1:]) for x in rows.inputs] for rows in (self.points.first, row))
        if len(given) != len(expected) or (given != expected and self.setup.layer_ref.module is None):
            raise GEHValueError(
                f"{self.argument}: one row has shape {_words(given)}, and one of {self.of_rows} {_words(expected)}; "
                "give the same."
            )
        check_columns(self.argument, self.points.columns, columns)

    def with_arguments_of(self, row: Rows) -> Points | None:
        """Return the points with the target and the further arguments of ``row``; None where there are none."""
        return None if self.points is None else SharedArguments(self.points, row)

    def required(self, row: Rows, reason: str) -> Points:
        """Return the points with the arguments of ``row``, or raise; ``reason`` starts the message."""
        points = self.with_arguments_of(row)
        if points is None:
            raise GEHValueError(
                f"{reason}, and there are no data: pass data=, rows like those of the training data, or call "
                "explain(...) of this explainer first, whose inputs are then used."
            )
        return points


@dataclass(frozen=True)
class Baseline:
    """Where the path to a row begins.

    Attributes
    ----------
    kind
        ``"mean"``, ``"number"`` or ``"rows"``.
    number
        The value of all units, for ``"number"``.
    points
        The rows, for ``"rows"``.
    """

    kind: str
    number: float = 0.0
    points: Points | None = None

    @property
    def description(self) -> str:
        """The baseline in words."""
        if self.kind == "mean":
            return "the mean of the data"
        if self.kind == "number":
            return "zeros" if self.number == 0 else f"{self.number:g} everywhere"
        assert self.points is not None
        return "a given row" if len(self.points) == 1 else f"a sample of {len(self.points)} rows"

    def prepared_row(self, row: Rows) -> Rows:
        """Return ``row`` with the values of columns of text that the baseline has, too."""
        return row if self.points is None else with_levels_of(row, self.points.first)

    def check_categories(self, cut: Cut, rows: Points) -> None:
        """Raise if units are categories, and the baseline or the ``rows`` to explain have no level of them.

        Categories have no mean, at most one column of a block is 1, and codes must stand for the same values.
        """
        if cut.units.has_levels and self.points is None:
            raise GEHValueError(
                f"baseline: {self.description} is no level of a category; give a row, or a sample of rows, such as "
                "baseline=frame.sample(50), over which the account is averaged."
            )
        if not isinstance(cut.units, Categorical) or self.points is None:
            return
        for argument, points in (("x_row", rows), ("baseline", self.points)):
            for part in points.split(None):
                cut.units.check_one_hot(join_inputs(part.inputs), argument)
        for column, names in self.points.code_names.items():
            if rows.first.frame is None and rows.code_names.get(column, names) != names:
                raise GEHValueError(
                    f"baseline: column {column!r} has the categories {list(names)}, and that of x_row "
                    f"{list(rows.code_names[column])}, so that their codes stand for other values; give both columns "
                    "the same categories, by frame[column].cat.set_categories([...])."
                )

    @torch.no_grad()
    def values(self, cut: Cut, row: Rows, data: ReferenceData) -> Tensor:
        """Return the flat values (R, size) of the layer at the baselines, in the current draw.

        At a hidden layer ``"mean"`` and a number are values of the layer itself; rows are inputs.
        """
        if self.kind == "number":
            return torch.full((1, math.prod(cut.shape)), self.number, device=cut.device, dtype=cut.dtype)
        if self.kind == "mean":
            points = data.required(row, "baseline='mean' is the mean of data")
            sums = torch.zeros(math.prod(cut.shape), dtype=torch.double, device=cut.device)
            for rows in points.split(None):
                sums += _layer_values(cut, rows, "data").double().sum(dim=0)
            return (sums / len(points)).to(cut.dtype)[None]
        assert self.points is not None
        points = SharedArguments(self.points, row)
        return torch.cat([_layer_values(cut, rows, "baseline") for rows in points.split(None)])


def read_baseline(baseline: Any, setup: ModelSetup, row: Rows, columns: list[str] | None) -> Baseline:
    """Return the argument ``baseline``: ``"mean"``, ``"zeros"``, a number, a row, or a sample of rows.

    Parameters
    ----------
    baseline
        What the user passed.
    setup
        Reads rows.
    row
        The row to explain, whose shapes rows must have.
    columns
        Names of the row's columns, if it has any.
    """
    if isinstance(baseline, str):
        if baseline not in ("mean", "zeros"):
            raise GEHValueError(
                f"baseline={baseline!r} is unknown; use 'mean', 'zeros', a number, a row, or a sample of rows."
            )
        return Baseline("mean") if baseline == "mean" else Baseline("number")
    if isinstance(baseline, numbers.Real) and not isinstance(baseline, bool):
        if not math.isfinite(float(baseline)):
            raise GEHValueError(f"baseline={baseline!r} must be finite.")
        return Baseline("number", float(baseline))
    if baseline is None or isinstance(baseline, bool):
        raise GEHTypeError(f"baseline={baseline!r}: use 'mean', 'zeros', a number, a row, or a sample of rows.")
    shapes = [tuple(x.shape[1:]) for x in row.inputs]
    points = setup.read_points(as_rows(baseline, shapes), None, None, None, "baseline")
    given = [tuple(x.shape[1:]) for x in points.first.inputs]
    if len(given) != len(shapes) or (given != shapes and setup.layer_ref.module is None):
        raise GEHValueError(
            f"baseline: one row of it has shape {_words(given)}, and x_row has {_words(shapes)}; give rows of the same "
            "shape, or 'mean', 'zeros' or a number."
        )
    check_columns("baseline", points.columns, columns)
    if len(points) > _MAX_BASELINES:
        raise GEHValueError(
            f"baseline: {len(points)} rows are too many, as an account is computed for each; sample at most "
            f"{_MAX_BASELINES} of them, or use baseline='mean' with data=."
        )
    return Baseline("rows", points=points)


def as_rows(value: Any, shapes: list[tuple[int, ...]] | None) -> Any:
    """Return a row without a batch dimension as a batch of one row; anything else as it is.

    Arrays of one dimension are one row, and so are those that have the shape of a row; where rows are single numbers,
    such as ids, they are rows. A pandas Series is one row, whose index are the columns.

    Parameters
    ----------
    value
        Rows of any kind that a reader takes, or a single row.
    shapes
        Shape of a row of each input tensor; None if it is not known.
    """
    if isinstance(value, Mapping):
        parts = as_rows(tuple(value.values()), shapes)
        return dict(zip(value, parts, strict=True))
    if isinstance(value, tuple):
        known: list[tuple[int, ...] | None] = [None] * len(value)
        if shapes is not None and len(shapes) == len(value):
            known = list(shapes)
        elif any(getattr(part, "ndim", 0) > 1 for part in value):
            # Beside a batch, an array of one dimension has one number per row, such as an id.
            known = [() if getattr(part, "ndim", 0) == 1 else None for part in value]
        return tuple(
            as_rows(part, None if shape is None else [shape]) for part, shape in zip(value, known, strict=True)
        )
    if _is_series(value):
        import pandas as pd

        return pd.DataFrame([value.to_numpy()], columns=value.index).infer_objects()
    if isinstance(value, (Tensor, np.ndarray)):
        shape = shapes[0] if shapes is not None and len(shapes) == 1 else None
        single = value.ndim <= 1 if shape != () else value.ndim == 0
        return value[None] if single or tuple(value.shape) == shape else value
    return value


def in_order_of(x_row: Any, value: Any, argument: str) -> Any:
    """Return a dict of inputs in the order of the dict ``x_row``, which has the same keys; anything else as it is."""
    if not isinstance(x_row, Mapping) or not isinstance(value, Mapping):
        return value
    if value.keys() != x_row.keys():
        raise GEHValueError(
            f"{argument}: its inputs are {list(value)}, and those of x_row {list(x_row)}; give the same."
        )
    return {name: value[name] for name in x_row}


def row_shapes(data: Any) -> list[tuple[int, ...]] | None:
    """Return the shape of one row of each tensor of ``data``, without reading it; None where that is not possible."""
    if isinstance(data, Mapping):
        data = tuple(data.values())
    parts = data if isinstance(data, tuple) else (data,)
    if not parts or not all(hasattr(part, "shape") and len(part.shape) for part in parts):
        return None
    return [tuple(part.shape[1:]) for part in parts]


def columns_of(data: Any) -> list[str] | None:
    """Return the names of the columns of a data frame; None for anything else."""
    return [str(name) for name in data.columns] if is_frame(data) else None


def check_columns(argument: str, given: list[str] | None, expected: list[str] | None) -> None:
    """Raise if two data frames have other columns, or the same in another order."""
    if given is None or expected is None or given == expected:
        return
    raise GEHValueError(
        f"{argument}: the columns are {given[:6]}, and those of x_row {expected[:6]}; give the same columns in the "
        "same order."
    )


def _layer_values(cut: Cut, rows: Rows, argument: str) -> Tensor:
    """Return the flat values (n, size) of the layer, whose shape must be that of the row."""
    activations = cut.activations(rows)
    if tuple(activations.shape[1:]) != cut.shape:
        raise GEHValueError(
            f"{argument}: one row has shape {tuple(activations.shape[1:])} at {cut.place}, and x_row has {cut.shape}; "
            "give rows of the same shape."
        )
    return activations.flatten(1)


def _is_series(value: Any) -> bool:
    return hasattr(value, "index") and hasattr(value, "to_numpy") and not hasattr(value, "columns")


def _words(shapes: list[tuple[int, ...]]) -> str:
    return str(shapes[0]) if len(shapes) == 1 else str(shapes)
