"""A look at the data before the work: where the points lie, which belong together, how widely units vary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from geh_explain.cut import Cut
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.groups import Grouping, RegionTree, check_groups, from_clusterer, from_labels, from_tree, grow
from geh_explain.points import Points, Rows
from geh_explain.units import Channels

Floats = NDArray[np.float64]

#: Regions are found from a sample of at most this many points and bytes; all points are assigned to them.
MOST_POINTS, _MOST_BYTES = 20_000, 2**30
#: However little memory there is, a sample of this size is taken.
_FEW_BYTES = 2**25


#: The most groups that are tried where their number is open.
MOST_GROUPS = 60


def find_groups(
    cut: Cut,
    points: Points,
    groups: Any,
    batch_size: int | None,
    seed: int,
    most: int = MOST_GROUPS,
    budget: int = 16 * _MOST_BYTES,
) -> tuple[Grouping, RegionTree | None]:
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
    if tree.count < wanted and not isinstance(groups, str):
        raise GEHValueError(
            f"groups={wanted}, but the points fall into only {tree.count} distinct places; use at most as many."
        )
    pieces = [where] if len(where) == len(points) else positions(cut, points, batch_size)
    labels = np.concatenate([tree.labels(piece) for piece in pieces])
    return from_tree(tree, labels, tree.count), tree if isinstance(groups, str) else None


def positions(cut: Cut, points: Points, batch_size: int | None) -> Iterator[Floats]:
    """Yield where the points lie (n, d), piece by piece.

    That is their flattened inputs, or the layer's activations, feature maps by the means of their channels.
    """
    for rows in points.pieces(batch_size):
        activations = cut.activations(rows)
        if cut.layer is not None and activations.ndim > 2:
            activations = Channels().bind(cut.shape, cut.layout, None).values(activations)
        yield activations.flatten(1).double().cpu().numpy()


def sample(pieces: Iterator[Floats], seed: int, most_bytes: int = _MOST_BYTES) -> Floats:
    """Keep all points, in order, or a uniform sample of them where they are too many."""
    generator = np.random.default_rng(seed)
    kept, keys, most, count = [], [], MOST_POINTS, 0
    for piece in pieces:
        kept.append(piece)
        keys.append(generator.random(len(piece)))
        most = max(2, min(MOST_POINTS, most_bytes // (8 * piece.shape[1])))
        count += len(piece)
        if count > 2 * most:
            kept, keys = _lowest(kept, keys, most)
            count = most
    return _lowest(kept, keys, most)[0][0]


def _lowest(kept: list[Floats], keys: list[Floats], most: int) -> tuple[list[Floats], list[Floats]]:
    points, order = np.concatenate(kept), np.concatenate(keys)
    if len(points) > most:
        chosen = np.sort(np.argpartition(order, most)[:most])
        points, order = points[chosen], order[chosen]
    return [points], [order]


def unit_factors(cut: Cut, points: Points, scale: Any, batch_size: int | None) -> Floats:
    """Return what ``scale`` multiplies each unit by (D,)."""
    if scale is None:
        return np.ones(cut.count)
    if isinstance(scale, str):
        if scale != "std":
            raise GEHValueError(f"scale={scale!r} is unknown; use None, 'std' or an array with one number per unit.")
        return unit_moments(cut, points, batch_size)[1]
    try:
        factors = np.asarray(scale.tolist() if isinstance(scale, Tensor) else scale, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GEHTypeError(
            f"scale={scale!r} is not an array of numbers; give one for each of the {cut.count} units, or 'std' or None."
        ) from error
    if factors.shape != (cut.count,) or not np.isfinite(factors).all():
        raise GEHValueError(
            f"scale has shape {factors.shape}; give one finite number for each of the {cut.count} units of {cut.place}."
        )
    return factors


def unit_moments(cut: Cut, points: Points, batch_size: int | None) -> tuple[Floats, Floats]:
    """Return mean and standard deviation, each (D,), of the units' values over the points."""
    count, mean, squares = 0, np.zeros(cut.count), np.zeros(cut.count)
    for rows in points.pieces(batch_size):
        values = cut.units.values(cut.activations(rows)).double().cpu().numpy()
        # Chan's update: the same for any chunking, and safe for large means.
        total, delta = count + len(rows), values.mean(axis=0) - mean
        squares += ((values - values.mean(axis=0)) ** 2).sum(axis=0) + delta**2 * count * len(rows) / total
        mean, count = mean + delta * len(rows) / total, total
    return mean, np.asarray(np.sqrt(squares / count))


def _is_table(cut: Cut, rows: Rows) -> bool:
    """Tell whether the points are rows of a table, whose columns each have a unit of measure."""
    return cut.layer is None and all(x.ndim == 2 for x in rows.inputs)
