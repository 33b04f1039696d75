"""The groups that ``groups=`` asks for, from the positions of all points or of a sample."""

from __future__ import annotations

from dataclasses import dataclass

from geh_explain._types import Ints
from geh_explain.data.points import Points
from geh_explain.groups.assignment import cluster, given_groups, grow_groups, is_table
from geh_explain.groups.grouping import Grouping, from_tree
from geh_explain.groups.kmeans import GroupTree
from geh_explain.groups.positions import PositionSample
from geh_explain.model.cut import Cut
from geh_explain.run.options import RunOptions

#: Number of groups that engines prepare for while it is open.
_EXPECTED_GROUPS = 10


@dataclass(frozen=True)
class FoundGroups:
    """Groups that are given, or a tree of groups with the labels of all points, if these are known already."""

    given: Grouping | None = None
    tree: GroupTree | None = None
    labels: Ints | None = None

    @property
    def expected_number(self) -> int:
        """How many groups there will be, about."""
        if self.tree is not None:
            return min(_EXPECTED_GROUPS, self.tree.n_groups)
        return 1 if self.given is None else len(self.given.names)

    def grouping(self, labels: Ints | None) -> Grouping:
        """Return the groups; ``labels`` are those of a pass over all points, where one was needed."""
        if self.given is not None:
            return self.given
        labels = labels if self.labels is None else self.labels
        assert self.tree is not None
        assert labels is not None
        return from_tree(self.tree, labels, self.tree.n_groups)


def expected_labels(tree: GroupTree | None, grouping: Grouping) -> Ints:
    """Return labels (N,) of groups; with a ``tree``, whose number is open, those of groups of about the final size."""
    if tree is None:
        return grouping.labels
    return from_tree(tree, grouping.labels, min(_EXPECTED_GROUPS, tree.n_groups)).labels


def find_groups(
    cut: Cut, points: Points, options: RunOptions, positions: PositionSample | None, bytes_per_pair: int
) -> FoundGroups:
    """Find the groups that ``groups=`` asks for, from the positions of all points or of a sample."""
    if positions is None:
        return FoundGroups(given=given_groups(options.groups, points))
    sample = positions.result()
    if hasattr(options.groups, "fit_predict"):
        return FoundGroups(given=cluster(options.groups, sample, len(points), positions.weights))
    largest = options.largest_group_number(bytes_per_pair)
    tree = grow_groups(options.groups, positions, len(points), largest, is_table(cut, points))
    complete = len(sample) == len(points)
    return FoundGroups(tree=tree, labels=tree.labels(sample) if complete else None)
