"""The largest entries of sum_m |W^T S_m W| over all pairs of columns of W, without forming the matrix.

Units enter a narrow layer through a linear map W (d, D). With S_m (d, d) the sum of the Hessians at the layer over the
points of group m, divided by the number of all points, w_i the columns of W and f the factors of the units,

    GEH_ij = sum over m of |f_i f_j w_i^T S_m w_j|.

By Cauchy-Schwarz, with |S_m| the matrix of the absolute eigenvalues of S_m,

    |w_i^T S_m w_j| <= |S_m|^(1/2) w_i  |S_m|^(1/2) w_j  (norms),    hence    GEH_ij <= q_i q_j,
    q_i^2 = f_i^2 sum over m of w_i^T |S_m| w_i.

Units are sorted by q, the largest first, and cut into blocks. Blocks of rows are compared with blocks of columns, the
units with the largest bounds first. The smallest score of the pairs that were found so far is the threshold: pairs with
a smaller bound are left out, whole blocks at a time, and the search ends at the first block of rows that has no other
pairs. Products are taken in single precision. Pairs that exceed the threshold minus a bound of the rounding error are
computed again in double precision, so that the pairs are those of the full computation in double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.units.pair_set import count_pairs

#: Units of a block of rows, and of one of columns: their products in single precision fit into the caches.
_BLOCK_ROWS, _BLOCK_COLUMNS = 512, 2048
#: Up to so many pairs of a block are computed again one by one, others as a product of matrices.
_MAX_SINGLE = 2**14
#: Rounding of eigenvalues and of bounds, relative to the largest eigenvalue.
_SLACK = 1e-12
#: Unit roundoff of single precision, with a factor of 2 to be on the safe side, and what underflow may add to a score.
_ROUNDING, _UNDERFLOW = 2.0**-23, 1e-30


@dataclass(frozen=True)
class TopPairs:
    """The strongest pairs, the strongest first, and what it took to find them.

    Attributes
    ----------
    first, second
        Indices (K,) of the units of each pair, first < second.
    scores
        Their scores (K,).
    skipped
        Share of all pairs that were left out because of their bounds.
    """

    first: Ints
    second: Ints
    scores: Floats
    skipped: float


def find_top_pairs(
    linear_map: Any,
    hessians: Floats,
    factors: Floats,
    top: int,
    report: Callable[[float], object] | None = None,
) -> TopPairs:
    """Return the ``top`` pairs with the largest sum_m |f_i f_j w_i^T S_m w_j|, exactly.

    Pairs of equal score are in row-major order. Where fewer than ``top`` pairs have scores other than 0, the first ones
    of the others follow.

    Parameters
    ----------
    linear_map
        The map W (d, D), an array.
    hessians
        Symmetric matrices S_m, shape (M, d, d).
    factors
        Factors f (D,) of the units.
    top
        How many pairs, at most D (D - 1) / 2.
    report
        Is called with the share of all pairs that is done since the last call.

    Examples
    --------
    >>> import numpy as np
    >>> linear_map = np.array([[1.0, 0.0, 2.0, 1.0]])  # one narrow unit z = x0 + 2 x2 + x3 with f = 3 z^2 / 2
    >>> found = find_top_pairs(linear_map, np.array([[[3.0]]]), np.ones(4), top=2)
    >>> found.first.tolist(), found.second.tolist(), found.scores.tolist()
    ([0, 2], [2, 3], [6.0, 6.0])
    """
    columns = np.asarray(linear_map, dtype=np.float64).T * factors[:, None]
    columns, column_scale = _scaled(columns)
    hessians, hessian_scale = _scaled(np.asarray(hessians, dtype=np.float64))
    bounds = _bounds(columns, hessians)
    order = np.argsort(-bounds, kind="stable")
    order = order[: np.count_nonzero(bounds)]
    search = _Search(columns[order], hessians, bounds[order], order, top)
    search.run(report or _ignore, count_pairs(len(bounds)))
    found = search.result(len(bounds))
    scores = found.scores * (column_scale**2 * hessian_scale)
    return TopPairs(found.first, found.second, scores, found.skipped)


def _ignore(share: float) -> None:
    """Take a report that nobody asked for."""


def _scaled(values: Floats) -> tuple[Floats, float]:
    """Return values whose largest is about 1, and the power of two that they were divided by."""
    largest = float(np.abs(values).max(initial=0.0))
    scale = 2.0 ** np.frexp(largest)[1] if largest else 1.0
    return values / scale, float(scale)


def _bounds(columns: Floats, hessians: Floats) -> Floats:
    """Return q (D,) of the units' ``columns`` (D, d); 0 only where a score cannot be other than 0."""
    total, largest = np.zeros(hessians.shape[1:]), 0.0
    for hessian in hessians:
        values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
        total += (vectors * np.abs(values)) @ vectors.T
        largest += float(np.abs(values).max(initial=0.0))
    squares = np.einsum("ij,ij->i", columns @ total, columns)
    # What rounding may have taken away.
    squares = np.maximum(squares, 0) + _SLACK * largest * np.einsum("ij,ij->i", columns, columns)
    return np.asarray(np.sqrt(squares))


class _Search:
    """State of a search: the pairs that were found so far, and their smallest score.

    Parameters
    ----------
    columns
        Columns (n, d) of the units, sorted by their bounds.
    hessians
        Matrices (M, d, d).
    bounds
        Bounds q (n,) of the units, the largest first.
    units
        Indices (n,) of the units.
    top
        How many pairs are wanted.
    """

    def __init__(self, columns: Floats, hessians: Floats, bounds: Floats, units: Ints, top: int) -> None:
        self._columns, self._hessians, self._bounds, self._units, self._top = columns, hessians, bounds, units, top
        self._single = columns.astype(np.float32)
        self._norms = np.linalg.norm(columns, axis=1)
        self._found = TopPairs(np.arange(0), np.arange(0), np.zeros(0), 0.0)
        self._n_compared = 0
        self._buffers = np.empty((2, _BLOCK_ROWS * _BLOCK_COLUMNS), dtype=np.float32)
        #: Error of a score in single precision, relative to the norms of both factors of the products.
        self._error = (columns.shape[1] + len(hessians) + 8) * _ROUNDING

    @property
    def threshold(self) -> float:
        """The smallest score that a further pair needs; negative while there are too few pairs."""
        return float(self._found.scores[-1]) if len(self._found.scores) == self._top else -1.0

    def run(self, report: Callable[[float], object], n_pairs: int) -> None:
        """Compare all blocks whose bounds reach the threshold."""
        n_units, bounds = len(self._bounds), self._bounds
        for start in range(0, n_units, _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, n_units)
            if bounds[start] ** 2 < self.threshold:
                return
            halves = self._columns[start:stop] @ self._hessians  # (M, rows, d)
            single, norms = halves.astype(np.float32), np.linalg.norm(halves, axis=2).sum(axis=0)
            for left in range(start, n_units, _BLOCK_COLUMNS):
                threshold = self.threshold
                if bounds[start] * bounds[left] < threshold:
                    break
                right = min(left + _BLOCK_COLUMNS, n_units)
                # Bounds are sorted: the rows and columns that reach the threshold come first.
                n_rows = _count_reaching(bounds[start:stop], bounds[left], threshold)
                n_columns = _count_reaching(bounds[left:right], bounds[start], threshold)
                block = _Block(start, start + n_rows, left, left + n_columns)
                self._compare(block, single[:, :n_rows], norms[:n_rows])
            report((stop - start) * (2 * n_units - start - stop - 1) / 2 / max(1, n_pairs))

    def _compare(self, block: _Block, halves: Any, norms: Floats) -> None:
        """Add the pairs of a block that are stronger than the threshold.

        ``halves`` (M, rows, d) are the products with the matrices, ``norms`` (rows,) the sums of their norms over M.
        """
        shape = block.stop - block.start, block.right - block.left
        scores, product = (buffer[: shape[0] * shape[1]].reshape(shape) for buffer in self._buffers)
        right = self._single[block.left : block.right].T
        for number, half in enumerate(halves):
            target = product if number else scores
            np.matmul(half, right, out=target)
            np.abs(target, out=target)
            if number:
                np.add(scores, product, out=scores)
        self._n_compared += block.count()
        if block.left < block.stop:
            # Each pair once: on and below the diagonal a score of -2 is below any threshold.
            scores[np.arange(shape[0])[:, None] + block.start >= np.arange(shape[1]) + block.left] = -2.0
        error = self._error * float(norms.max()) * float(self._norms[block.left : block.right].max()) + _UNDERFLOW
        threshold = max(self.threshold, self._smallest_of_top(scores) - error)
        limit = np.float32(max(-1.0, threshold - error))
        chosen = np.flatnonzero(scores >= np.nextafter(limit, np.float32(-np.inf)))
        if len(chosen):
            self._add(*self._exact(block, *np.divmod(chosen, shape[1])))

    def _smallest_of_top(self, scores: Any) -> float:
        """Return the last of the largest scores of a block, while the threshold leaves most of them; else -1."""
        if self.threshold >= 0 or scores.size <= self._top:
            return -1.0
        return float(np.partition(scores, scores.size - self._top, axis=None)[scores.size - self._top])

    def _exact(self, block: _Block, rows: Ints, columns: Ints) -> tuple[Ints, Ints, Floats]:
        """Return the places of some pairs of a block, and their scores in double precision."""
        first, second = rows + block.start, columns + block.left
        if len(rows) > _MAX_SINGLE:
            left, right = self._columns[block.start : block.stop], self._columns[block.left : block.right]
            scores = np.zeros(len(rows))
            for hessian in self._hessians:
                scores += np.abs((left @ hessian @ right.T)[rows, columns])
            return first, second, scores
        left, right = self._columns[first], self._columns[second]
        terms = (np.einsum("pd,pd->p", left @ hessian, right) for hessian in self._hessians)
        return first, second, np.asarray(sum(map(np.abs, terms)))

    def _add(self, first: Ints, second: Ints, scores: Floats) -> None:
        """Join pairs, given by their places in the order of bounds, with those that were found, and keep the top."""
        ends = self._units[first], self._units[second]
        found = self._found
        low = np.concatenate([found.first, np.minimum(*ends)])
        high = np.concatenate([found.second, np.maximum(*ends)])
        scores = np.concatenate([found.scores, scores])
        kept = np.lexsort((high, low, -scores))[: self._top]
        self._found = TopPairs(low[kept], high[kept], scores[kept], 0.0)

    def result(self, n_units: int) -> TopPairs:
        """Return the pairs that were found among ``n_units`` units, filled up with pairs of score 0."""
        found = self._found
        known = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
        others = _other_pairs(n_units, known, self._top - len(known))
        first, second = (np.append(part, others[:, end]) for end, part in enumerate((found.first, found.second)))
        scores = np.append(found.scores, np.zeros(len(others)))
        return TopPairs(first, second, scores, 1 - self._n_compared / max(1, count_pairs(n_units)))


@dataclass(frozen=True)
class _Block:
    """Rows ``start`` to ``stop`` and columns ``left`` to ``right`` of the matrix of scores; left >= start."""

    start: int
    stop: int
    left: int
    right: int

    def count(self) -> int:
        """Return the number of its entries above the diagonal."""
        rows = np.arange(self.start, self.stop)
        return int(np.maximum(self.right - np.maximum(self.left, rows + 1), 0).sum())


def _count_reaching(bounds: Floats, largest: float, threshold: float) -> int:
    """Return how many of the sorted ``bounds`` reach the threshold with the ``largest`` of the others, at least one."""
    return max(1, int(np.count_nonzero(bounds * largest >= threshold)))


def _other_pairs(n_units: int, known: set[tuple[int, int]], count: int) -> Ints:
    """Return the first ``count`` pairs (count, 2) that are not known, in row-major order."""
    found: list[tuple[int, int]] = []
    first, second = 0, 1
    while len(found) < count:
        if (first, second) not in known:
            found.append((first, second))
        first, second = (first, second + 1) if second + 1 < n_units else (first + 1, first + 2)
    return np.array(found, dtype=np.int64).reshape(-1, 2)
