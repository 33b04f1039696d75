"""Arguments of the call that made a result, from its record, so that later calls need not repeat them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from geh_explain.data.conversion import is_frame
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.run.record import RunRecord


def has_target_per_row(record: RunRecord) -> bool:
    """Return whether a result was explained with one target per row; files of earlier versions show it by its length.

    >>> has_target_per_row(RunRecord(target=[0, 1, 1], points=3)), has_target_per_row(RunRecord(target=2, points=3))
    (True, False)
    """
    if record.target_per_row is not None:
        return record.target_per_row
    target = record.target
    if isinstance(target, list):
        return len(target) == record.points or not all(isinstance(entry, int) for entry in target)
    return not (target is None or isinstance(target, int))


def stored_target(record: RunRecord) -> Any:
    """Return the target of a result: None, an index or label, or a tuple.

    Raises
    ------
    GEHTypeError
        If it has one entry per row: a result does not store those.

    Examples
    --------
    >>> stored_target(RunRecord(target=[0, 2], points=100))
    (0, 2)
    """
    if has_target_per_row(record):
        raise GEHTypeError(
            "result: it was explained with one target per row, and these are not stored in a result; give target=, one "
            "entry per row of the inputs."
        )
    # A tuple is stored as a list.
    return tuple(record.target) if isinstance(record.target, list) else record.target


def stored_scale(record: RunRecord) -> Any:
    """Return the argument ``scale`` of a result.

    Raises
    ------
    GEHValueError
        If it had so many numbers that they were not stored.
    """
    if isinstance(record.scale, str) and record.scale != "std":
        raise GEHValueError(
            f"result: it has scale={record.scale!r}, whose numbers were not stored; give scale= again where the method "
            "takes it, or explain again."
        )
    return record.scale


def check_columns(columns: Sequence[str] | None, record: RunRecord) -> None:
    """Raise if inputs have other ``columns`` than those of a result, where both are known."""
    if columns and record.columns and list(columns) != record.columns:
        pairs = zip_longest(columns, record.columns, fillvalue="none")
        place, (own, other) = next((place, pair) for place, pair in enumerate(pairs) if pair[0] != pair[1])
        raise GEHValueError(
            f"inputs: column {place} is {own!r}, and {other!r} in the result; give the same columns in the same order."
        )


def columns_of(inputs: Any) -> list[str] | None:
    """Return the names of the columns of a data frame, None for other inputs."""
    return [str(name) for name in inputs.columns] if is_frame(inputs) else None
