"""Credible intervals of posterior draws.

With posterior mean m, standard deviation s and level q (0.95, say), the Gaussian interval is ::

    m - z s,  m + z s        z = Phi^-1((1 + q) / 2)

where Phi is the standard normal distribution function. At q = 0.95 the multiplier is z = 2 instead of 1.96, as in the
paper. The quantile interval holds the draws between their quantiles (1 - q) / 2 and (1 + q) / 2.

Both are intervals over draws. Those of tables count the points, too, and the number of draws.
"""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain._validation import check_level


def std_multiplier(level: float) -> float:
    """Return z, the half-width in standard deviations of a Gaussian interval at ``level``.

    >>> std_multiplier(0.95), round(std_multiplier(0.5), 3)
    (2.0, 0.674)
    """
    from scipy.special import ndtri

    check_level(level)
    # The paper's 95 % interval is m -+ 2 s, so that 1.96 is rounded to 2.
    return 2.0 if level == 0.95 else float(ndtri((1 + level) / 2))


def predictive_half_width(std: Floats, draws: int, level: float) -> Floats:
    """Return t s sqrt(1 + 1 / K): half the width of the interval that holds one more draw at ``level``.

    s is the standard deviation ``std`` over K = ``draws`` draws and t a quantile of Student's distribution with K - 1
    degrees of freedom. A single draw has no spread, and gives 0.

    >>> import numpy as np
    >>> [float(predictive_half_width(np.array(1.0), draws, 0.95).round(2)) for draws in (5, 400)]
    [3.04, 1.97]
    """
    from scipy.special import stdtrit

    check_level(level)
    if draws < 2:
        return np.zeros_like(std)
    return np.asarray(stdtrit(draws - 1, (1 + level) / 2) * np.sqrt(1 + 1 / draws) * std)


def mean_half_width(std: Floats, draws: int, errors: Floats | None, counts: Floats | Ints, level: float) -> Floats:
    """Return half the width (M, ...) of the intervals of group means, over draws and points.

    sqrt(v^2 + (t e)^2) for the half-width v over draws and the standard ``errors`` e of the means over ``counts``,
    (M,) or (M, ...), points or clusters of points, t with counts - 1 degrees of freedom. NaN where there is one draw
    and no error.

    >>> import numpy as np
    >>> mean_half_width(np.array([np.nan]), 1, np.array([1.0]), np.array([10]), 0.95).round(2).tolist()
    [2.26]
    """
    from scipy.special import stdtrit

    half = predictive_half_width(std, draws, level)
    if errors is None:
        return half if draws > 1 else np.full_like(std, np.nan)
    quantile = stdtrit(np.maximum(np.asarray(counts) - 1.0, 0.5), (1 + level) / 2)
    quantile = quantile.reshape(*quantile.shape, *(1 for _ in errors.shape[quantile.ndim :]))
    return np.asarray(np.hypot(half, quantile * errors))


def gaussian_interval(mean: Floats, std: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return the ends (low, high) of Gaussian intervals, each of the shape of ``mean``.

    Parameters
    ----------
    mean, std
        Posterior means and standard deviations, of the same shape. NaN in ``std`` gives NaN ends.
    level
        Credible level in (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> [float(end) for end in gaussian_interval(np.array(3.0), np.array(1.0), 0.95)]
    [1.0, 5.0]
    """
    half_width = std_multiplier(level) * std
    return mean - half_width, mean + half_width


def quantile_interval(draws: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return the ends (low, high) of the central intervals that hold a share ``level`` of the draws.

    Parameters
    ----------
    draws
        Posterior draws (K, ...), draws along the first axis. Quantiles between draws are interpolated linearly.
    level
        Credible level in (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> [end.round(2).tolist() for end in quantile_interval(np.arange(101.0)[:, None], 0.9)]
    [[5.0], [95.0]]
    """
    check_level(level)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.asarray(low), np.asarray(high)
