"""Warnings about categories: levels that are left out, and columns of 0 and 1 that are differentiated."""

from __future__ import annotations

import numpy as np

from geh_explain._types import Ints
from geh_explain.data.points import InMemoryPoints
from geh_explain.groups.assignment import is_table
from geh_explain.run.plan import RunPlan
from geh_explain.units.categorical import Categorical
from geh_explain.units.feature_groups import FeatureGroups
from geh_explain.units.neurons import Neurons

#: Levels and columns that a warning names.
_MAX_NAMED = 5
#: Without names of columns, inputs of more numbers than this may be pixels.
_MAX_UNNAMED = 64


def levels_warning(plan: RunPlan) -> str | None:
    """Warn of levels that are left out, because they are rare or do not occur."""
    messages = []
    for category in plan.cut.units.observed if isinstance(plan.cut.units, Categorical) else ():
        name, share = category.where.name, category.levels.shares.sum()
        counted = "points" if plan.grouping.weights is None else "case weights"
        if len(category) < category.n_observed:
            messages.append(
                f"category {name!r} has {category.n_observed:,} levels, and differences are between the "
                f"{len(category)} most frequent ones, which hold {share:.0%} of the {counted} "
                f"(Categorical(..., max_levels={category.n_observed}) takes all)"
            )
        if category.missing:
            shown = _list(list(map(repr, category.missing)))
            messages.append(f"the levels {shown} of category {name!r} occur at no point, and are left out")
    return None if not messages else f"units: {'; '.join(messages)}."


def zero_levels_warning(plan: RunPlan) -> str:
    """Return the warning that all interactions of a run with categories are exactly 0."""
    pairs = "the only pair is" if len(plan.pairs) == 1 else f"all {len(plan.pairs)} pairs are"
    return (
        f"{pairs} exactly 0: at these points and levels the model is additive in the units that were explained, or "
        "ignores them. Check that the columns of Categorical(...) are those that the model reads."
    )


def binary_columns_warning(plan: RunPlan) -> str | None:
    """Warn of columns of a table that hold 0 and 1 only and are differentiated."""
    columns = _binary_columns(plan)
    if not len(columns):
        return None
    names = Neurons().names((plan.cut.shape[0],), "x", plan.points.columns)
    if isinstance(plan.cut.units, Neurons):
        names = plan.names
    how = "units=geh.units.Categorical.detect(frame)" if plan.points.columns else "units=geh.units.Categorical({...})"
    shown, verb = ("column", "holds") if len(columns) == 1 else ("the columns", "hold")
    return (
        f"inputs: {shown} {_list([names[index] for index in columns])} {verb} 0 and 1 only, and derivatives ask what "
        f"happens between them, at values that cannot occur. Use {how}, which takes differences between levels, and "
        "one-hot columns as one unit; or engine='difference'."
    )


def _binary_columns(plan: RunPlan) -> Ints:
    """Return the columns that are numeric units and hold 0 and 1 only, both of them; none for other than tables."""
    cut, points = plan.cut, plan.points
    quiet = not plan.engine.engine.differentiates or not isinstance(points, InMemoryPoints)
    if quiet or not is_table(cut, points) or len(points.first.inputs) > 1 or len(cut.shape) != 1:
        return np.arange(0)
    if not isinstance(cut.units, (Neurons, FeatureGroups, Categorical)):
        return np.arange(0)
    if points.columns is None and cut.shape[0] > _MAX_UNNAMED:
        return np.arange(0)
    first = points.first.inputs[0]
    candidates = ((first == 0) | (first == 1)).all(dim=0).nonzero()[:, 0].cpu().numpy()
    if isinstance(cut.units, (FeatureGroups, Categorical)):
        candidates = np.intersect1d(candidates, cut.units.single_columns)
    for rows in points.batches() if len(candidates) else ():
        x = rows.inputs[0][:, candidates]
        binary = ((x == 0) | (x == 1)).all(dim=0) & (x == 0).any(dim=0) & (x == 1).any(dim=0)
        candidates = candidates[binary.cpu().numpy()]
    return np.asarray(candidates)


def _list(names: list[str]) -> str:
    """Return a few of the names as text."""
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more
