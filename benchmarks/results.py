"""What a race has shown, as plain numbers that JSON holds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.timing import Case

#: A median this many times the best means that the machine was busy with something else.
QUIET = 1.5


@dataclass(frozen=True)
class Row:
    """The costs of one contestant, round by round: seconds, or megabytes."""

    name: str
    costs: list[float]
    part: str
    compared: bool

    @property
    def best(self) -> float:
        """The cheapest round: the one that was disturbed least."""
        return min(self.costs)

    @property
    def middle(self) -> float:
        """The median round."""
        return median(self.costs)

    @property
    def spread(self) -> float:
        """How many times more the median round cost than the best: 1 on a quiet machine."""
        return self.middle / self.best if self.best > 0 else 1.0


@dataclass(frozen=True)
class Verdict:
    """How a contestant's cost relates to that of its best rival, by the best rounds and over eight rounds of ten."""

    contestant: str
    rival: str
    limit: float
    ratio: float
    low: float
    high: float

    @property
    def met(self) -> bool:
        """Whether the target is kept, by the best rounds."""
        return self.ratio <= self.limit

    @property
    def wanted(self) -> str:
        """The target in words."""
        return f"at least {1 / self.limit:.3g}x faster" if self.limit < 1 else f"at most {self.limit:.3g}x"

    def words(self, ratio: float) -> str:
        """Say a ratio the way the target is said."""
        return f"{1 / ratio:.3g}x" if self.limit < 1 else f"{ratio:.3g}x"

    @property
    def reached(self) -> str:
        """What was reached, in words."""
        return self.words(self.ratio)

    @property
    def range(self) -> str:
        """Where eight rounds of ten lie, in words."""
        ends = (self.high, self.low) if self.limit < 1 else (self.low, self.high)
        return " to ".join(map(self.words, ends))


@dataclass(frozen=True)
class Result:
    """All that is told of one case."""

    key: str
    title: str
    reference: str
    unit: str
    points: int | None
    apart: float | None
    rows: list[Row]
    verdicts: list[Verdict]
    notes: list[str]
    axis: str
    curves: dict[str, dict[int, float]]
    where: dict[str, Any]

    def row(self, name: str) -> Row:
        """Return a contestant's costs."""
        return next(row for row in self.rows if row.name == name)

    @property
    def busy(self) -> bool:
        """Whether the machine had something else to do."""
        return max(row.spread for row in self.rows) > QUIET


def conclude(key: str, case: Case, costs: dict[str, list[float]], apart: float | None, where: dict[str, Any]) -> Result:
    """Turn the costs of a race into what is told of it."""
    rows = [
        Row(name, [float(f"{cost:.5g}") for cost in costs[name]], contestant.part, contestant.answer is not None)
        for name, contestant in case.contestants.items()
    ]
    best = {row.name: row.best for row in rows}
    verdicts = []
    for target in case.targets:
        rival = min(target.rivals, key=best.__getitem__)
        ratios = np.divide(costs[target.contestant], costs[rival])
        low, high = np.quantile(ratios, [0.1, 0.9])
        ratio = best[target.contestant] / best[rival]
        verdicts.append(Verdict(target.contestant, rival, target.limit, ratio, float(low), float(high)))
    curves = {line: {size: best[name] for size, name in sizes.items()} for line, sizes in case.curves.items()}
    about = (key, case.title, case.reference, case.unit, case.points, apart)
    return Result(*about, rows, verdicts, case.notes, case.axis, curves, where)


def store(path: Path, results: list[Result]) -> None:
    """Write results as JSON."""
    path.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n", encoding="utf-8")


def stored(path: Path) -> list[Result]:
    """Read what :func:`store` wrote, nothing if it never did."""
    if not path.exists():
        return []
    return [_result(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def _result(entry: dict[str, Any]) -> Result:
    rows = [Row(**row) for row in entry["rows"]]
    verdicts = [Verdict(**verdict) for verdict in entry["verdicts"]]
    curves = {line: {int(size): cost for size, cost in sizes.items()} for line, sizes in entry["curves"].items()}
    return Result(**{**entry, "rows": rows, "verdicts": verdicts, "curves": curves})
