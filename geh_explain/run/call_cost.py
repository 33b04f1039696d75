"""The cost of mixed differences: how many calls of the model they make, and what a call and a row take.

With k calls of r rows in all, a chunk takes about a k + b r seconds. Models differ in both: a forest is slow by the
row, a network behind a service, or one that reads its training set in every call, by the call.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from geh_explain.data.rows import Rows
from geh_explain.engines.difference import DifferenceRun
from geh_explain.engines.sums import GroupSums
from geh_explain.run.plan import RunPlan

#: Rows of the first timed chunk, and how many times larger the next ones are.
_FIRST_ROWS = 1
_GROWTH = 4
#: No larger chunk is timed after one that took so many seconds.
_LONG_SECONDS = 0.5


def count_calls(engine: DifferenceRun, rows: Rows, n_points: int) -> tuple[int, int]:
    """Return the calls of the model in one draw of ``n_points`` points, and the rows of all of these calls."""
    size = min(n_points, engine.chunk_rows(rows))
    whole, rest = divmod(n_points, size)
    calls, n_rows = (whole * count for count in engine.calls_and_rows(size))
    if rest:
        of_rest = engine.calls_and_rows(rest)
        calls, n_rows = calls + of_rest[0], n_rows + of_rest[1]
    return calls, n_rows


def seconds_of_draw(plan: RunPlan, engine: DifferenceRun, rows: Rows) -> float:
    """Return the seconds of one draw of all points, from chunks of ``rows`` that grow while they are fast.

    At least two of them are timed. a and b fit the times best in relative terms, and are not negative.
    """
    from scipy.optimize import nnls

    largest = min(len(rows), engine.chunk_rows(rows))
    sizes: list[int] = []
    seconds: list[float] = []
    size = _FIRST_ROWS
    while len(sizes) < 2 or (size <= largest and seconds[-1] < _LONG_SECONDS):
        size = min(size, largest)
        sizes.append(size)
        seconds.append(_time_chunk(plan, engine, rows[:size]))
        size = largest if size < largest < size * _GROWTH else size * _GROWTH
    counts = np.array([engine.calls_and_rows(size) for size in sizes], dtype=float)
    coefficients, _ = nnls(counts / np.array(seconds)[:, None], np.ones(len(seconds)))
    return float(coefficients @ np.array(count_calls(engine, rows, len(plan.points)), dtype=float))


def _time_chunk(plan: RunPlan, engine: DifferenceRun, chunk: Rows) -> float:
    """Return the seconds of a chunk of rows."""
    sums = GroupSums.zeros(len(plan.grouping.names), plan.cut.n_units, 1, 0, len(plan.pairs))
    start = perf_counter()
    engine.add(sums, chunk, plan.grouping.labels[: len(chunk)])
    return perf_counter() - start
