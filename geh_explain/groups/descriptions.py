"""Groups of points in words: one or two rules over the columns of a table.

A rule compares one column with one number, such as ``hour < 7`` or ``workingday = 1``. For each group the search finds
the rule, or the two rules joined by "and", whose points R agree best with the points G of the group, by the Jaccard
index ::

    agreement = |R and G| / |R or G|.

It is 1 if the rules hold for the points of the group and for no other ones. Groups have no description if it is below
0.6, or hardly above the agreement with all points, which is the share of the group. Points of a sample count as many
times as there are points of their group for each one in the sample.

The first rule is searched among all thresholds of all columns; the best ones of each column are tried with each second
rule; then either rule is searched again, given the other one, until the agreement stays the same. Thresholds are
rounded to the fewest digits that leave it nearly as it is; an agreement of 1 stays 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geh_explain._process import cached_property
from geh_explain._types import Floats, Ints

#: Groups whose rules agree less than this have no description.
MIN_AGREEMENT = 0.6
#: All points agree with a group by its share of them. Of what is missing to 1, rules must add this part.
_MIN_INFORMATION = 1 / 3
#: What such a group is called, and a single group.
NO_DESCRIPTION = "no short description"
ALL_POINTS = "all points"

#: A second rule must raise the agreement by this much.
_MIN_GAIN = 0.05
#: Rounding of thresholds may lower the agreement by this part of what is missing to 1.
_MAX_LOSS = 0.05
#: Columns with at most this many different values have rules of the form "column = value".
_MAX_LEVELS = 12
#: Number of first rules that are tried with each second one, and of further searches of either rule.
_BEAM = 6
_ROUNDS = 4
#: Most digits after the first one that a threshold has.
_MAX_DIGITS = 8

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Description:
    """A group of points in words.

    Attributes
    ----------
    text
        One or two rules, ``"all points"``, or ``"no short description"``.
    agreement
        Jaccard index of the points for which the rules hold and the points of the group, from 0 to 1; of the best rules
        also where they are no description.

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
        return self.text not in (NO_DESCRIPTION, ALL_POINTS)

    def __str__(self) -> str:
        # Rounded down, so that only groups without any other point are 100 %.
        return f"{self.text} ({math.floor(100 * self.agreement + 1e-9)} %)" if self.is_rule else self.text


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
    values: Floats, labels: Ints, columns: Sequence[str], n_groups: int, weights: Floats | None = None
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
    table = _Table(np.asarray(values, dtype=np.float64), np.ones(len(values)) if weights is None else weights)
    return [_describe(table, labels == group, columns) for group in range(n_groups)]


def _describe(table: _Table, members: Mask, columns: Sequence[str]) -> Description:
    """Return the description of the group with these ``members`` (n,)."""
    if not members.any() or not len(table.used):
        return Description(NO_DESCRIPTION, 0.0)
    best = _search(table, members)
    share = float(table.weights[members].sum() / table.weights.sum())
    least = max(MIN_AGREEMENT, share + _MIN_INFORMATION * (1 - share))
    if best.agreement < least:
        return Description(NO_DESCRIPTION, best.agreement)
    rules = _rounded(table, members, best, least)
    text = " and ".join(_clauses(table, rules, columns))
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

    def __init__(self, values: Floats, weights: Floats) -> None:
        self.values = values
        self.weights = weights
        finite = np.isfinite(values).all(axis=0)
        varies = np.array([len(column) > 0 and column.min() < column.max() for column in values.T], dtype=bool)
        #: Indices of the columns that rules can be about.
        self.used = np.flatnonzero(finite & varies)
        self._order = np.argsort(values[:, self.used], axis=0, kind="stable")
        ordered = np.take_along_axis(values[:, self.used], self._order, axis=0)
        self._ordered = ordered
        #: Whether a threshold fits between a row and the next one, in the order of the column.
        self._cuts = ordered[:-1] < ordered[1:]
        levels = [np.unique(column) for column in ordered.T]
        #: Levels (column, value) of columns that have few of them.
        self._levels = [
            (int(column), float(value))
            for column, each in zip(self.used, levels, strict=True)
            if len(each) <= _MAX_LEVELS
            for value in each
        ]
        self._two_valued = {int(c): each for c, each in zip(self.used, levels, strict=True) if len(each) == 2}
        self._whole = {int(c) for c in self.used if (values[:, c] == np.round(values[:, c])).all()}

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
        return _between(float(below.max()), float(above.min())) if len(below) and len(above) else rule.value

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
        return _Rule(int(self.used[column]), sign, _between(low, high))

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


def _between(low: float, high: float) -> float:
    """Return a threshold above ``low`` and at most ``high``: the middle, if rounding leaves it there."""
    middle = low / 2 + high / 2
    return float(middle if low < middle else high)


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
        for value in _round_numbers(middle, table.is_whole(rule.column)):
            rounded = _Rule(rule.column, rule.sign, value)
            changed = [*rules[:place], rounded, *rules[place + 1 :]]
            # A rule that all rows satisfy says nothing.
            if table.agreement(changed, members) >= limit and not rounded.holds(table.values).all():
                rules = changed
                break
    return tuple(rules)


def _round_numbers(value: float, whole: bool) -> Iterator[float]:
    """Yield 0, and a number rounded to more and more digits; the last one of a whole column is the next whole number.

    >>> list(_round_numbers(6.5, whole=True)), [x for x, _ in zip(_round_numbers(0.4987, False), range(4))]
    ([0.0, 10.0, 7.0], [0.0, 0.0, 0.5, 0.5])
    """
    yield 0.0
    first = -math.floor(math.log10(abs(value))) - 1 if value else 0
    for digits in range(first, 0 if whole else first + _MAX_DIGITS):
        yield round(value, digits)
    yield float(math.ceil(value)) if whole else value


def _clauses(table: _Table, rules: Sequence[_Rule], columns: Sequence[str]) -> list[str]:
    """Return the rules as text, in the order of the columns; two thresholds of one column are one clause."""
    clauses: list[str] = []
    for column in sorted({rule.column for rule in rules}):
        name = " ".join(str(columns[column]).split()).encode("utf-8", "replace").decode()
        own = {rule.sign: rule.value for rule in rules if rule.column == column}
        low, high, level = (own.get(sign) for sign in (">=", "<", "="))
        two = table.two_values(column)
        if level is None and two is not None and len(own) == 1:
            level = float(two[0] if low is None else two[1])
        if level is None and low is not None and high is not None and table.is_whole(column) and high - low == 1:
            level = low
        if level is not None:
            clauses.append(f"{name} = {_number(level)}")
        elif low is not None and high is not None:
            clauses.append(f"{_number(low)} <= {name} < {_number(high)}")
        elif low is not None:
            clauses.append(f"{name} >= {_number(low)}")
        elif high is not None:
            clauses.append(f"{name} < {_number(high)}")
    return clauses


def _number(value: float) -> str:
    """Return a number as text, without an exponent where it is of ordinary size.

    >>> _number(7.0), _number(0.35), _number(-250000.0), _number(1e-9), _number(0.10000000149)
    ('7', '0.35', '-250000', '1e-09', '0.1')
    """
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.4g}"
    return np.format_float_positional(float(f"{value:.7g}"), trim="-")
