"""AEH, GEH and EAH from sums of local Hessians over groups: pure functions of arrays.

``signed`` has shape (..., M, P): for each of M groups the sum of the local interactions of P pairs over
the group's points; ``points`` is their total number N. Pairs are in row-major order i < j. ``variance``, of the
same shape, is that of the sums where they are estimated with noise.
"""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats


def aeh(signed: Floats, points: int, variance: Floats | float = 0.0) -> Floats:
    """Return the absolute expected Hessian (..., P): one group, in which opposite signs cancel."""
    return _size(signed.sum(axis=-2), np.sum(variance, axis=-2) if np.ndim(variance) else variance) / points


def geh(signed: Floats, points: int, variance: Floats | float = 0.0) -> Floats:
    """Return the group expected Hessian (..., P): the groups' absolute means, weighted by their sizes.

    >>> import numpy as np
    >>> geh(np.array([[4.0], [-2.0]]), points=3)  # two groups, whose interactions sum to 4 and -2
    array([2.])
    """
    return np.asarray(_size(signed, variance).sum(axis=-2) / points)


def _size(signed: Floats, variance: Floats | float) -> Floats:
    """Return absolute values, less what noise of the given ``variance`` adds to them: E[(x + e)^2] = x^2 + var e."""
    return np.asarray(np.abs(signed) if np.ndim(variance) == 0 else np.sqrt(np.maximum(signed**2 - variance, 0)))


def matrix(pairs: Floats, units: int) -> Floats:
    """Return the symmetric matrix (D, D) with zero diagonal that has ``pairs`` (P,) off it."""
    full = np.zeros((units, units))
    full[np.triu_indices(units, 1)] = pairs
    return full + full.T


def pair_index(i: int, j: int, units: int) -> int:
    """Return where the pair (i, j) stands among the pairs.

    >>> [pair_index(0, 1, 4), pair_index(3, 0, 4), pair_index(2, 3, 4)]
    [0, 2, 5]
    """
    low, high = min(i, j), max(i, j)
    return low * units - low * (low + 1) // 2 + high - low - 1
