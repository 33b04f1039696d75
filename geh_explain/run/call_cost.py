"""The cost of differences, mixed ones and those between levels: how many calls of the model, and what a call takes.

With k calls of r rows in all, a chunk takes about a k + b r seconds. Models differ in both: a forest is slow by the
row, a network behind a service, or one that reads its training set in every call, by the call.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
import torch

from geh_explain.data.rows import Rows
from geh_explain.engines.level_contrasts import LevelSums
from geh_explain.engines.sums import GroupSums
from geh_explain.groups.pairwise import PairGrouping
from geh_explain.run.pair_groups import pair_sums
from geh_explain.run.plan import RunPlan

#: Rows of the first timed chunk, and how many times larger the next ones are.
_FIRST_ROWS = 1
_GROWTH = 4
#: No larger chunk is timed after one that took so many seconds.
_LONG_SECONDS = 0.5


def count_calls(plan: RunPlan, rows: Rows, n_points: int) -> tuple[int, int] | None:
    """Return the calls of the model in one draw of ``n_points`` points, and the rows of all of these calls.

    None if the engine does more than to call the model.
    """
    engine = plan.engine
    if engine.calls_and_rows(1) is None:
        return None
    size = min(n_points, engine.chunk_rows(rows))
    whole, rest = divmod(n_points, size)
    of_whole, of_rest = ((n and engine.calls_and_rows(n)) or (0, 0) for n in (size, rest))
    levels = [] if plan.levels is None else plan.levels.by_target()
    counts = [of_target.calls_and_rows(rows, n_points) for of_target, _ in levels]
    calls, n_rows = (whole * of_whole[k] + of_rest[k] + sum(count[k] for count in counts) for k in (0, 1))
    return calls, n_rows


def seconds_of_draw(plan: RunPlan, rows: Rows) -> float:
    """Return the seconds of one draw of all points, from chunks of ``rows`` that grow while they are fast.

    The engine has calls that :func:`count_calls` counts. At least two chunks are timed. a and b fit the times best in
    relative terms, and are not negative.
    """
    from scipy.optimize import nnls

    largest = min(len(rows), plan.engine.chunk_rows(rows))
    sizes: list[int] = []
    seconds: list[float] = []
    size = _FIRST_ROWS
    while len(sizes) < 2 or (size <= largest and seconds[-1] < _LONG_SECONDS):
        size = min(size, largest)
        sizes.append(size)
        seconds.append(_time_chunk(plan, rows[:size]))
        size = largest if size < largest < size * _GROWTH else size * _GROWTH
    counts = np.array([count_calls(plan, rows, size) for size in sizes], dtype=float)
    coefficients, _ = nnls(counts / np.array(seconds)[:, None], np.ones(len(seconds)))
    return float(coefficients @ np.array(count_calls(plan, rows, len(plan.points)), dtype=float))


def _time_chunk(plan: RunPlan, chunk: Rows) -> float:
    """Return the seconds of a chunk of rows."""
    sums = GroupSums.zeros(len(plan.grouping.names), plan.cut.n_units, 1, 0, len(plan.columns.numeric))
    if isinstance(plan.grouping, PairGrouping):
        sums = pair_sums(plan.grouping, plan.pairs, 1, 0, all_pairs=False)
        sums.halves = torch.as_tensor(plan.grouping.halves[: len(chunk)])
    labels = plan.grouping.labels
    start = perf_counter()
    plan.engine.add(sums, chunk, labels[: len(chunk)])
    LevelSums(plan.levels, sums).add(chunk, labels)
    return perf_counter() - start
