"""TODO."""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats
from geh_explain._validation import check_level


def width(level: float) -> float:
    """Return how many standard deviations a Gaussian interval reaches: 2 for 95 %, as in the paper."""
    from scipy.special import ndtri

    check_level(level)
    return 2.0 if level == 0.95 else float(ndtri((1 + level) / 2))


def gaussian_interval(mean: Floats, std: Floats, level: float) -> tuple[Floats, Floats]:
    """Return mean -+ ``width(level)`` standard deviations.

    >>> import numpy as np
    >>> [float(end) for end in gaussian_interval(np.array(3.0), np.array(1.0), 0.95)]
    [1.0, 5.0]
    """
    reach = width(level) * std
    return mean - reach, mean + reach


def quantile_interval(draws: Floats, level: float) -> tuple[Floats, Floats]:
    """Return the central interval that holds a share ``level`` of the draws (axis 0).

    >>> import numpy as np
    >>> [end.round(2).tolist() for end in quantile_interval(np.arange(101.0)[:, None], 0.9)]
    [[5.0], [95.0]]
    """
    check_level(level)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.asarray(low), np.asarray(high)
