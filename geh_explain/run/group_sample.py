"""What a run remembers of its points, so that its groups can be described.

For inputs that are a table it is a sample of rows. For images and other inputs it is a few points near the centre of
each group.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats, Ints
from geh_explain.data.points import Points
from geh_explain.data.shards import ShardedPoints
from geh_explain.groups.descriptions import CodeNames
from geh_explain.groups.group_info import GroupInfo, TableSample, nearest_to_centres, stratified_sample
from geh_explain.groups.grouping import Grouping
from geh_explain.groups.pairwise import PairGrouping
from geh_explain.groups.positions import positions_of
from geh_explain.model.cut import Cut
from geh_explain.run.plan import RunPlan
from geh_explain.units.neurons import Neurons

#: Rows of a table that are kept, and of each group at least.
_TABLE_ROWS, _LEAST_TABLE_ROWS = 1000, 30
#: Numbers that are kept of a table, at most; tables with more columns than the second are not described.
_TABLE_NUMBERS = 300_000
_MAX_COLUMNS = 2000
#: Points among which exemplars are chosen, and of each group at least.
_EXEMPLAR_ROWS, _LEAST_EXEMPLAR_ROWS = 500, 5
#: Numbers of their positions, at most.
_POSITION_NUMBERS = 2**23
#: How dates end that have no time of day.
_MIDNIGHT = " 00:00:00"
#: Exemplars of each group.
_EXEMPLARS = 5


def sample_groups(plan: RunPlan, grouping: Grouping) -> GroupInfo:
    """Return what is needed to describe the groups of a finished run; nothing is described yet."""
    if isinstance(grouping, PairGrouping):
        return GroupInfo()  # regions of a pair are described by its own units
    if isinstance(plan.points, ShardedPoints):
        # Rows of other ranks are not at hand.
        grouping = Grouping(grouping.labels[plan.points.sampled], grouping.names)
        plan = replace(plan, points=plan.points.sample)
    columns = _column_names(plan)
    if columns is not None:
        try:
            return GroupInfo(_sample_table(plan, grouping, columns))
        except Exception:
            # A loader that fails now must not take the finished draws with it.
            if plan.points.streamed:
                return GroupInfo()
            raise
    if len(grouping.names) == 1 or plan.points.streamed:
        return GroupInfo()
    return GroupInfo(exemplars=_find_exemplars(plan, grouping))


def _column_names(plan: RunPlan) -> list[str] | None:
    """Return the names of the columns of the inputs, None if these are no table of numbers.

    Whole numbers without column names may be token ids, which have no order.
    """
    points, cut, inputs = plan.points, plan.cut, plan.points.first.inputs
    named = points.columns is not None
    if any(x.ndim != 2 or not (named or x.is_floating_point()) for x in inputs):
        return None
    count = sum(x.shape[1] for x in inputs)
    if not 0 < count <= _MAX_COLUMNS:
        return None
    if cut.layer is None and isinstance(cut.units, Neurons) and len(plan.names) == count:
        return plan.names
    if points.columns is not None and len(points.columns) == count:
        return [str(name) for name in points.columns]
    return [f"x{column}" for column in range(count)]


def _sample_table(plan: RunPlan, grouping: Grouping, columns: list[str]) -> TableSample:
    """Return some rows of the table; none are needed of a single group."""
    groups = len(grouping.names)
    if groups == 1:
        return TableSample(np.zeros((0, len(columns))), np.zeros(0, dtype=np.int64), np.zeros(0), columns, 1)
    rows = min(_TABLE_ROWS, _TABLE_NUMBERS // len(columns))
    indices, weights = stratified_sample(grouping.labels, groups, rows, _LEAST_TABLE_ROWS)
    values = np.concatenate([_numbers(inputs) for inputs in _take_inputs(plan.points, indices)])
    return TableSample(values, grouping.labels[indices], weights, columns, groups, _codes(plan.points))


def _codes(points: Points) -> dict[int, CodeNames]:
    """Return the names of the codes of columns that are text, categories or dates in a data frame, by index."""
    frame = points.first.frame
    codes: dict[int, CodeNames] = {}
    for place, name in enumerate(points.columns or ()):
        names = points.code_names.get(str(name))
        if names is not None:
            dtype = None if frame is None else frame.dtypes[place]
            ordered = getattr(dtype, "kind", "O") in "mM" or bool(getattr(dtype, "ordered", False))
            # Dates without a time of day are shown as dates.
            midnight = all(text.endswith(_MIDNIGHT) for text in names)
            codes[place] = CodeNames(
                tuple(text.removesuffix(_MIDNIGHT) for text in names) if midnight else names, ordered
            )
    return codes


def _take_inputs(points: Points, indices: Ints) -> list[tuple[Tensor, ...]]:
    """Return the inputs of the points with these ascending indices, in one pass over the batches that have some."""
    found: list[tuple[Tensor, ...]] = []
    for rows in points.batches():
        chosen = indices[(indices >= rows.start) & (indices < rows.start + len(rows))] - rows.start
        if len(chosen):
            found.append(tuple(x[torch.as_tensor(chosen, device=x.device)] for x in rows.inputs))
    return found


def _numbers(inputs: tuple[Tensor, ...]) -> Floats:
    """Return the columns (n, c) of all inputs."""
    return np.concatenate([x.detach().double().cpu().numpy() for x in inputs], axis=1)


@torch.no_grad()
def _find_exemplars(plan: RunPlan, grouping: Grouping) -> Ints | None:
    """Return the points (M, k) nearest to the centre of each group, among a sample.

    None where the positions would need another pass of the model.
    """
    cut, points, groups = plan.cut, plan.points, len(grouping.names)
    if cut.layer is not None and not points.first.below:
        return None
    width = positions_of(cut, cut.activations(points.first)).shape[1]
    count = min(_EXEMPLAR_ROWS, max(groups * _LEAST_EXEMPLAR_ROWS, _POSITION_NUMBERS // width))
    indices, _ = stratified_sample(grouping.labels, groups, count, _LEAST_EXEMPLAR_ROWS)
    positions = _positions(cut, points, indices)
    kept = plan.weights.kept
    row_numbers = indices if kept is None else kept[indices]
    return nearest_to_centres(positions, grouping.labels[indices], row_numbers, groups, _EXEMPLARS)


def _positions(cut: Cut, points: Points, indices: Ints) -> Floats:
    """Return the positions (n, d) of the points with these ascending indices."""
    found: list[Floats] = []
    for rows in points.split(None):
        chosen = indices[(indices >= rows.start) & (indices < rows.start + len(rows))] - rows.start
        if len(chosen):
            found.append(positions_of(cut, cut.activations(rows.take(chosen.tolist()))))
    return np.concatenate(found)
