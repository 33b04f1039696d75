"""Credible intervals of posterior draws.

With posterior mean m, standard deviation s and level q (0.95, say), the Gaussian interval is ::

    m - z s,  m + z s        z = Phi^-1((1 + q) / 2)

where Phi is the standard normal distribution function. At q = 0.95 the multiplier is z = 2 instead of 1.96, as in the
paper. The quantile interval holds the draws between their quantiles (1 - q) / 2 and (1 + q) / 2.
"""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats
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


def total_std(std: Floats, errors: Floats | None) -> Floats:
    """Return sqrt(std^2 + errors^2): the spread over draws ``std`` and the standard ``errors`` of the points.

    NaN in ``std``, of a single draw, counts as 0 if there are ``errors``; None is unknown errors, which are left out.

    >>> import numpy as np
    >>> total_std(np.array([3.0, np.nan]), np.array([4.0, 4.0])).tolist()
    [5.0, 4.0]
    """
    return std if errors is None else np.hypot(np.nan_to_num(std), errors)


def gaussian_interval(mean: Floats, std: Floats, level: float) -> tuple[Floats, Floats]:
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


def quantile_interval(draws: Floats, level: float) -> tuple[Floats, Floats]:
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
