"""Groups of points that no short rule describes: by the columns whose means differ most from those of all points.

The distance of a group in a column is ::

    d = (mean over the group - mean over all points) / standard deviation over all points.

Columns of codes, and those with two values, count as indicators of their levels, whose means are shares. A column is
named if |d| is at least 0.25 and at least 4 standard errors of the mean of as many points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from geh_explain._types import Floats

#: How descriptions of this kind begin.
PREFIX = "on average "
#: Columns that are named, at most.
_MAX_COLUMNS = 2
#: Smallest distance in standard deviations, and in standard errors.
_MIN_DISTANCE = 0.25
_MIN_ERRORS = 4.0


@dataclass(frozen=True)
class Indicator:
    """Points that have a ``level`` of a ``column``, such as Oslo of city; ``held`` is 0 or 1 for each row (n,)."""

    column: str
    level: str
    held: Floats


@dataclass(frozen=True)
class _Difference:
    """The mean of a column, or of a level of it, in a group and over all points, and their distance."""

    column: str
    level: str | None
    own: float
    overall: float
    distance: float

    def __str__(self) -> str:
        if self.level is not None:
            return f"{self.column} = {self.level} in {100 * self.own:.0f} % (all: {100 * self.overall:.0f} %)"
        # Two digits of the difference are shown.
        digits = 1 - math.floor(math.log10(abs(self.own - self.overall)))
        own, overall = (f"{round(mean, digits) + 0.0:.{max(digits, 0)}f}" for mean in (self.own, self.overall))
        return f"{self.column} {own} (all: {overall})"


def describe_centre(
    columns: Sequence[tuple[str, Floats]], indicators: Sequence[Indicator], members: Floats, weights: Floats
) -> str | None:
    """Return the means of the one or two columns by which a group differs most from all points; None if none does.

    Parameters
    ----------
    columns
        Name and values (n,) of each column of numbers.
    indicators
        The levels of other columns.
    members, weights
        Whether each row (n,) belongs to the group, 0 or 1, and how many points it stands for.

    Examples
    --------
    >>> import numpy as np
    >>> age = np.arange(100.0)
    >>> describe_centre([("age", age), ("sign", (-1) ** age)], [], 1.0 * (age >= 60), np.ones(100))
    'on average age 80 (all: 50)'
    """
    found = [_difference(name, None, values, members, weights) for name, values in columns]
    found += [_difference(each.column, each.level, each.held, members, weights) for each in indicators]
    errors = _MIN_ERRORS / math.sqrt(max(members.sum(), 1.0))
    named = [each for each in found if each is not None and abs(each.distance) >= max(_MIN_DISTANCE, errors)]
    # The largest distance last, so that it is kept where several levels of a column differ.
    by_column = {each.column: each for each in sorted(named, key=lambda each: abs(each.distance))}
    largest = sorted(by_column.values(), key=lambda each: -abs(each.distance))[:_MAX_COLUMNS]
    return PREFIX + ", ".join(map(str, largest)) if largest else None


def _difference(column: str, level: str | None, values: Floats, members: Floats, weights: Floats) -> _Difference | None:
    """Return how the mean of ``values`` (n,) in the group differs from that of all points; None if it does not."""
    # Scaled, so that squares of huge numbers are finite.
    unit = float(np.abs(values).max(initial=0.0)) or 1.0
    scaled = values / unit
    overall, own = (float(np.average(scaled, weights=w)) for w in (weights, weights * members))
    std = math.sqrt(float(np.average((scaled - overall) ** 2, weights=weights)))
    if not std or own * unit == overall * unit:
        return None
    return _Difference(column, level, own * unit, overall * unit, (own - overall) / std)
