"""Groups of each pair's own: the halves of its two units, and of a third unit that changes it.

With b_i = 1 where the value of unit i is in its upper half and 0 elsewhere, the group of a point for the pair
(i, j) is ::

    2 b_i + b_j,    or    2 b_i + b_j + 4 b_k

where a third unit k is known to change the pair. Clusters of points in many dimensions hold low and high values of most
units alike, so that the interactions of |x_i| x_j or x_i x_j x_k cancel within them; in these groups they do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from geh_explain._types import Bools, Floats, Ints
from geh_explain.groups.grouping import Grouping
from geh_explain.scores.pair_cells import PairCells

#: The value of ``groups=`` that asks for groups of each pair's own.
PAIRWISE = "pairwise"
#: A third unit must raise the score by more than this part of it.
_MIN_GAIN = 0.5


@dataclass(frozen=True, kw_only=True)
class PairGrouping(Grouping):
    """The halves of all points, from which the groups of each pair follow; ``labels`` are all 0.

    Attributes
    ----------
    halves
        Whether each unit is high at each point (N, D).
    cells
        The groups of the pairs.
    complete
        Whether third units were looked for; they are not where memory is short.
    """

    halves: Bools
    cells: PairCells
    complete: bool = True

    @property
    def sizes(self) -> Ints:
        """Number of points of each group, shape (M, P)."""
        return self.cells.sizes

    @property
    def weight_sums(self) -> Ints:
        """The same: points have no weights."""
        return self.cells.sizes

    @property
    def unit_sums(self) -> Ints:
        """Number of points of the groups that first derivatives are summed over, shape (M, D)."""
        return self.cells.unit_sizes


def group_pairs(
    halves: Bools, edges: Floats, ends: tuple[Ints, Ints], thirds: Ints, *, complete: bool = True
) -> PairGrouping:
    """Return the groups of pairs with units ``ends`` and third units ``thirds`` (P,), -1 for none.

    >>> halves = np.array([[False, False], [True, False], [True, True]])
    >>> group_pairs(halves, np.zeros(2), (np.array([0]), np.array([1])), np.array([-1])).sizes.T.tolist()
    [[1, 0, 1, 1]]
    """
    n_groups = 8 if (thirds >= 0).any() else 4
    high = halves.astype(np.float64)
    parts = (1 - high, high)
    sizes = np.zeros((n_groups, len(thirds)), dtype=np.int64)
    # Counts of all pairs of units at once; those with a third unit are split pair by pair.
    for group, (first, second) in enumerate(product((0, 1), (0, 1))):
        sizes[group] = np.rint((parts[first].T @ parts[second])[ends])
    for pair in np.flatnonzero(thirds >= 0):
        own = 2 * halves[:, ends[0][pair]].astype(np.int64) + halves[:, ends[1][pair]] + 4 * halves[:, thirds[pair]]
        sizes[:, pair] = np.bincount(own, minlength=n_groups)
    unit_sizes = np.zeros((n_groups, halves.shape[1]), dtype=np.int64)
    unit_sizes[:2] = (~halves).sum(axis=0), halves.sum(axis=0)
    cells = PairCells(edges, thirds, sizes, unit_sizes)
    labels = np.zeros(len(halves), dtype=np.int64)
    return PairGrouping(labels, cells.names, halves=halves, cells=cells, complete=complete)


def median_edges(values: Floats) -> Floats:
    """Return the edges (D,) between the low and the high half of values (n, D): NaN where all values are equal.

    The edge lies in the middle between two neighbouring values; of all such places the one that splits the points most
    evenly is taken, so that a unit with few values, such as 0 and 1, is split too.

    >>> median_edges(np.array([[1.0, 0.0, 5.0], [2.0, 0.0, 5.0], [3.0, 0.0, 5.0], [4.0, 1.0, 5.0]])).tolist()
    [2.5, 0.5, nan]
    """
    n_points = len(values)
    ordered = np.sort(values, axis=0)
    # Halves of both, as the sum of two values may overflow.
    middles = ordered[:-1] / 2 + ordered[1:] / 2
    # A middle that is rounded to its lower neighbour does not part them.
    middles = np.where(middles > ordered[:-1], middles, ordered[1:])
    distance = np.abs(np.arange(1, n_points) - n_points / 2)[:, None]
    distance = np.where(ordered[1:] > ordered[:-1], distance, np.inf)
    if n_points < 2:
        return np.full(values.shape[1], np.nan)
    best = distance.argmin(axis=0)
    columns = np.arange(values.shape[1])
    return np.where(np.isfinite(distance[best, columns]), middles[best, columns], np.nan)


def choose_thirds(sums: Floats, ends: tuple[Ints, Ints]) -> Ints:
    """Return the third unit (P,) whose halves raise the score of each pair most, -1 where there is none.

    The points are in two random parts. A unit is chosen only if both parts choose it, and it raises the score by half
    or more in both: noise, which would inflate the scores of pairs without interaction, rarely does so twice.

    Parameters
    ----------
    sums
        Sums (2, 4, P, D + 1) of the local interactions over both parts of the points, the four groups of each pair,
        and those points of the group at which each unit is high; the last column has all points.
    ends
        Indices of the units of each pair, both (P,).

    Examples
    --------
    >>> sums = np.zeros((2, 4, 1, 4))
    >>> sums[..., 2] = 3.0  # 3 where unit 2 is high, and -3 elsewhere
    >>> choose_thirds(sums, (np.array([0]), np.array([1]))).tolist()
    [2]
    """
    high, total = sums[..., :-1], sums[..., -1:]
    scores = (np.abs(high) + np.abs(total - high)).sum(axis=1)  # (2, P, D)
    base = np.abs(total[..., 0]).sum(axis=1)  # (2, P)
    pairs = np.arange(scores.shape[1])
    for unit in ends:
        scores[:, pairs, unit] = -np.inf
    best = scores.argmax(axis=2)
    gain = np.take_along_axis(scores, best[..., None], axis=2)[..., 0] - base
    sure = (best[0] == best[1]) & (gain > _MIN_GAIN * base).all(axis=0)
    return np.where(sure, best[0], -1)
