"""Regions of the data: which points are aggregated together, and how many regions there should be.

Regions come from bisecting k-means: the region with the largest spread is split in two, again and
again. The partitions into 1, 2, ..., M regions are nested, so that the sums of local Hessians over the
M finest ones give those of every coarser partition, and one pass over the data gives the whole curve.
Each split starts from the principal axis and not from random centres: no seed, and no dependence on
the order of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from geh_explain.errors import GEHTypeError, GEHValueError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Up to this many columns the principal axis is an exact eigenvector, beyond it comes from power iteration.
_EXACT_AXIS = 128


@dataclass(frozen=True)
class Split:
    """Points of region ``parent`` beyond the plane ``normal @ x > offset`` leave it for a new region."""

    parent: int
    normal: Floats
    offset: float


@dataclass(frozen=True)
class RegionTree:
    """Nested regions: after ``s`` splits there are ``s + 1`` of them; split ``s`` creates region ``s + 1``."""

    centre: Floats
    scale: Floats
    splits: list[Split]

    @property
    def count(self) -> int:
        """The number of regions at the finest level."""
        return len(self.splits) + 1

    def labels(self, points: Floats) -> Ints:
        """Assign points (n, d) to the finest regions."""
        scaled = (points - self.centre) / self.scale
        labels = np.zeros(len(points), dtype=np.int64)
        for child, split in enumerate(self.splits, start=1):
            inside = np.flatnonzero(labels == split.parent)
            labels[inside[_product(scaled[inside], split.normal) > split.offset]] = child
        return labels

    def merge(self, sums: Floats, groups: int) -> Floats:
        """Add up sums over the finest regions (count, ...) to those over ``groups`` regions."""
        merged = sums.copy()
        for child in range(self.count - 1, groups - 1, -1):
            merged[self.splits[child - 1].parent] += merged[child]
        return merged[:groups].copy()  # not a view, which would keep all of it


def grow(points: Floats, groups: int, *, standardise: bool) -> RegionTree:
    """Split points (n, d) into up to ``groups`` nested regions; fewer if there are fewer distinct points.

    ``standardise`` gives every column the same variance, so that units of measure do not matter.
    """
    points = np.asarray(points, dtype=np.float64)
    centre = points.mean(axis=0)
    scale = points.std(axis=0) if standardise else np.ones(points.shape[1])
    # A constant column has rounding for a standard deviation; blown up, it would decide the regions.
    scale = np.where(scale > 1e-12 * (np.abs(centre) + 1), scale, 1.0)
    scaled = (points - centre) / scale
    members = [np.arange(len(points))]
    spreads = [_spread(scaled)]
    splits: list[Split] = []
    while len(members) < groups:
        parent = _first_largest(np.array(spreads))
        if spreads[parent] <= 0:
            break
        inside = scaled[members[parent]]
        normal, offset = _bisect(inside)
        beyond = _product(inside, normal) > offset
        if not 0 < beyond.sum() < len(beyond):
            spreads[parent] = 0.0
            continue
        members.append(members[parent][beyond])
        members[parent] = members[parent][~beyond]
        spreads.append(_spread(inside[beyond]))
        spreads[parent] = _spread(inside[~beyond])
        splits.append(Split(parent, normal, offset))
    return RegionTree(centre, scale, splits)


def _spread(points: Floats) -> float:
    """Return the within-region sum of squares, 0 where all points are equal."""
    centred = points - points.mean(axis=0)
    total = float(np.einsum("ij,ij", centred, centred))
    return total if len(points) > 1 and total > 1e-20 * float(np.einsum("ij,ij", points, points)) else 0.0


def _bisect(points: Floats, rounds: int = 100) -> tuple[Floats, float]:
    """Split points by 2-means, started at the principal axis; return the plane between the two centres."""
    normal = _principal_axis(points)
    offset = float((normal * points.mean(axis=0)).sum())
    total, previous = points.sum(axis=0), np.zeros(0, dtype=bool)
    for _ in range(rounds):
        beyond = _product(points, normal) > offset
        size = int(beyond.sum())
        if not 0 < size < len(points) or np.array_equal(beyond, previous):
            break
        upper = points[beyond].sum(axis=0)
        above, below = upper / size, (total - upper) / (len(points) - size)
        normal, offset, previous = above - below, float((above**2 - below**2).sum() / 2), beyond
    return normal, offset


def _principal_axis(points: Floats) -> Floats:
    """Return the direction of largest variance; its largest entry is positive, so that its sign is settled."""
    centred = points - points.mean(axis=0)
    if points.shape[1] <= _EXACT_AXIS:
        scatter = _product(centred.T, centred)
        # Rounded, so that columns which vary alike (as in a factorial design) do so exactly, whatever the row order.
        unit = 1e-9 * np.abs(scatter).max()
        axis = torch.linalg.eigh(torch.from_numpy(np.round(scatter / unit)))[1][:, -1].numpy()
    else:
        axis = np.cos(np.arange(1.0, points.shape[1] + 1))
        for _ in range(50):
            axis = _product(centred.T, _product(centred, axis / _norm(axis)))
    return np.asarray(axis * np.sign(axis[_first_largest(np.abs(axis))]) / _norm(axis))


def _product(left: Floats, right: Floats) -> Floats:
    """Return left @ right by torch: numpy's threads spin on after a product, in the way of torch's own."""
    return np.asarray((torch.from_numpy(left) @ torch.from_numpy(right)).numpy())


def _norm(vector: Floats) -> float:
    return float(np.sqrt((vector**2).sum()))


def _first_largest(values: Floats) -> int:
    """Return the first of the largest values, taking those as equal that differ by rounding."""
    return int(np.argmax(values >= values.max() * (1 - 1e-9)))


#: Pairs that are looked at together where there are very many.
_PAIRS = 65536


def distances(curve: Sequence[Floats] | Floats) -> Floats:
    """Return the rank weighted distances Delta^2_M for M = 2, 3, ... of the score vectors of M = 1, 2, ...

    Scores are normalised to sum to 1, as in the authors' notebook. A single pair has no ranks to change;
    its distance is the squared change relative to its largest score.
    """
    from scipy.stats import rankdata

    scores = np.asarray(curve, dtype=np.float64)
    if scores.shape[1] == 1:
        return np.diff(scores[:, 0] / (scores.max() or 1.0)) ** 2
    # Two numbers of groups at a time: for thousands of units each row of scores is a large one.
    found, before = [], None
    for row in scores:
        now = row / (row.sum() or 1.0), rankdata(row)
        if before is not None:
            found.append(float(((now[0] - before[0]) ** 2 * (now[1] - before[1]) ** 2).sum()))
        before = now
    return np.asarray(found)


def curve(tree: RegionTree, signed: Floats, points: int) -> Floats:
    """Return the GEH (count, ...) for 1, 2, ..., count regions, from the sums (count, ...) over the finest."""
    scores = np.empty_like(signed)
    for start in range(0, signed.shape[-1], _PAIRS):
        sums = signed[..., start : start + _PAIRS].copy()
        for groups in range(tree.count, 0, -1):
            scores[groups - 1, ..., start : start + _PAIRS] = np.abs(sums[:groups]).sum(axis=0) / points
            if groups > 1:
                sums[tree.splits[groups - 2].parent] += sums[groups - 1]
    return scores


@dataclass(frozen=True)
class GroupChoice:
    """How many regions: the rank weighted distances and the number they suggest.

    ``delta[k]`` is Delta^2 for M = ``counts[k]`` groups, 2, 3, ...; ``scores[k]`` (P,) are the mean scores
    for k + 1 groups.

    >>> import torch, geh_explain as geh
    >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    >>> explainer.choose_groups(torch.randn(50, 2), max_groups=5, progress=False).chosen  # the same everywhere
    1
    """

    counts: Ints
    delta: Floats
    scores: Floats
    chosen: int

    def __repr__(self) -> str:
        return f"GroupChoice(chosen={self.chosen}, of 1 to {len(self.scores)} groups)"

    def plot(self, ax: Any = None) -> Any:
        """Draw the distances against the number of groups, with the chosen one marked."""
        from geh_explain.plots.delta import delta

        return delta(self, ax=ax)


def choose(scores: Floats) -> GroupChoice:
    """Choose the smallest M after which the scores and their ranks hardly change.

    ``scores`` (M, P) are the scores for 1, 2, ..., M groups. Hardly means that no later distance exceeds a
    twentieth of the largest one, or 1e-4: a hundredth of all interaction moving by one rank.
    """
    delta = distances(scores)
    moving = np.flatnonzero(delta > max(1e-4, 0.05 * delta.max(initial=0)))
    chosen = int(moving[-1]) + 2 if len(moving) else 1
    return GroupChoice(np.arange(2, len(delta) + 2), delta, scores, chosen)


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
