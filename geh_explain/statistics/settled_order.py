"""Whether further draws could change the order of the strongest pairs."""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats

#: Normal quantile of the Monte Carlo errors: an order that holds at this many standard errors is settled.
_Z = 2.0
#: Differences below this share of the strongest score do not matter.
_TOLERANCE = 0.02


def order_is_settled(mean: Floats, difference_error: Floats) -> bool:
    """Return whether the order of pairs is settled, but for differences that do not matter.

    Two neighbours in the order are settled if their difference d exceeds 2 standard errors of it, or if
    ``|d|`` + 2 standard errors are at most 2 % of the strongest score.

    Parameters
    ----------
    mean
        Mean scores (k,) of the strongest pairs, the strongest first.
    difference_error
        Monte Carlo standard errors (k - 1,) of the differences of neighbours.

    Examples
    --------
    >>> import numpy as np
    >>> order_is_settled(np.array([3.0, 2.0, 1.0]), np.array([0.1, 0.1]))
    True
    >>> order_is_settled(np.array([3.0, 2.0, 1.9]), np.array([0.1, 0.1]))
    False
    >>> order_is_settled(np.array([3.0, 2.0, 1.99]), np.array([0.1, 0.02]))
    True
    """
    difference, error = -np.diff(mean), _Z * difference_error
    certain = difference > error
    # Pairs that are all 0 in all draws have no order that could change.
    negligible = difference + error <= _TOLERANCE * mean[0]
    return bool((certain | negligible).all())
