"""TODO."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from geh_explain._types import Floats, Ints

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
