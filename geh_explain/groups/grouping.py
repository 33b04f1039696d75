"""Regions of the data: which points are aggregated together, and how many regions there should be.

Regions come from bisecting k-means: the region with the largest spread is split in two, again and
again. The partitions into 1, 2, ..., M regions are nested, so that the sums of local Hessians over the
M finest ones give those of every coarser partition, and one pass over the data gives the whole curve.
Each split starts from the principal axis and not from random centres: no seed, and no dependence on
the order of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.groups.tree import RegionTree


@dataclass(frozen=True)
class Grouping:
    """Which group each point is in."""

    labels: Ints
    names: list[str]

    @property
    def sizes(self) -> Ints:
        """The number of points in each group."""
        return np.bincount(self.labels, minlength=len(self.names))


def from_labels(labels: Any, points: int) -> Grouping:
    """Read a user's own labels, one per point, of any kind that can be sorted."""
    entries = labels.tolist() if hasattr(labels, "tolist") else labels
    if not isinstance(entries, Iterable):
        raise GEHTypeError(f"groups: {entries!r} are no labels; give one for each of the {points} points.")
    entries = list(entries)
    if any(label is None or (isinstance(label, float) and not math.isfinite(label)) for label in entries):
        raise GEHValueError("groups has missing labels (None or NaN); give every point a group.")
    try:
        given = np.asarray(entries)
    except ValueError as error:
        raise GEHValueError(f"groups: labels differ in length; give one for each of the {points} points.") from error
    if given.shape != (points,):
        raise GEHValueError(f"groups has shape {given.shape}; give one label for each of the {points} points.")
    names, index = np.unique(given, return_inverse=True)
    return Grouping(index.reshape(-1).astype(np.int64), [str(name) for name in names])


def from_clusterer(clusterer: Any, positions: Floats) -> Grouping:
    """Cluster with any scikit-learn clusterer; it is copied, so that the user's stays unfitted."""
    from sklearn.base import clone

    try:
        labels = clone(clusterer).fit_predict(positions)
    except (TypeError, ValueError) as error:
        raise GEHValueError(f"groups={clusterer!r} cannot cluster these {len(positions)} points: {error}") from error
    return from_labels(labels, len(positions))


def from_tree(tree: RegionTree, labels: Ints, groups: int) -> Grouping:
    """Merge the labels of the finest regions to those of ``groups`` regions."""
    merged = labels.copy()
    for child in range(tree.count - 1, groups - 1, -1):
        merged[merged == child] = tree.splits[child - 1].parent
    return Grouping(merged, [str(group) for group in range(groups)])


def check_groups(groups: Any) -> None:
    """Refuse what is not a number of groups, "auto", labels or a clusterer."""
    if isinstance(groups, str) and groups != "auto":
        raise GEHValueError(f"groups={groups!r} is unknown; use a number, 'auto', labels, or a scikit-learn clusterer.")
    if isinstance(groups, (bool, float)) or groups is None or isinstance(groups, type):
        raise GEHTypeError(f"groups={groups!r}: use a whole number, 'auto', labels, or a scikit-learn clusterer.")
    if not isinstance(groups, (str, int, np.integer, Iterable)) and not hasattr(groups, "fit_predict"):
        raise GEHTypeError(f"groups={groups!r}: use a whole number, 'auto', labels, or a scikit-learn clusterer.")
    if isinstance(groups, (int, np.integer)) and groups < 1:
        raise GEHValueError(f"groups={groups}: at least one group is needed.")
