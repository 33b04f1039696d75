"""What a run will cost, from one chunk of its first draw."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from geh_explain._memory import reuse_heap
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.engines.level_contrasts import LevelSums
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHValueError
from geh_explain.model.kept_points import output_of_row
from geh_explain.posterior.protocols import enter_draws, seed_of_draw
from geh_explain.run.call_cost import count_calls, seconds_of_draw
from geh_explain.run.plan import RunPlan

#: Reading is timed for so many seconds, about.
_READING_SECONDS = 1.0


@dataclass(frozen=True)
class CostEstimate:
    """The expected cost of a run.

    Attributes
    ----------
    seconds
        Expected time of all draws, with what was spent before the first one.
    result_bytes
        Bytes of the draws of all pairs, as :meth:`Interactions.save` writes them before compression. With
        ``groups="auto"`` for the largest number of groups that is tried.
    draws, points, pairs
        Numbers of posterior draws, points and pairs of units.
    engine
        Name of the engine.
    calls, rows
        For mixed differences and differences between levels, the number of calls of the model in all draws, and of the
        rows of these calls; None for engines that take derivatives.

    Examples
    --------
    >>> print(CostEstimate(90.0, 3 * 2**30, 20, 1000, 51040, "structured"))
    about 2 minutes for 20 draws of 1,000 points and 51,040 pairs (structured engine), 3.0 GB of draws
    """

    seconds: float
    result_bytes: int
    draws: int
    points: int
    pairs: int
    engine: str
    calls: int | None = None
    rows: int | None = None

    def __str__(self) -> str:
        size = f"{self.result_bytes / 2**30:.1f} GB" if self.result_bytes >= 2**29 else f"{self._megabytes} MB"
        calls = "" if self.calls is None else f", {self.calls:,} calls of the model with {self.rows:,} rows"
        draws, points, pairs = _count(self.draws, "draw"), _count(self.points, "point"), _count(self.pairs, "pair")
        engine = f"({self.engine} engine){calls}"
        return f"about {_in_words(self.seconds)} for {draws} of {points} and {pairs} {engine}, {size} of draws"

    @property
    def _megabytes(self) -> int:
        return -(-self.result_bytes // 2**20)


def _count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 draw", "2,000 draws"."""
    return f"{number:,} {noun}" + "s" * (number != 1)


def _in_words(seconds: float) -> str:
    """Return a time in one unit: seconds, minutes or hours.

    >>> _in_words(0.2), _in_words(59), _in_words(150), _in_words(9000)
    ('1 second', '59 seconds', '2 minutes', '2.5 hours')
    """
    if seconds < 90:
        count = max(1, round(seconds))
        return f"{count} second" + "s" * (count > 1)
    if seconds < 5400:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"


def estimate_cost(plan: RunPlan, spent: float) -> CostEstimate:
    """Return the cost of a plan; ``spent`` are the seconds that reading the data and planning took."""
    options, n_points = plan.options, len(plan.points)
    available = plan.posterior.__len__() if hasattr(plan.posterior, "__len__") else options.max_draws
    n_draws, n_pairs = min(options.max_draws, available), len(plan.pairs)
    once, per_draw, per_row = _time_first_chunk(plan)
    per_row += _seconds_to_read(plan.points)
    counted = count_calls(plan, plan.points.first, n_points)
    return CostEstimate(
        seconds=spent + once + n_draws * (per_draw + per_row * n_points),
        result_bytes=8 * n_draws * len(plan.columns) * (len(plan.grouping.names) + 1),
        draws=n_draws,
        points=n_points,
        pairs=n_pairs,
        engine=plan.engine.engine.name,
        calls=None if counted is None else n_draws * counted[0],
        rows=None if counted is None else n_draws * counted[1],
    )


def _seconds_to_read(points: Points) -> float:
    """Return the seconds per row of reading the points, which every draw does anew if they do not fit into memory."""
    start, n_rows = perf_counter(), 0
    for rows in points.batches():
        n_rows += len(rows)
        if perf_counter() - start > _READING_SECONDS:
            break
    return (perf_counter() - start) / n_rows


def _time_first_chunk(plan: RunPlan) -> tuple[float, float, float]:
    """Return the seconds of what comes once, per draw and per row, from a chunk that is computed twice."""
    reuse_heap()
    start, cut, engine = perf_counter(), plan.cut, plan.engine
    rows = next(iter(plan.points.batches()))
    forward = partial(output_of_row, cut, rows[:1], plan.below)
    with cut.viewed(plan.view), enter_draws(plan.posterior, cut.model, 1, plan.options.seed, forward) as draws:
        for number in draws:
            entered = perf_counter()
            with nullcontext() if plan.member_view is None else cut.viewed(plan.member_view()):
                survey = perf_counter() - entered
                engine.begin_draw(seed_of_draw(plan.options.seed, number))
                engine.adapt(plan.points.first)
                if count_calls(plan, rows, len(plan.points)) is not None:
                    once = perf_counter() - start
                    return once, survey, seconds_of_draw(plan, rows) / len(plan.points)
                chunk = rows[: engine.chunk_rows(rows)]
                _time_chunk(plan, chunk)
                once = perf_counter() - start
                engine.begin_draw(seed_of_draw(plan.options.seed, number))
                of_rows, of_draw = _time_chunk(plan, chunk)
            return once, survey + of_draw, of_rows / len(chunk)
    raise GEHValueError(f"posterior={plan.posterior!r} gave no draws; it must yield at least one.")


def _time_chunk(plan: RunPlan, chunk: Rows) -> tuple[float, float]:
    """Return the seconds of the first chunk, and those of what engines leave for the end of a draw."""
    n_pairs = len(plan.columns.numeric) if plan.engine.takes_pairs else None
    sums = GroupSums.zeros(len(plan.grouping.names), plan.cut.n_units, 1, 0, n_pairs)
    start = perf_counter()
    plan.engine.add(sums, chunk, plan.grouping.labels[: len(chunk)])
    LevelSums(plan.levels, sums).add(chunk, plan.grouping.labels)
    added = perf_counter()
    plan.engine.end_draw(sums)
    return added - start, perf_counter() - added
