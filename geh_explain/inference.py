"""From posterior draws to decisions: intervals, p-values, error rates. Pure functions of arrays."""

from __future__ import annotations

import numbers

import numpy as np
from numpy.typing import NDArray

from geh_explain.errors import GEHTypeError, GEHValueError

Floats = NDArray[np.float64]


def check_level(level: float) -> None:
    """Refuse a credible level outside (0, 1)."""
    _check_share("level", level, 0.95)


def check_rate(rate: float) -> None:
    """Refuse a false discovery rate outside (0, 1)."""
    _check_share("fdr", rate, 0.05)


def _check_share(name: str, value: float, usual: float) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise GEHTypeError(f"{name}={value!r} must be a number between 0 and 1, for instance {usual}.")
    if not 0 < value < 1:
        raise GEHValueError(f"{name}={value!r} must lie between 0 and 1, for instance {usual}.")


def width(level: float) -> float:
    """Return how many standard deviations a Gaussian interval reaches: 2 for 95 %, as in the paper."""
    from scipy.special import ndtri

    check_level(level)
    return 2.0 if level == 0.95 else float(ndtri((1 + level) / 2))


def gaussian_interval(mean: Floats, std: Floats, level: float) -> tuple[Floats, Floats]:
    """Return mean -+ ``width(level)`` standard deviations."""
    reach = width(level) * std
    return mean - reach, mean + reach


def quantile_interval(draws: Floats, level: float) -> tuple[Floats, Floats]:
    """Return the central interval that holds a share ``level`` of the draws (axis 0)."""
    check_level(level)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.asarray(low), np.asarray(high)


def bayesian_p_value(mean: Floats, std: Floats) -> Floats:
    """Return Phi(-mean / std), the Gaussian posterior probability of a score below 0.

    This reproduces the paper's Table 2. A score that is 0 in every draw gets 1.

    >>> import numpy as np
    >>> float(bayesian_p_value(np.array([0.901]), np.array([0.330]))[0].round(3))
    0.003
    """
    from scipy.special import ndtr

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((mean == 0) & (std == 0), 1.0, ndtr(-np.asarray(mean) / std))


def benjamini_hochberg(p_values: Floats, rate: float) -> NDArray[np.bool_]:
    """Tell which tests to call significant so that the expected false discovery rate is at most ``rate``.

    >>> import numpy as np
    >>> benjamini_hochberg(np.array([0.01, 0.02, 0.04, 0.5]), rate=0.05).tolist()
    [True, True, False, False]
    """
    from scipy.stats import false_discovery_control

    check_rate(rate)
    return np.asarray(false_discovery_control(p_values) <= rate)
