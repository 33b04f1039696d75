"""A look at the data before the work: where the points lie, and how widely each unit varies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from geh_explain.attach import Cut
from geh_explain.points import Points, Rows
from geh_explain.units import Channels

Floats = NDArray[np.float64]

#: Regions are found from a sample of at most this many points and bytes; all points are assigned to them.
MOST_POINTS, _MOST_BYTES = 20_000, 2**30


def positions(cut: Cut, points: Points, batch_size: int | None) -> Iterator[Floats]:
    """Yield where the points lie (n, d), piece by piece.

    That is their flattened inputs, or the layer's activations, feature maps by the means of their channels.
    """
    for rows in _pieces(points, batch_size):
        activations = cut.activations(rows)
        if cut.layer is not None and activations.ndim > 2:
            activations = Channels().bind(cut.shape, cut.layer, None).values(activations)
        yield activations.flatten(1).double().cpu().numpy()


def sample(pieces: Iterator[Floats], seed: int) -> Floats:
    """Keep all points, in order, or a uniform sample of them where they are too many."""
    generator = np.random.default_rng(seed)
    kept, keys, most, count = [], [], MOST_POINTS, 0
    for piece in pieces:
        kept.append(piece)
        keys.append(generator.random(len(piece)))
        most = max(2, min(MOST_POINTS, _MOST_BYTES // (8 * piece.shape[1])))
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


def unit_std(cut: Cut, points: Points, batch_size: int | None) -> Floats:
    """Return the standard deviation (D,) of each unit's value over the points."""
    count, mean, squares = 0, np.zeros(cut.count), np.zeros(cut.count)
    for rows in _pieces(points, batch_size):
        values = cut.units.values(cut.activations(rows)).double().cpu().numpy()
        # Chan's update: the same for any chunking, and safe for large means.
        total, delta = count + len(rows), values.mean(axis=0) - mean
        squares += ((values - values.mean(axis=0)) ** 2).sum(axis=0) + delta**2 * count * len(rows) / total
        mean, count = mean + delta * len(rows) / total, total
    return np.asarray(np.sqrt(squares / count))


def is_table(cut: Cut, rows: Rows) -> bool:
    """Tell whether the points are rows of a table, whose columns each have a unit of measure."""
    return cut.layer is None and all(x.ndim == 2 for x in rows.inputs)


def _pieces(points: Points, batch_size: int | None) -> Iterator[Rows]:
    return (piece for rows in points.batches() for piece in rows.split(batch_size or 256))
