"""Validation of the names of units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from geh_explain.errors import GEHTypeError, GEHValueError

#: How many of the wrong names an error message lists.
_MAX_LISTED = 5


def check_unit_names(names: Any, n_units: int, place: str) -> list[str]:
    """Return ``names`` as a list of distinct strings, one per unit.

    Parameters
    ----------
    names
        An iterable with one entry per unit; entries are converted by ``str``.
    n_units
        Number of units D.
    place
        Position of the units for error messages, such as ``"layer 'conv2'"``.

    Raises
    ------
    GEHTypeError
        If ``names`` is a string, or cannot be iterated over.
    GEHValueError
        If there are too few or too many names, if two are equal, or if one cannot be encoded as text, as result files
        store names in UTF-8.

    Examples
    --------
    >>> check_unit_names(("age", 7), n_units=2, place="the inputs")
    ['age', '7']
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise GEHTypeError(f"names={names!r} is not a list; give one name for each of the {n_units} units.")
    texts = [str(name) for name in names]
    if len(texts) != n_units:
        raise GEHValueError(f"names has {len(texts)} entries for {n_units} units of {place}; give one for each.")
    repeated = sorted(name for name, count in Counter(texts).items() if count > 1)
    if repeated:
        raise GEHValueError(f"names: {repeated[:_MAX_LISTED]} occur twice; give each unit a name of its own.")
    broken = [name for name in texts if not _is_text(name)]
    if broken:
        raise GEHValueError(
            f"names: {broken[:_MAX_LISTED]} contain half of a surrogate pair, which cannot be written to a file; "
            "remove it."
        )
    return texts


def _is_text(name: str) -> bool:
    """Return whether a name can be encoded: a lone surrogate has no UTF-8 form."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)
