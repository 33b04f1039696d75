"""The measures AEH, GEH and EAH.

The local interaction of units i and j at point n is the second derivative h_n = d2 g / du_i du_j of the output g. With
N points in M groups, group m holding n_m points ::

    AEH = | (1 / N) sum_n h_n |                      one group: opposite signs cancel over all points
    GEH = sum_m (n_m / N) | mean_{n in m} h_n |      opposite signs cancel within a group
    EAH = (1 / N) sum_n | h_n |                      nothing cancels

so that AEH <= GEH <= EAH. :func:`aeh` and :func:`geh` take sums over groups. EAH cannot be computed from these sums;
engines accumulate it point by point.

In all functions ``signed`` has shape (..., M, P): for each of M groups the sum of the local interactions of P pairs
over the points of the group. ``points`` is N. Pairs are in row-major order i < j. ``variance``, of the shape of
``signed``, is the variance of the sums where they are estimated with noise (Stein's engine), else 0. With case weights
w all means are weighted: sums are of w h, and n_m and N are sums of weights.
"""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats


def aeh(signed: Floats, points: float, variance: Floats | float = 0.0) -> Floats:
    """Return the absolute expected Hessian (..., P): absolute value of the mean over all points.

    >>> import numpy as np
    >>> aeh(np.array([[4.0], [-2.0]]), points=4)  # two groups, whose interactions sum to 4 and -2
    array([0.5])
    """
    total_variance = np.sum(variance, axis=-2) if np.ndim(variance) else variance
    return _absolute(signed.sum(axis=-2), total_variance) / points


def geh(signed: Floats, points: float, variance: Floats | float = 0.0) -> Floats:
    """Return the group expected Hessian (..., P): absolute group means, weighted by group size.

    The weight n_m / N of a group cancels with the division of its sum by n_m.

    >>> import numpy as np
    >>> geh(np.array([[4.0], [-2.0]]), points=4)
    array([1.5])
    """
    return np.asarray(_absolute(signed, variance).sum(axis=-2) / points)


def _absolute(signed: Floats, variance: Floats | float) -> Floats:
    """Return absolute values, corrected for estimation noise of the given ``variance``.

    Noise e inflates squares: E[(x + e)^2] = x^2 + var(e). So |x| is estimated by sqrt(max(signed^2 - variance, 0)).
    """
    return np.asarray(np.abs(signed) if np.ndim(variance) == 0 else np.sqrt(np.maximum(signed**2 - variance, 0)))
