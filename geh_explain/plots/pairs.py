"""Selection of the units and pairs that a plot shows, and their labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.plots.axes import shorten_all
from geh_explain.scores.decisions import Decisions
from geh_explain.scores.pair_names import join_names
from geh_explain.scores.protocol import PairResult
from geh_explain.units.pair_set import PairSet

#: Maximum number of characters of a unit's name in the label of a pair.
_MAX_NAME = 30
#: Maximum number of characters of both names that are drawn on one line.
_MAX_LINE = 34


def strongest_units(order: Ints, pairs: PairSet, max_units: int) -> Ints:
    """Return the indices of the ``max_units`` units that have the strongest ``pairs``, in ascending order.

    ``order`` (P,) are the indices of the pairs, the strongest first. A unit is as strong as its strongest pair.

    >>> import numpy as np
    >>> strongest_units(np.array([1, 2, 0]), PairSet.all(3), max_units=2).tolist()
    [0, 2]
    """
    ends = np.stack(pairs.ends, axis=1)[order].ravel()
    by_strength, places = np.unique(ends, return_index=True)
    return np.sort(by_strength[np.argsort(places, kind="stable")][:max_units])


def describe_hidden(pairs: PairSet, shown: int) -> list[str]:
    """Return which units a plot with ``shown`` units leaves out, as notes for its title; none if it shows all.

    >>> describe_hidden(PairSet.all(5), 3), describe_hidden(PairSet.of([(0, 1)], n_units=5), 2)
    (['2 weaker units not shown'], ['3 units without computed pairs not shown'])
    """
    with_pairs = pairs.n_units if pairs.complete else len(np.unique(np.concatenate(pairs.ends)))
    notes = [f"{with_pairs - shown} weaker units not shown"] * (with_pairs > shown)
    without = pairs.n_units - with_pairs
    return notes + [f"{without} units without computed pairs not shown"] * bool(without)


def unit_sizes(result: PairResult, decisions: Decisions, main: Any) -> tuple[Floats, str]:
    """Return the size (D,) of the disc of each unit, and its meaning in words.

    The size is the main effect: ``main`` (D,) if given, else that of the result. Without main effects it is the sum of
    the unit's scores.
    """
    if main is None and not result.has_main:
        ends, scores = np.concatenate(result.pairs.ends), np.tile(np.nan_to_num(decisions.strength), 2)
        known = "" if result.pairs.complete else " of the computed pairs"
        return np.bincount(ends, scores, len(result.names)).astype(
            np.float64
        ), f"summed {decisions.strength_name}{known}"
    if main is None:
        return result.main.strength, "main effect"
    try:
        sizes = np.abs(np.asarray(main, dtype=float))
    except (TypeError, ValueError) as error:
        raise GEHTypeError(f"main={main!r} must be an array of numbers, one for each unit.") from error
    units = len(result.names)
    if sizes.shape != (units,) or not np.isfinite(sizes).all():
        raise GEHValueError(
            f"main has shape {sizes.shape}; give one finite main effect for each of the {units} units, or None."
        )
    return np.asarray(sizes), "main effect"


def pair_labels(names: list[str], pairs: PairSet, chosen: Ints) -> list[str]:
    """Return the labels of the ``chosen`` ones of the ``pairs`` of units with these ``names``; no two are the same."""
    first, second = (ends[chosen] for ends in pairs.ends)
    shown = sorted({*first.tolist(), *second.tolist()})
    short = dict(zip(shown, shorten_all([names[unit] for unit in shown], _MAX_NAME), strict=True))
    return [_join(short[i], short[j]) for i, j in zip(first, second, strict=True)]


def pair_label(first: str, second: str) -> str:
    """Return the label of a pair, on two lines if it is long.

    >>> pair_label("age", "income")
    'age × income'
    """
    return _join(*shorten_all([first, second], _MAX_NAME))


def _join(first: str, second: str) -> str:
    return join_names(first, second, " " if len(first) + len(second) <= _MAX_LINE else "\n")
