"""Results of a case as plain numbers, stored as JSON."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Case

#: A larger ratio of median to best means that the machine was busy with something else.
MAX_QUIET_RATIO = 1.5


@dataclass(frozen=True)
class Row:
    """Costs of one method, one per round: seconds or megabytes."""

    name: str
    costs: list[float]
    #: The part of the job that was timed, in words; empty for the whole job.
    timed_on: str
    #: Whether its answer was compared with those of the other methods.
    is_checked: bool

    @property
    def best(self) -> float:
        """Cost of the cheapest round, the one that was disturbed least."""
        return min(self.costs)

    @property
    def median(self) -> float:
        """Cost of the median round."""
        return statistics.median(self.costs)

    @property
    def spread(self) -> float:
        """Ratio of the median round to the best, 1 on a quiet machine."""
        return self.median / self.best if self.best > 0 else 1.0


@dataclass(frozen=True)
class Verdict:
    """Ratio of a method's cost to that of its cheapest alternative, and the target for it."""

    method: str
    alternative: str
    limit: float
    #: Ratio of the best rounds.
    ratio: float
    #: Quantiles 0.1 and 0.9 of the ratios round by round.
    low: float
    high: float
    #: Unit of the costs, "ms" or "s" for times, or "MB".
    unit: str = "ms"

    @property
    def met(self) -> bool:
        """Whether the ratio of the best rounds is within the limit."""
        return self.ratio <= self.limit

    @property
    def target(self) -> str:
        """The target in words, such as "at least 2x faster"."""
        better = "less" if self.unit == "MB" else "faster"
        return f"at least {1 / self.limit:.3g}x {better}" if self.limit < 1 else f"at most {self.limit:.3g}x"

    def format_ratio(self, ratio: float) -> str:
        """Return a ratio as a speed-up if the target is one, else as it is."""
        return f"{1 / ratio:.3g}x" if self.limit < 1 else f"{ratio:.3g}x"

    @property
    def reached(self) -> str:
        """The ratio of the best rounds, in the form of the target."""
        return self.format_ratio(self.ratio)

    @property
    def range(self) -> str:
        """The range of eight rounds of ten, in the form of the target."""
        ends = (self.high, self.low) if self.limit < 1 else (self.low, self.high)
        return " to ".join(map(self.format_ratio, ends))


@dataclass(frozen=True)
class Result:
    """Result of one case: everything that the page states about it."""

    key: str
    title: str
    reference: str
    unit: str
    points: int | None
    #: Largest relative difference between answers; None if no two were compared.
    max_difference: float | None
    rows: list[Row]
    verdicts: list[Verdict]
    notes: list[str]
    axis: str
    #: For cases of growth: the best cost by size, for each line.
    curves: dict[str, dict[int, float]]
    environment: dict[str, Any]

    def row(self, name: str) -> Row:
        """Return the costs of a method by its name."""
        return next(row for row in self.rows if row.name == name)

    @property
    def is_busy(self) -> bool:
        """Whether the machine was busy with something else during the case."""
        return max(row.spread for row in self.rows) > MAX_QUIET_RATIO


def summarise(
    key: str,
    case: Case,
    costs: dict[str, list[float]],
    max_difference: float | None,
    environment: dict[str, Any],
) -> Result:
    """Return the result of a case from the costs of its methods, one per round."""
    rows = [
        # Five digits are more than timings have, and keep the file small.
        Row(name, [float(f"{cost:.5g}") for cost in costs[name]], method.timed_on, method.answer is not None)
        for name, method in case.methods.items()
    ]
    best = {row.name: row.best for row in rows}
    verdicts = []
    for target in case.targets:
        alternative = min(target.alternatives, key=best.__getitem__)
        ratios = np.divide(costs[target.method], costs[alternative])
        low, high = np.quantile(ratios, [0.1, 0.9])
        ratio = best[target.method] / best[alternative]
        verdicts.append(Verdict(target.method, alternative, target.limit, ratio, float(low), float(high), case.unit))
    curves = {line: {size: best[name] for size, name in sizes.items()} for line, sizes in case.curves.items()}
    return Result(
        key=key,
        title=case.title,
        reference=case.reference,
        unit=case.unit,
        points=case.points,
        max_difference=max_difference,
        rows=rows,
        verdicts=verdicts,
        notes=case.notes,
        axis=case.axis,
        curves=curves,
        environment=environment,
    )


def save_results(path: Path, results: list[Result]) -> None:
    """Write results to a JSON file."""
    path.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n", encoding="utf-8")


def load_results(path: Path) -> list[Result]:
    """Return the results in a file of :func:`save_results`; none if there is no file."""
    if not path.exists():
        return []
    return [_parse_result(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def _parse_result(entry: dict[str, Any]) -> Result:
    """Return a result from its JSON object, whose keys of curves are strings."""
    rows = [Row(**row) for row in entry["rows"]]
    verdicts = [Verdict(**verdict) for verdict in entry["verdicts"]]
    curves = {line: {int(size): cost for size, cost in sizes.items()} for line, sizes in entry["curves"].items()}
    return Result(**{**entry, "rows": rows, "verdicts": verdicts, "curves": curves})
