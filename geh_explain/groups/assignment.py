"""A look at the data before the work: where the points lie, which belong together, how widely units vary."""

from __future__ import annotations

from typing import Any

import numpy as np

from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHValueError
from geh_explain.groups.grouping import Grouping, check_groups, from_clusterer, from_labels, from_tree
from geh_explain.groups.positions import _FEW_BYTES, _MOST_BYTES, positions, sample
from geh_explain.groups.tree import GroupTree, grow
from geh_explain.model.cut import Cut

#: The most groups that are tried where their number is open.
MAX_GROUPS = 60


def find_groups(
    cut: Cut,
    points: Points,
    groups: Any,
    batch_size: int | None,
    seed: int,
    most: int = MAX_GROUPS,
    budget: int = 16 * _MOST_BYTES,
) -> tuple[Grouping, GroupTree | None]:
    """Return the groups that ``groups`` asks for; where their number is open, the finest ones with their tree.

    Of the ``budget`` of memory in bytes, the sample from which regions are found takes a sixteenth, and some copies.
    """
    check_groups(groups)
    if not isinstance(groups, (str, int, np.integer)) and not hasattr(groups, "fit_predict"):
        points.check_matched("groups")
        return from_labels(groups, len(points)), None
    if isinstance(groups, (int, np.integer)) and groups == 1:  # no need to look where points lie
        return Grouping(np.zeros(len(points), dtype=np.int64), ["0"]), None
    where = sample(positions(cut, points, batch_size), seed, min(_MOST_BYTES, max(_FEW_BYTES, budget // 16)))
    if hasattr(groups, "fit_predict"):
        if len(where) < len(points):
            raise GEHValueError(
                f"groups={groups!r}: {len(points)} points are too many to cluster at once; pass labels or a number."
            )
        return from_clusterer(groups, where), None
    wanted = most if isinstance(groups, str) else int(groups)
    if wanted > len(points) and not isinstance(groups, str):
        raise GEHValueError(f"groups={wanted}, but there are only {len(points)} points; use at most as many.")
    tree = grow(where, wanted, standardise=_is_table(cut, points.first))
    if tree.n_groups < wanted and not isinstance(groups, str):
        raise GEHValueError(
            f"groups={wanted}, but the points fall into only {tree.n_groups} distinct places; use at most as many."
        )
    pieces = [where] if len(where) == len(points) else positions(cut, points, batch_size)
    labels = np.concatenate([tree.labels(piece) for piece in pieces])
    return from_tree(tree, labels, tree.n_groups), tree if isinstance(groups, str) else None


def _is_table(cut: Cut, rows: Rows) -> bool:
    """Tell whether the points are rows of a table, whose columns each have a unit of measure."""
    return cut.layer is None and all(x.ndim == 2 for x in rows.inputs)
