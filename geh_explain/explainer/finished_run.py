"""The result of a finished run."""

from __future__ import annotations

from geh_explain.groups.group_info import GroupInfo
from geh_explain.groups.grouping import Grouping
from geh_explain.groups.pairwise import PairGrouping
from geh_explain.results.interactions import Interactions
from geh_explain.run.plan import RunPlan
from geh_explain.run.record import RunRecord
from geh_explain.run.source import ResultSource
from geh_explain.scores.draws import DrawMoments, Draws


def make_result(
    plan: RunPlan,
    draws: Draws | DrawMoments,
    grouping: Grouping,
    info: GroupInfo,
    record: RunRecord,
    source: ResultSource,
) -> Interactions:
    """Return the result of a plan: one entry per row of the data, also for those of weight 0.

    ``grouping`` are the groups of the points that count, ``info`` describes them.
    """
    result = Interactions(
        draws,
        plan.weights.expand(grouping.labels, missing=-1),
        plan.names,
        grouping.names,
        record,
        pairs=plan.pairs,
        group_info=info,
        sample_weight=plan.weights.sample_weight,
        pair_cells=grouping.cells if isinstance(grouping, PairGrouping) else None,
    )
    return result.with_source(source)
