"""Sums over points: the local interactions of the draws that are entered, added up by group."""

from __future__ import annotations

from typing import Any

import torch

from geh_explain.engines.level_contrasts import LevelSums
from geh_explain.engines.pair_sums import PairSums
from geh_explain.engines.sums import GroupSums
from geh_explain.groups.grouping import Grouping
from geh_explain.groups.pairwise import PairGrouping
from geh_explain.run.pair_groups import pair_sums
from geh_explain.run.plan import RunPlan


def sum_points(plan: RunPlan, grouping: Grouping, part: slice, numbers: range, bar: Any) -> GroupSums:
    """Return the sums of local interactions by group, over a part of the points.

    Parameters
    ----------
    plan, grouping
        What is computed, and the groups of the points.
    part
        The points, those of one rank.
    numbers
        Numbers of the draws that are entered. Rows are repeated once for each of them.
    bar
        Progress bar, which counts rows times draws.
    """
    draws = len(numbers)
    squared = max(0, min(draws, plan.point_draws - numbers.start))
    cells = plan.cells if squared else None
    point_labels = grouping.labels if cells is None else cells.labels
    n_sums = len(grouping.names) if cells is None else len(cells)
    n_pairs = len(plan.columns.numeric) if plan.engine.takes_pairs else None
    sums = GroupSums.zeros(n_sums, plan.cut.n_units, draws, squared if cells is None else 0, n_pairs)
    if isinstance(grouping, PairGrouping):
        sums = pair_sums(grouping, plan.pairs, draws, squared, all_pairs=n_pairs is None)
    if grouping.weights is not None:
        sums.visit_sample()
    of_levels = LevelSums(plan.levels, sums)
    for rows in plan.points.batches():
        shared = rows[max(0, part.start - rows.start) : max(0, part.stop - rows.start)].weighted(grouping.weights)
        for chunk in shared.split(max(1, plan.engine.chunk_rows(rows) // draws)):
            labels = point_labels[chunk.start : chunk.start + len(chunk)]
            sums.weights = chunk.weights
            if isinstance(grouping, PairGrouping) and isinstance(sums, PairSums):
                sums.halves = torch.as_tensor(grouping.halves[chunk.start : chunk.start + len(chunk)])
            finished = bar.n + len(chunk) * draws * of_levels.share
            with plan.engine.reporting(bar.update):
                plan.engine.add(sums, chunk.repeat(draws) if draws > 1 else chunk, labels)
            bar.update(finished - bar.n)
        of_levels.add(shared, point_labels, bar.update)
    plan.engine.end_draw(sums)
    if n_pairs is None and not plan.columns.numeric.complete:
        sums = sums.select(plan.columns.numeric.positions)
    sums = of_levels.after(sums)
    return sums if cells is None else sums.merged(grouping.labels[cells.first], len(grouping.names))
