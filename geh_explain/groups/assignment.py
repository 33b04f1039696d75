"""What ``groups=`` asks for: labels as they are given, a clusterer, or a number of groups to be found."""

from __future__ import annotations

from typing import Any

import numpy as np

from geh_explain._process import OwnGenerators
from geh_explain._types import Floats
from geh_explain.data.points import Points
from geh_explain.errors import GEHValueError
from geh_explain.groups.grouping import Grouping, are_labels, check_groups, from_clusterer, from_labels, label_type
from geh_explain.groups.kmeans import GroupTree, grow
from geh_explain.groups.pairwise import PAIRWISE
from geh_explain.groups.positions import PositionSample
from geh_explain.model.cut import Cut

#: Largest number of groups that is tried where their number is chosen automatically.
MAX_GROUPS = 60


def is_labels_or_clusterer(groups: Any) -> bool:
    """Return whether ``groups`` are labels, or a clusterer, which need all points."""
    return are_labels(groups) or hasattr(groups, "fit_predict")


def given_groups(groups: Any, points: Points) -> Grouping | None:
    """Return the groups that need no positions: labels, or a single group. None where groups must be found.

    Groups of each pair are found once the engine is there; until then all points are in one.
    """
    check_groups(groups)
    if are_labels(groups):
        points.check_matched("groups")
        return from_labels(groups, len(points))
    if (isinstance(groups, (int, np.integer)) and groups == 1) or (isinstance(groups, str) and groups == PAIRWISE):
        return Grouping(np.zeros(len(points), dtype=label_type(len(points), 1)), ["0"])
    return None


def cluster(groups: Any, positions: Floats, n_points: int, weights: Floats | None = None) -> Grouping:
    """Return the groups of a scikit-learn clusterer, which needs the positions of all points."""
    if len(positions) < n_points:
        raise GEHValueError(
            f"groups={groups!r}: {n_points} points are too many to cluster at once; pass labels or a number."
        )
    # Without random_state a clusterer draws from the global generators.
    with OwnGenerators(seed=0).active():
        return from_clusterer(groups, positions, weights)


def grow_groups(groups: Any, sample: PositionSample, n_points: int, max_groups: int, standardise: bool) -> GroupTree:
    """Return nested groups found from a sample of positions: ``max_groups`` where their number is open."""
    positions, weights = sample.result(), sample.weights
    if isinstance(groups, str):
        return grow(positions, max_groups, standardise=standardise, weights=weights)
    number = int(groups)
    if number > n_points:
        raise GEHValueError(f"groups={number}, but there are only {n_points} points; use at most as many.")
    tree = grow(positions, number, standardise=standardise, weights=weights)
    if tree.n_groups < number:
        raise GEHValueError(
            f"groups={number}, but the points fall into only {tree.n_groups} distinct places; use at most as many."
        )
    return tree


def is_table(cut: Cut, points: Points) -> bool:
    """Return whether the points are rows of a table, whose columns each have a unit of measure."""
    return cut.layer is None and all(x.ndim <= 2 for x in points.first.inputs)
