"""TODO."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from geh_explain._types import Floats
from geh_explain.data.points import Points
from geh_explain.model.cut import Cut
from geh_explain.units.channels import Channels

#: Regions are found from a sample of at most this many points and bytes; all points are assigned to them.
MAX_POINTS, _MOST_BYTES = 20_000, 2**30
#: However little memory there is, a sample of this size is taken.
_FEW_BYTES = 2**25


def positions(cut: Cut, points: Points, batch_size: int | None) -> Iterator[Floats]:
    """Yield where the points lie (n, d), piece by piece.

    That is their flattened inputs, or the layer's activations, feature maps by the means of their channels.
    """
    for rows in points.split(batch_size):
        activations = cut.activations(rows)
        if cut.layer is not None and activations.ndim > 2:
            activations = Channels().bind(cut.shape, cut.layout, None).values(activations)
        yield activations.flatten(1).double().cpu().numpy()


def sample(pieces: Iterator[Floats], seed: int, most_bytes: int = _MOST_BYTES) -> Floats:
    """Keep all points, in order, or a uniform sample of them where they are too many."""
    generator = np.random.default_rng(seed)
    kept, keys, most, count = [], [], MAX_POINTS, 0
    for piece in pieces:
        kept.append(piece)
        keys.append(generator.random(len(piece)))
        most = max(2, min(MAX_POINTS, most_bytes // (8 * piece.shape[1])))
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
