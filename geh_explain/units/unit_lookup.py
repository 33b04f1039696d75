"""Units and columns by name or index, with suggestions for names that are misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np

from geh_explain.errors import GEHTypeError, GEHValueError

#: How many names an error message lists.
_MAX_LISTED = 8


def find_unit(unit: int | str, names: Sequence[str], argument: str = "") -> int:
    """Return the index of a unit that is given by name or index; negative indices count from the end.

    ``argument`` is the argument that holds the unit beside others, for error messages.

    >>> find_unit("b", ["a", "b", "c"]), find_unit(-1, ["a", "b", "c"])
    (1, 2)
    """
    where = f"{argument}: unit" if argument else "unit"
    if isinstance(unit, str):
        if unit in names:
            return list(names).index(unit)
        raise GEHValueError(f"{where} {unit!r} is not among the names {list_names(names)}{suggest(unit, names)}")
    if isinstance(unit, bool) or not isinstance(unit, (int, np.integer)):
        raise GEHTypeError(f"{where} {unit!r} must be a name or an index.")
    if not -len(names) <= unit < len(names):
        raise GEHValueError(f"{where} {unit} is out of range; there are {len(names)} units.")
    return int(unit) % len(names)


def list_names(names: Sequence[Any]) -> str:
    """Return the first names as a list, for error messages.

    >>> list_names(["a", "b"]), list_names(list("abcdefghij"))[-8:]
    ("['a', 'b']", "'h'] ...")
    """
    return f"{list(names[:_MAX_LISTED])}{' ...' if len(names) > _MAX_LISTED else ''}"


def suggest(name: str, names: Sequence[Any]) -> str:
    """Return the end of a sentence about an unknown ``name``: similar names as a question, else a full stop.

    >>> suggest("agee", ["age", "bmi"]), suggest("height", ["age", "bmi"])
    ("; did you mean 'age'?", '.')
    """
    close = difflib.get_close_matches(name, [str(known) for known in names], n=3)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
