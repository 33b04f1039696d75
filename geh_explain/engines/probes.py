"""Checks of outputs and second derivatives at a few points.

The outputs of a chunk are compared with those of a few of its rows (:class:`PartChoice`), the structured engine with
double backward (:func:`products_agree`). Double backward itself is checked in ``gradient_differences`` and
``custom_functions``.
"""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Ints
from geh_explain.data.rows import Rows
from geh_explain.model.cut import Cut

#: Part of the chunks in which second derivatives are checked, besides the first one: a check takes a few milliseconds,
#: a chunk of a small network ten.
_CHECKED_CHUNKS = 1 / 16
#: Part of the points of a chunk that are checked, at most.
_CHECKED_POINTS = 1 / 8
#: Rows of a chunk whose outputs are computed again in one batch, at most.
_PART_ROWS = 4
#: Part of the chunks in which outputs are compared once all points were seen.
_LATER_CHUNKS = 1 / 64
#: Smaller chunks are compared less often, and in two parts.
_LARGE_CHUNK = 80
#: Largest difference of two engines, relative to the size of an entry.
_RELATIVE = 1e-3
#: Rounding of a row of H v, relative to the largest entry of |H| |v| in the row. Without saturation 10 eps were seen.
_ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-9}
#: Rounding of saturated rows, whose H is a difference of larger numbers, relative to the mean of all compared rows:
#: less than this does not matter in a sum over points.
_SATURATED = {torch.float32: 3e-3, torch.float64: 1e-9}


def choose_points(rows: Rows, seed: int, max_rows: int, always: bool) -> Ints | None:
    """Return the points of a chunk at which second derivatives are checked, None in most chunks.

    They are random points from equal parts of the chunk, as indices (B, m) of the distinct points in ``rows``: other
    points in each of the B draws that are computed at once, at most ``max_rows`` in all.

    >>> from geh_explain.data.forward_args import ForwardArgs
    >>> rows = Rows((torch.zeros(800, 3),), ForwardArgs.of(None, (), 800)).repeat(2)
    >>> choose_points(rows, seed=0, max_rows=8, always=True) // 100
    array([[0, 2, 4, 6],
           [1, 3, 5, 7]])
    """
    # Not a generator of NumPy, which takes a tenth of a millisecond to make.
    generator = random.Random(seed + rows.start)
    if generator.random() >= _CHECKED_CHUNKS and not always:
        return None
    n_points = len(rows) // rows.repeats
    per_draw = max(1, int(min(max_rows, _CHECKED_POINTS * n_points)) // rows.repeats)
    count = per_draw * rows.repeats
    points = [int(n_points * (part + generator.random()) / count) for part in range(count)]
    return np.array(points).reshape(per_draw, rows.repeats).T


class PartChoice:
    """Chooses the rows of each chunk whose outputs are computed again, in batches of their own.

    A single row that changes the outputs of all others in its batch is hardly ever in a part of a large chunk. Small
    chunks have two parts without a common row. All chunks are checked until every point was seen, except some small
    ones, and one in 64 after that.

    >>> from geh_explain.data.forward_args import ForwardArgs
    >>> choice = PartChoice(n_points=800)
    >>> rows = Rows((torch.zeros(800, 3),), ForwardArgs.of(None, (), 800))
    >>> [len(part) for part in choice.parts(rows)], [len(part) for part in PartChoice(40).parts(rows[:40])]
    ([4], [4, 4])
    """

    def __init__(self, n_points: int) -> None:
        self._unseen = n_points
        self._started = False
        self._generator = random.Random(0)

    def parts(self, rows: Rows) -> list[list[int]]:
        """Return the indices of the rows in each part, the same points in all draws; no part in most chunks."""
        n_points = len(rows) // rows.repeats
        chance = min(1.0, n_points / _LARGE_CHUNK) * (1 if self._unseen > 0 else _LATER_CHUNKS)
        self._unseen -= n_points
        if self._generator.random() >= chance and self._started:
            return []
        self._started = True
        size = max(1, min(_PART_ROWS, int(n_points * _CHECKED_POINTS)))
        n_parts = 1 if n_points >= _LARGE_CHUNK else 2
        points = self._generator.sample(range(n_points), min(n_points, n_parts * size))
        draws = range(0, len(rows), n_points)
        return [[start + point for start in draws for point in part] for part in (points[:size], points[size:]) if part]


def random_directions(cut: Cut, rows: Rows, seed: int) -> Tensor:
    """Return one random direction per row (n, D) in the space of the units."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(rows), cut.n_units, generator=generator, dtype=torch.double).to(cut.device, cut.dtype)


def products_agree(found: Tensor, expected: Tensor, sizes: Tensor) -> bool:
    """Return whether two products H v (n, D) of Hessians and directions are equal up to rounding, entry by entry.

    ``sizes`` (n, D) are the products ``|H| |v|`` of the absolute values, the scale of the entries before any of them
    cancel.
    """
    largest = sizes.amax(dim=1, keepdim=True)
    rounding = _ROUNDING.get(expected.dtype, 1e-4) * largest + _SATURATED.get(expected.dtype, 3e-3) * largest.mean()
    # Not "any entry is larger", which is false for NaN.
    return bool(((found - expected).abs() <= _RELATIVE * sizes + rounding).all())
