"""Groups of points in words: one or two rules over the columns of a table.

A rule compares one column with one number or level, such as ``hour < 7`` or ``city = Oslo``. For each group the search
finds the rule, or the two rules joined by "and", whose points R agree best with the points G of the group, by the
Jaccard index ::

    agreement = |R and G| / |R or G|.

It is 1 if the rules hold for the points of the group and for no other ones. If it is below 0.6, or hardly above the
agreement with all points, which is the share of the group, the group is described by its means instead
(``centres.py``). Points of a sample count as many times as there are points of their group for each one in the sample.

The first rule is searched among all thresholds of all columns; the best ones of each column are tried with each second
rule; then either rule is searched again, given the other one, until the agreement stays the same. Thresholds are
rounded to the fewest digits that leave it nearly as it is; an agreement of 1 stays 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from geh_explain._process import cached_property
from geh_explain._types import Floats, Ints
from geh_explain.groups.centres import PREFIX, Indicator, describe_centre
from geh_explain.groups.thresholds import between, number_text, round_numbers

#: Groups whose rules agree less than this are not described by rules.
MIN_AGREEMENT = 0.6
#: All points agree with a group by its share of them. Of what is missing to 1, rules must add this part.
_MIN_INFORMATION = 1 / 3
#: What a group is called that has neither rules nor means of its own, and a single group.
NO_DESCRIPTION = "no short description"
ALL_POINTS = "all points"

#: A second rule must raise the agreement by this much.
_MIN_GAIN = 0.05
#: Rounding of thresholds may lower the agreement by this part of what is missing to 1.
_MAX_LOSS = 0.05
#: Columns with at most this many different values have rules of the form "column = value".
_MAX_LEVELS = 12
#: Columns of codes have such rules for this many of their most frequent levels.
_MAX_NAMED_LEVELS = 50
#: Number of first rules that are tried with each second one, and of further searches of either rule.
_BEAM = 6
_ROUNDS = 4

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Description:
    """A group of points in words.

    Attributes
    ----------
    text
        One or two rules; means, beginning with ``"on average"``; ``"all points"``; or ``"no short description"``.
    agreement
        Jaccard index of the points for which the rules hold and the points of the group, from 0 to 1; of the best rules
        also where they are not the description.

    Examples
    --------
    >>> str(Description("hour < 7 and workingday = 1", 0.94)), str(Description("no short description", 0.4))
    ('hour < 7 and workingday = 1 (94 %)', 'no short description')
    """

    text: str
    agreement: float

    @property
    def is_rule(self) -> bool:
        """Whether the text consists of rules."""
        return self.text not in (NO_DESCRIPTION, ALL_POINTS) and not self.text.startswith(PREFIX)

    def __str__(self) -> str:
        # Rounded down, so that only groups without any other point are 100 %.
        return f"{self.text} ({math.floor(100 * self.agreement + 1e-9)} %)" if self.is_rule else self.text


@dataclass(frozen=True)
class CodeNames:
    """Names of the codes 0, 1, ... of a column, and whether their order has a meaning, as that of dates has."""

    names: tuple[str, ...]
    ordered: bool = False


@dataclass(frozen=True)
class _Rule:
    """A rule about one column: ``sign`` is "<", ">=" or "=", ``value`` a threshold or a level."""

    column: int
    sign: str
    value: float

    def holds(self, values: Floats) -> Mask:
        """Return for which rows (n,) of ``values`` (n, c) the rule holds."""
        column = values[:, self.column]
        if self.sign == "=":
            return np.asarray(column == self.value)
        return np.asarray(column < self.value if self.sign == "<" else column >= self.value)


@dataclass(frozen=True)
class _Candidate:
    """Rules with their agreement; no rule is the best beginning of all."""

    agreement: float
    rules: tuple[_Rule, ...]


def describe_groups(
    values: Floats,
    labels: Ints,
    columns: Sequence[str],
    n_groups: int,
    weights: Floats | None = None,
    codes: Mapping[int, CodeNames] | None = None,
) -> list[Description]:
    """Return a description of each of ``n_groups`` groups of rows of a table.

    Parameters
    ----------
    values
        The rows (n, c), all or a sample of them; columns with values that are not finite are not used.
    labels
        Group of each row (n,).
    columns
        Names of the columns (c).
    n_groups
        Number of groups M; groups without rows have no description.
    weights
        How many points each row (n,) stands for; None for one.
    codes
        Columns of codes, by index: text, categories, dates.

    Examples
    --------
    >>> import numpy as np
    >>> hour, workingday = np.arange(48.0) % 24, np.arange(48.0) // 24
    >>> labels = np.where((hour < 7) & (workingday == 1), 1, 0)
    >>> groups = describe_groups(np.stack([hour, workingday], axis=1), labels, ["hour", "workingday"], 2)
    >>> str(groups[1])
    'hour < 7 and workingday = 1 (100 %)'
    """
    if n_groups == 1:
        return [Description(ALL_POINTS, 1.0)]
    names = [" ".join(str(name).split()).encode("utf-8", "replace").decode() for name in columns]
    weights = np.ones(len(values)) if weights is None else weights
    table = _Table(np.asarray(values, dtype=np.float64), weights, names, codes or {})
    return [_describe(table, labels == group) for group in range(n_groups)]


def _describe(table: _Table, members: Mask) -> Description:
    """Return the description of the group with these ``members`` (n,)."""
    if not members.any() or not len(table.used):
        return Description(NO_DESCRIPTION, 0.0)
    best = _search(table, members)
    share = float(table.weights[members].sum() / table.weights.sum())
    least = max(MIN_AGREEMENT, share + _MIN_INFORMATION * (1 - share))
    if best.agreement < least:
        return Description(table.describe_centre(members) or NO_DESCRIPTION, best.agreement)
    rules = _rounded(table, members, best, least)
    text = " and ".join(_clauses(table, rules))
    return Description(text, table.agreement(rules, members))


def _search(table: _Table, members: Mask) -> _Candidate:
    """Return the one or two rules that agree best with the members."""
    singles = table.best_rules(members)
    single = singles[0]
    pairs = [
        _Candidate(best.agreement, (*first.rules, *best.rules))
        for first in singles[:_BEAM]
        for best in [table.best_rule(members, first.rules[0].holds(table.values))]
    ]
    pair = max(pairs, key=lambda found: found.agreement)
    for _ in range(_ROUNDS):
        before = pair.agreement
        for place in (0, 1):
            kept = pair.rules[1 - place]
            best = table.best_rule(members, kept.holds(table.values))
            if best.agreement > pair.agreement + 1e-12:
                pair = _Candidate(best.agreement, (kept, *best.rules))
        if pair.agreement <= before:
            break
    return pair if pair.agreement >= single.agreement + _MIN_GAIN else single


class _Table:
    """Rows of a table with weights, and for each column their order, for the search of thresholds."""

    def __init__(self, values: Floats, weights: Floats, columns: Sequence[str], codes: Mapping[int, CodeNames]) -> None:
        self.values = values
        self.weights = weights
        self.columns = columns
        self._codes = codes
        finite = np.isfinite(values).all(axis=0)
        varies = np.array([len(column) > 0 and column.min() < column.max() for column in values.T], dtype=bool)
        #: Indices of the columns that rules can be about.
        self.used = np.flatnonzero(finite & varies)
        self._order = np.argsort(values[:, self.used], axis=0, kind="stable")
        ordered = np.take_along_axis(values[:, self.used], self._order, axis=0)
        self._ordered = ordered
        #: Whether a threshold fits between a row and the next one, in the order of the column.
        self._cuts = (ordered[:-1] < ordered[1:]) & ~np.isin(self.used, self._unordered)
        levels = [np.unique(column) for column in ordered.T]
        #: Levels (column, value) of columns of codes, and of those that have few of them.
        self._levels = [
            (int(column), float(value))
            for column, each in zip(self.used, levels, strict=True)
            if len(each) <= _MAX_LEVELS or column in self._codes
            for value in self._most_frequent(int(column), each)
        ]
        self._two_valued = {int(c): each for c, each in zip(self.used, levels, strict=True) if len(each) == 2}
        self._whole = {int(c) for c in self.used if (values[:, c] == np.round(values[:, c])).all()}

    @property
    def _unordered(self) -> list[int]:
        """Columns of codes whose order has no meaning."""
        return [column for column, names in self._codes.items() if not names.ordered]

    def _most_frequent(self, column: int, levels: Floats) -> Floats:
        """Return the most frequent levels of a column, in order."""
        if len(levels) <= _MAX_NAMED_LEVELS:
            return levels
        count = np.bincount(np.searchsorted(levels, self.values[:, column]), self.weights)
        return np.sort(levels[np.argsort(-count, kind="stable")[:_MAX_NAMED_LEVELS]])

    def only_level(self, column: int, low: float | None, high: float | None) -> float | None:
        """Return the level of a column of codes that one threshold leaves alone, the first or the last; else None."""
        last = len(self._codes[column].names) - 1 if column in self._codes else -1
        if high is not None and last > 0 and math.ceil(high) == 1:
            return 0.0
        return low if low is not None and last > 0 and math.ceil(low) == last else None

    def value_text(self, column: int, value: float) -> str:
        """Return a value of a column, or the first one above a threshold of codes, as text."""
        codes = self._codes.get(column)
        return number_text(value) if codes is None else " ".join(codes.names[math.ceil(value)].split())

    def describe_centre(self, members: Mask) -> str | None:
        """Return the means by which a group differs most from all points; None if none differs."""
        numbers = [
            (self.columns[column], self.values[:, column])
            for column in map(int, self.used)
            if column not in self._codes and column not in self._two_valued
        ]
        shown = [
            (place, column, value)
            for place, (column, value) in enumerate(self._levels)
            if column in self._codes or (column in self._two_valued and value == self._two_valued[column][1])
        ]
        indicators = [
            Indicator(self.columns[column], self.value_text(column, value), self._indicators[:, place])
            for place, column, value in shown
        ]
        return describe_centre(numbers, indicators, members.astype(np.float64), self.weights)

    @cached_property
    def _indicators(self) -> Floats:
        """Whether each row has each level, (n, levels)."""
        if not self._levels:
            return np.zeros((len(self.values), 0))
        return np.stack([self.values[:, c] == v for c, v in self._levels], axis=1).astype(np.float64)

    def is_whole(self, column: int) -> bool:
        """Return whether all values of a column are whole numbers."""
        return column in self._whole

    def two_values(self, column: int) -> Floats | None:
        """Return the two values of a column, in order; None if it has more."""
        return self._two_valued.get(column)

    def agreement(self, rules: Sequence[_Rule], members: Mask) -> float:
        """Return the Jaccard index of the rows for which all rules hold, and the members."""
        held = np.logical_and.reduce([rule.holds(self.values) for rule in rules])
        either = float(self.weights[held | members].sum())
        return float(self.weights[held & members].sum()) / either if either else 0.0

    def middle(self, rule: _Rule, others: Sequence[_Rule]) -> float:
        """Return the middle of the thresholds that hold for the same rows as that of a rule, given other rules."""
        held = np.logical_and.reduce([np.ones(len(self.values), dtype=bool), *(o.holds(self.values) for o in others)])
        column = self.values[held, rule.column]
        below, above = column[column < rule.value], column[column >= rule.value]
        return between(float(below.max()), float(above.min())) if len(below) and len(above) else rule.value

    def best_rule(self, members: Mask, held: Mask) -> _Candidate:
        """Return the rule that agrees best with the members, among rows for which other rules ``held``."""
        found = []
        for sign, agreement in self._agreements(members, held):
            place = np.unravel_index(agreement.argmax(), agreement.shape)
            found.append(_Candidate(float(agreement[place]), (self._rule(sign, *map(int, place)),)))
        return max(found, key=lambda each: each.agreement)

    def best_rules(self, members: Mask) -> list[_Candidate]:
        """Return the best threshold of either side of each column, and all levels, the best one first."""
        found = []
        for sign, agreement in self._agreements(members, np.ones(len(members), dtype=bool)):
            for column, place in enumerate(agreement.argmax(axis=0)):
                rule = self._rule(sign, int(place), column)
                found.append(_Candidate(float(agreement[place, column]), (rule,)))
        return sorted(found, key=lambda each: -each.agreement)

    def _rule(self, sign: str, place: int, column: int) -> _Rule:
        """Return the rule with this place in the arrays of :meth:`_agreements`."""
        if sign == "=":
            return _Rule(self._levels[column][0], sign, self._levels[column][1])
        low, high = self._ordered[place, column], self._ordered[place + 1, column]
        return _Rule(int(self.used[column]), sign, between(low, high))

    def _agreements(self, members: Mask, held: Mask) -> Iterator[tuple[str, Floats]]:
        """Yield the agreement of each rule if others ``held``: of thresholds (n - 1, columns), levels (1, levels)."""
        size = self.weights[members].sum()
        inside = self.weights * (held & members)
        outside = self.weights * (held & ~members)
        below_in, below_out = (np.cumsum(rows[self._order], axis=0)[:-1] for rows in (inside, outside))
        yield "<", np.where(self._cuts, below_in / (size + below_out), -1.0)
        above_in, above_out = inside.sum() - below_in, outside.sum() - below_out
        yield ">=", np.where(self._cuts, above_in / (size + above_out), -1.0)
        if self._levels:
            yield "=", ((inside @ self._indicators) / (size + outside @ self._indicators))[None]


def _rounded(table: _Table, members: Mask, found: _Candidate, least: float) -> tuple[_Rule, ...]:
    """Return the rules with thresholds of the fewest digits that leave the agreement nearly as it is.

    It stays 1 where it is 1, and is at least ``least``.
    """
    rules = list(found.rules)
    limit = max(found.agreement - _MAX_LOSS * (1 - found.agreement), least) - 1e-9
    for place, rule in enumerate(rules):
        if rule.sign == "=":
            continue
        middle = table.middle(rule, [*rules[:place], *rules[place + 1 :]])
        for value in round_numbers(middle, table.is_whole(rule.column)):
            rounded = _Rule(rule.column, rule.sign, value)
            changed = [*rules[:place], rounded, *rules[place + 1 :]]
            # A rule that all rows satisfy says nothing.
            if table.agreement(changed, members) >= limit and not rounded.holds(table.values).all():
                rules = changed
                break
    return tuple(rules)


def _clauses(table: _Table, rules: Sequence[_Rule]) -> list[str]:
    """Return the rules as text, in the order of the columns; two thresholds of one column are one clause."""
    clauses: list[str] = []
    for column in sorted({rule.column for rule in rules}):
        name, text = table.columns[column], partial(table.value_text, column)
        own = {rule.sign: rule.value for rule in rules if rule.column == column}
        low, high, level = (own.get(sign) for sign in (">=", "<", "="))
        two = table.two_values(column)
        if level is None and two is not None and len(own) == 1:
            level = float(two[0] if low is None else two[1])
        if level is None and len(own) == 1:
            level = table.only_level(column, low, high)
        if level is None and low is not None and high is not None and table.is_whole(column) and high - low == 1:
            level = low
        if level is not None:
            clauses.append(f"{name} = {text(level)}")
        elif low is not None and high is not None:
            clauses.append(f"{text(low)} <= {name} < {text(high)}")
        elif low is not None:
            clauses.append(f"{name} >= {text(low)}")
        elif high is not None:
            clauses.append(f"{name} < {text(high)}")
    return clauses
