"""The parts of a saved result that are about differences between levels of categories.

``about["categories"]``
    For each category ``unit`` (its index), ``levels`` (names) and ``shares`` (of the points).
``level_signed``, ``level_absolute``, ``level_point_errors``, ...
    The arrays of :class:`~geh_explain.scores.draws.LevelDraws`: those of a result, with the Q differences in place of
    the P pairs. Results with categories have format 4, which versions without categories refuse.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from geh_explain.scores.draws import LevelDraws
from geh_explain.units.contrasts import Contrasts, Levels
from geh_explain.units.pair_set import PairSet

#: Before the names of arrays.
PREFIX = "level_"
#: Arrays of a file that have the differences as their last dimension, without the prefix.
_OVER_CONTRASTS = ("signed", "absolute", "point_errors", "weight_moments", "signed_mean", "geh_mean")
#: Largest error of shares that sum to 1.
_ROUNDING = 1e-6


def levels_to_json(levels: LevelDraws | None) -> list[dict[str, Any]] | None:
    """Return the categories of a result as values that JSON can hold, None without categories."""
    if levels is None:
        return None
    return [
        {"unit": unit, "levels": list(of_unit.names), "shares": of_unit.shares.tolist()}
        for unit, of_unit in levels.contrasts.levels.items()
    ]


def parse_contrasts(categories: Any, pairs: PairSet, arrays: dict[str, Any]) -> Contrasts | None:
    """Return the differences between levels that a file describes, None without categories.

    ``arrays`` are those of the differences, by name; their number is known from them.

    Raises
    ------
    ValueError
        If the categories are malformed, are not among the units, or do not have as many differences as the arrays.
    """
    if categories is None:
        return None
    if not isinstance(categories, list) or not categories or not all(isinstance(entry, dict) for entry in categories):
        raise ValueError("its categories are malformed")
    levels: dict[int, Levels] = {}
    for entry in categories:
        unit, names, shares = entry.get("unit"), entry.get("levels"), entry.get("shares")
        if type(unit) is not int or not 0 <= unit < pairs.n_units or unit in levels:
            raise ValueError("its categories are not among its units")
        levels[unit] = _parse_levels(names, shares)
    if sorted(levels) != list(range(len(levels))):
        raise ValueError("its categories are not its first units")
    # Before they are made: a forged file may ask for any number of them.
    counts = np.array([math.comb(len(levels[unit]), 2) if unit in levels else 1 for unit in range(pairs.n_units)])
    has_category = np.minimum(*pairs.ends) < len(levels)
    expected = sum(int(counts[i]) * int(counts[j]) for i, j in zip(*(e[has_category] for e in pairs.ends), strict=True))
    if not arrays or any(array.shape[-1:] != (expected,) for name, array in arrays.items() if name in _OVER_CONTRASTS):
        raise ValueError("its differences between levels do not fit its categories")
    return Contrasts(pairs, levels)


def _parse_levels(names: Any, shares: Any) -> Levels:
    """Return the levels of a category, after checking types and ranges."""
    if not isinstance(names, list) or not isinstance(shares, list) or len(names) != len(shares) or len(names) < 2:
        raise ValueError("its levels are malformed")
    if not all(isinstance(name, str) for name in names) or not all(type(share) is float for share in shares):
        raise ValueError("its levels are malformed")
    "".join(names).encode()  # raises if there is half of a surrogate pair
    values = np.array(shares)
    if not (values > 0).all() or not values.sum() <= 1 + _ROUNDING:
        raise ValueError("its shares of levels are impossible")
    return Levels(tuple(names), values)
