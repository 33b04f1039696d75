"""Nested groups of points by bisecting k-means.

Start with one group of all points. While there are fewer than M groups, split the group m with the largest sum of
squares S_m = sum_{x in m} |x - c_m|^2 about its centre c_m in two by 2-means:

1. Split the group by the plane through c_m that is orthogonal to its principal axis.
2. Compute the centres a and b of the two halves, and assign each point to the nearer one. The points nearer to a are
   those with (a - b) . x > (|a|^2 - |b|^2) / 2.
3. Repeat step 2 until no point changes sides.

Split s turns group ``parent`` into groups ``parent`` and s + 1. The partitions into 1, 2, ..., M groups are therefore
nested, and undoing the last split merges its two groups by adding up their sums. So the sums of local Hessians over the
M finest groups give those of every coarser partition, and one pass over the data gives the scores for 1, 2, ..., M
groups.

Each split starts from the principal axis instead of random centres, so the result needs no seed and does not depend on
the order of the rows. With case weights, sums of squares, centres and axes are weighted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from geh_explain._types import Floats, Ints

#: Up to this many columns the principal axis is an exact eigenvector; with more it comes from power iteration.
_MAX_EXACT_COLUMNS = 128
#: Steps of the power iteration; 2-means refines the split, so the axis need not converge fully.
_POWER_STEPS = 50
#: Most rounds of 2-means in one split.
_MAX_ROUNDS = 100
#: Numbers whose ratio differs from 1 by less than this count as equal: their difference is rounding.
_ROUNDING = 1e-9

#: Distinct points are counted up to this many times the number of groups.
_PLACES = 10


@dataclass(frozen=True)
class Split:
    """One split: points of group ``parent`` with ``normal @ x > offset`` move to a new group."""

    parent: int
    normal: Floats
    offset: float


@dataclass(frozen=True)
class GroupTree:
    """Nested groups: after s splits there are s + 1 groups, and split s (from 0) creates group s + 1.

    Attributes
    ----------
    centre, scale
        Points x (d,) are standardised to (x - centre) / scale before they are split.
    splits
        The splits in the order in which they were made; their planes are in standardised coordinates.
    n_places
        Number of distinct points that were split, counted up to ten times the number of groups that was asked for.

    Examples
    --------
    >>> tree = grow(np.array([[0.0], [1.0], [10.0]]), 3, standardise=False)
    >>> tree.labels(np.array([[0.1], [9.0], [0.9]]))
    array([0, 1, 2])
    >>> tree.merge(np.array([5.0, 7.0, 1.0]), 2)  # undoes the split of group 0 into 0 and 2
    array([6., 7.])
    """

    centre: Floats
    scale: Floats
    splits: list[Split]
    n_places: int

    @property
    def n_groups(self) -> int:
        """The number of groups of the finest partition."""
        return len(self.splits) + 1

    def labels(self, points: Floats) -> Ints:
        """Return the finest group (n,) of each of the points (n, d)."""
        scaled = (points - self.centre) / self.scale
        labels = np.zeros(len(points), dtype=np.int64)
        # In the order of the splits, as the child of one may be the parent of a later one.
        for child, split in enumerate(self.splits, start=1):
            inside = np.flatnonzero(labels == split.parent)
            labels[inside[_product(scaled[inside], split.normal) > split.offset]] = child
        return labels

    def merge(self, sums: Floats, groups: int) -> Floats:
        """Return sums over ``groups`` groups (groups, ...) from sums over the finest ones (n_groups, ...)."""
        merged = sums.copy()
        for child in range(self.n_groups - 1, groups - 1, -1):
            merged[self.splits[child - 1].parent] += merged[child]
        # A copy, as a view would keep all sums alive.
        return merged[:groups].copy()


def grow(points: Floats, groups: int, *, standardise: bool, weights: Floats | None = None) -> GroupTree:
    """Split points into up to ``groups`` nested groups.

    Parameters
    ----------
    points
        Coordinates, shape (n, d).
    groups
        The number of groups M. There are fewer if there are fewer distinct points.
    standardise
        Whether to divide each column by its standard deviation, so that units of measure do not matter.
    weights
        Positive case weights (n,), None for 1. Integer weights give the groups of repeated points.
    """
    points = np.asarray(points, dtype=np.float64)
    centre = _mean(points, weights)
    scale = np.ones(points.shape[1])
    if standardise:
        scale = points.std(axis=0) if weights is None else np.sqrt(_mean((points - centre) ** 2, weights))
    # The standard deviation of a constant column is rounding error; dividing by it would let the column decide.
    scale = np.where(scale > 1e-12 * (np.abs(centre) + 1), scale, 1.0)
    scaled = (points - centre) / scale
    members = [np.arange(len(points))]
    spreads = [_spread(scaled, weights)]
    splits: list[Split] = []
    while len(members) < groups:
        parent = _first_largest(np.array(spreads))
        if spreads[parent] <= 0:
            break
        inside, inside_weights = scaled[members[parent]], _part(weights, members[parent])
        normal, offset = _bisect(inside, inside_weights)
        above = _product(inside, normal) > offset
        if not 0 < above.sum() < len(above):
            # Rounding put all points on one side: these cannot be separated, so they count as equal.
            spreads[parent] = 0.0
            continue
        members.append(members[parent][above])
        members[parent] = members[parent][~above]
        spreads.append(_spread(inside[above], _part(inside_weights, above)))
        spreads[parent] = _spread(inside[~above], _part(inside_weights, ~above))
        splits.append(Split(parent, normal, offset))
    return GroupTree(centre, scale, splits, _count_places(points, _PLACES * groups))


def _count_places(points: Floats, most: int) -> int:
    """Return the number of distinct points (n, d), or ``most`` if there are more."""
    places: set[bytes] = set()
    for point in points:
        places.add(point.tobytes())
        if len(places) == most:
            break
    return len(places)


def _part(weights: Floats | None, rows: Any) -> Floats | None:
    """Return the weights of some rows."""
    return None if weights is None else weights[rows]


def _sum(points: Floats, weights: Floats | None) -> Floats:
    """Return the weighted sum (d,) of points (n, d)."""
    return np.asarray(points.sum(axis=0) if weights is None else _product(weights, points))


def _mean(points: Floats, weights: Floats | None) -> Floats:
    """Return the weighted mean (d,) of points (n, d)."""
    return np.asarray(points.mean(axis=0) if weights is None else _sum(points, weights) / weights.sum())


def _roots(points: Floats, weights: Floats | None) -> Floats:
    """Return points (n, d) times the roots of their weights, whose products are weighted."""
    return points if weights is None else points * np.sqrt(weights)[:, None]


def _spread(points: Floats, weights: Floats | None = None) -> float:
    """Return the sum of squares about the centre of points (n, d), 0 where all points are equal up to rounding."""
    centred, plain = _roots(points - _mean(points, weights), weights), _roots(points, weights)
    total = float(np.einsum("ij,ij", centred, centred))
    return total if len(points) > 1 and total > 1e-20 * float(np.einsum("ij,ij", plain, plain)) else 0.0


def _bisect(points: Floats, weights: Floats | None = None) -> tuple[Floats, float]:
    """Split points (n, d) by 2-means; return normal (d,) and offset of the plane between the two centres."""
    normal = _principal_axis(points, weights)
    offset = float((normal * _mean(points, weights)).sum())
    total, total_size = _sum(points, weights), float(len(points) if weights is None else weights.sum())
    previous = np.zeros(0, dtype=bool)
    for _ in range(_MAX_ROUNDS):
        above = _product(points, normal) > offset
        size = int(above.sum())
        if not 0 < size < len(points) or np.array_equal(above, previous):
            break
        sum_above = _sum(points[above], _part(weights, above))
        size_above = float(size if weights is None else weights[above].sum())
        centre_above = sum_above / size_above
        centre_below = (total - sum_above) / (total_size - size_above)
        normal = centre_above - centre_below
        offset = float((centre_above**2 - centre_below**2).sum() / 2)
        previous = above
    return normal, offset


def _principal_axis(points: Floats, weights: Floats | None = None) -> Floats:
    """Return the unit vector (d,) of largest variance of points (n, d); its largest entry is positive."""
    centred = _roots(points - _mean(points, weights), weights)
    if points.shape[1] <= _MAX_EXACT_COLUMNS:
        scatter = _product(centred.T, centred)
        # Rounded, so that columns with equal variance (as in a factorial design) tie exactly in any order of the rows.
        unit = _ROUNDING * np.abs(scatter).max()
        axis = torch.linalg.eigh(torch.from_numpy(np.round(scatter / unit)))[1][:, -1].numpy()
    else:
        # A fixed start with no zero entry and no symmetry, instead of a random one.
        axis = np.cos(np.arange(1.0, points.shape[1] + 1))
        for _ in range(_POWER_STEPS):
            axis = _product(centred.T, _product(centred, axis / _norm(axis)))
    return np.asarray(axis * np.sign(axis[_first_largest(np.abs(axis))]) / _norm(axis))


def _product(left: Floats, right: Floats) -> Floats:
    """Return left @ right, computed by torch: NumPy's threads spin after a product and slow torch's own down."""
    return np.asarray((torch.from_numpy(left) @ torch.from_numpy(right)).numpy())


def _norm(vector: Floats) -> float:
    return float(np.sqrt((vector**2).sum()))


def _first_largest(values: Floats) -> int:
    """Return the index of the first of the largest values; values that differ by rounding count as equal."""
    return int(np.argmax(values >= values.max() * (1 - _ROUNDING)))
