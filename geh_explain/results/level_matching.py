"""Differences between levels that two results have in common, and the differences of pairs that they make up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.errors import GEHValueError
from geh_explain.results.comparability import CommonPairs, list_names
from geh_explain.scores.protocol import PairResult
from geh_explain.statistics.p_values import simes
from geh_explain.units.contrasts import Contrasts, Levels

#: Shares of levels that differ by less are equal.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class CommonContrasts:
    """The Q contrasts of the pairs that two results have in common.

    Attributes
    ----------
    contrasts
        The contrasts of the common pairs. Levels weigh the mean of their shares in both results.
    first, second
        Places (Q,) of the contrasts in either result.
    signs
        -1 where the second result has the two levels in the other order (Q,), else 1.
    equal_shares
        Whether levels have the same shares of the points in both results.
    """

    contrasts: Contrasts
    first: Ints
    second: Ints
    signs: Floats
    equal_shares: bool

    def p_values(self, of_contrasts: Floats) -> Floats:
        """Return the p-values (..., C) of the category pairs by Simes' rule, from those of contrasts (..., Q)."""
        parts = [np.atleast_2d(of_contrasts)[:, self.contrasts.of_pair(pair)] for pair in self.contrasts.category_pairs]
        return np.stack([simes(part.T) for part in parts], axis=-1).reshape(*of_contrasts.shape[:-1], len(parts))


def match_contrasts(a: PairResult, b: PairResult, common: CommonPairs) -> CommonContrasts | None:
    """Return the contrasts of the common pairs of two results, None if these have no categories.

    Raises
    ------
    GEHValueError
        If a category has other levels in one of the results.
    """
    if a.level_draws is None or b.level_draws is None:
        return None
    ours, theirs = a.level_draws.contrasts, b.level_draws.contrasts
    unit_of_b = [b.names.index(name) for name in a.names]
    levels, equal = {}, True
    used = set(np.concatenate(common.pairs.ends).tolist())
    for unit, of_unit in ours.levels.items():
        if unit not in used:
            continue
        other = theirs.levels[unit_of_b[unit]]
        _check_levels(a.names[unit], of_unit, other)
        shares = other.shares[_order_in(other, of_unit)]
        equal &= bool(np.abs(shares - of_unit.shares).max() < _ROUNDING)
        levels[unit] = Levels(of_unit.names, (of_unit.shares + shares) / 2)
    if not levels:
        return None
    contrasts = Contrasts(common.pairs, levels)
    first, second, signs = [], [], []
    for pair in contrasts.category_pairs:
        places, sign = _places_in_other(contrasts, int(pair), theirs, unit_of_b)
        first.append(np.arange(len(places)) + ours.of_pair(int(common.first[pair])).start)
        second.append(places + theirs.of_pair(int(common.second[pair])).start)
        signs.append(sign)
    return CommonContrasts(contrasts, np.concatenate(first), np.concatenate(second), np.concatenate(signs), equal)


def _check_levels(category: str, ours: Levels, theirs: Levels) -> None:
    """Raise unless a category has the same levels in both results."""
    here, there = (
        [name for name in one.names if name not in other.names] for one, other in ((ours, theirs), (theirs, ours))
    )
    if here or there:
        raise GEHValueError(
            f"other: the levels of category {category!r} differ, so that its scores are over other differences: only "
            f"this result has {list_names(here)}, only the other one {list_names(there)}. Explain both at points that "
            "have the same levels; Categorical(..., max_levels=None) keeps rare ones."
        )


def _order_in(levels: Levels, wanted: Levels) -> Ints:
    """Return the places in ``levels`` of the names of ``wanted``, which are the same in any order."""
    place = {name: index for index, name in enumerate(levels.names)}
    return np.array([place[name] for name in wanted.names])


def _places_in_other(
    contrasts: Contrasts, pair: int, other: Contrasts, unit_of_other: list[int]
) -> tuple[Ints, Floats]:
    """Return which of the other result's contrasts of a pair are those of ``contrasts`` (q,), and their signs (q,)."""
    units = [int(ends[pair]) for ends in contrasts.pairs.ends]
    ends, places, counts = contrasts.level_ends(pair), [], []
    signs = np.ones(contrasts.of_pair(pair).stop - contrasts.of_pair(pair).start)
    for unit, of_unit in zip(units, ends, strict=True):
        if of_unit is None:
            places.append(np.zeros(len(signs), dtype=np.int64))
            counts.append(1)
            continue
        theirs = other.levels[unit_of_other[unit]]
        order = _order_in(theirs, contrasts.levels[unit])
        low, high = order[of_unit[0]], order[of_unit[1]]
        signs = np.where(low > high, -signs, signs)
        number = np.zeros((len(theirs), len(theirs)), dtype=np.int64)
        number[theirs.ends] = np.arange(len(theirs.weights))
        places.append(number[np.minimum(low, high), np.maximum(low, high)])
        counts.append(len(theirs.weights))
    if unit_of_other[units[0]] > unit_of_other[units[1]]:
        # The other result has the two units in the other order.
        places, counts = places[::-1], counts[::-1]
    return places[0] * counts[1] + places[1], signs
