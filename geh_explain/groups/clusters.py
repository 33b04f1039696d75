"""Clusters of points that are not independent: crops of one photograph, frames of one film, visits of one patient.

Points of different clusters are independent, those of one cluster may depend on each other in any way. So the sampling
error of a mean follows from the sums over whole clusters. A cluster may have points in several groups, and a group
points of several clusters: a cell is the set of points of one group and one cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from geh_explain._process import cached_property
from geh_explain._types import Ints
from geh_explain.data.points import Points
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.groups.grouping import Grouping, from_labels

#: With fewer clusters intervals are wide and rely on the clusters being alike.
MIN_CLUSTERS = 10
#: Clusters beyond this number are united: more of them hardly change the estimated errors.
MAX_CLUSTERS = 400
#: As many clusters as this must fit into memory.
_MIN_KEPT = 20


@dataclass(frozen=True)
class Cells:
    """The cell of each point: its group and its cluster.

    Attributes
    ----------
    labels
        Index of each point's cell (N,).
    first
        Index of the first point of each cell (C,). ``grouping.labels[first]`` are the groups of the cells, also of a
        grouping that is coarser than the one from which the cells were made.
    clusters
        Index of each cell's cluster (C,).

    Examples
    --------
    >>> import numpy as np
    >>> cells = Cells.of(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]))
    >>> cells.labels.tolist(), cells.first.tolist(), cells.clusters.tolist(), cells.sizes.tolist()
    ([0, 1, 2, 2], [0, 1, 2], [0, 1, 1], [1, 1, 2])
    """

    labels: Ints
    first: Ints
    clusters: Ints

    @classmethod
    def of(cls, groups: Ints, clusters: Ints) -> Cells:
        """Return the cells of points with ``groups`` (N,) and ``clusters`` (N,)."""
        codes = groups.astype(np.int64) * (int(clusters.max()) + 1) + clusters
        _, first, labels = np.unique(codes, return_index=True, return_inverse=True)
        return cls(labels.reshape(-1).astype(np.int64), first.astype(np.int64), clusters[first])

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def sizes(self) -> Ints:
        """Number of points of each cell (C,)."""
        return np.bincount(self.labels, minlength=len(self))


def check_clusters(clusters: Any) -> None:
    """Raise if the argument ``clusters`` cannot be labels of rows."""
    if clusters is None:
        return
    if isinstance(clusters, str):
        raise GEHTypeError(
            f"clusters={clusters!r}: give the labels themselves, one per row, such as frame[{clusters!r}]."
        )
    if not isinstance(clusters, Iterable) or isinstance(clusters, (bytes, dict)):
        raise GEHTypeError(f"clusters={clusters!r}: give one label per row, such as the patient or photograph of each.")


def read_clusters(clusters: Any, points: Points) -> Ints | None:
    """Return the index of each point's cluster (N,) from a user's labels; None for independent points.

    Raises
    ------
    GEHTypeError, GEHValueError
        If there is not one label per point, if some are missing, or if all are equal.
    """
    check_clusters(clusters)
    if clusters is None:
        return None
    points.check_matched("clusters")
    labels = from_labels(clusters, len(points), "clusters").labels
    if labels.max() == 0:
        raise GEHValueError(
            f"clusters has the same label for all {len(points)} points; the error over clusters needs at least two, "
            f"and {MIN_CLUSTERS} or more to be of use. Leave clusters=None if the points are independent."
        )
    return labels


def make_cells(clusters: Ints | None, grouping: Grouping, max_cells: int) -> Cells | None:
    """Return the cells of all points, at most ``max_cells``.

    Where there are more, clusters are united: unions of independent clusters are independent, so that errors stay
    right, and only vary more. Returns None if too few clusters would be left, and for points without clusters.
    """
    if clusters is None:
        return None
    n_clusters, n_groups = int(clusters.max()) + 1, len(grouping.names)
    cells = Cells.of(grouping.labels, clusters)
    if len(cells) <= max_cells and n_clusters <= MAX_CLUSTERS:
        return cells
    kept = min(MAX_CLUSTERS, max_cells // n_groups)
    if kept < min(n_clusters, _MIN_KEPT):
        return None
    return Cells.of(grouping.labels, unite_clusters(clusters, kept))


def unite_clusters(clusters: Ints, count: int) -> Ints:
    """Return at most ``count`` clusters (N,), unions of the given ones of about equal size.

    The largest clusters come first, and each joins the smallest union so far.

    >>> import numpy as np
    >>> unite_clusters(np.array([0, 0, 0, 1, 2, 2]), 2).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    import heapq

    sizes = np.bincount(clusters)
    if len(sizes) <= count:
        return clusters
    unions = [(0, index) for index in range(count)]
    target = np.zeros(len(sizes), dtype=np.int64)
    for cluster in np.argsort(-sizes, kind="stable"):
        size, index = heapq.heappop(unions)
        target[cluster] = index
        heapq.heappush(unions, (size + int(sizes[cluster]), index))
    return np.asarray(target[clusters])
