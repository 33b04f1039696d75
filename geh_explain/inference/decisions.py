"""From posterior draws to decisions: intervals and p-values. Pure functions of arrays."""

from __future__ import annotations

import numbers

import numpy as np
from numpy.typing import NDArray

from geh_explain.errors import GEHTypeError, GEHValueError

Floats = NDArray[np.float64]

#: Of more pairs than this some stand for all where their order is compared.
_MOST_RANKED = 2**20


def check_level(level: float) -> None:
    """Refuse a credible level outside (0, 1)."""
    check_share("level", level, 0.95)


def check_rate(rate: float) -> None:
    """Refuse a false discovery rate outside (0, 1)."""
    check_share("fdr", rate, 0.05)


def check_share(name: str, value: float, usual: float) -> None:
    """Refuse a number outside (0, 1)."""
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


def sign_p_value(mean: Floats, std: Floats, draws: int) -> Floats:
    """Return a p-value (P,) per pair from the signed means of its regions, each (M, P) with its posterior spread.

    The strength of an interaction is an absolute value, which noise alone moves away from 0: its interval says little
    about whether there is one at all. Signed means are not biased so. If the posterior is calibrated, its centre is as
    far from the truth as its draws are from the centre; the mean of K draws adds 1 / K to that variance. So each region
    gives the two-sided tail of mean / (std sqrt(1 + 1 / K)) under Student's t with K - 1 degrees of freedom, as the
    spread is estimated from the draws. Simes' rule combines regions into one p-value: the smallest of M p_(k) / k over
    the sorted p_(1) <= ... <= p_(M), which is a p-value if regions are independent or positively dependent.

    >>> import numpy as np
    >>> sign_p_value(np.array([[0.0, 3.0], [0.0, -3.0]]), np.ones((2, 2)), draws=1000).round(4).tolist()
    [1.0, 0.0028]
    """
    from scipy.special import stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((mean == 0) & (std == 0), 0.0, np.abs(mean) / std)
    each = np.sort(2 * stdtr(draws - 1, -ratio / np.sqrt(1 + 1 / draws)), axis=0)
    count = len(each)
    return np.asarray(np.minimum(1.0, (each * count / np.arange(1, count + 1)[:, None]).min(axis=0)))


def reliability(draws: Floats) -> float:
    """Return how far the draws (K, P) settle the order of the pairs: 1 if another K draws would give the same.

    It is the rank correlation of the means of every other draw, brought to all of them (Spearman and Brown).

    >>> import numpy as np
    >>> noise = np.random.default_rng(0).normal(size=(200, 50))
    >>> reliability(noise + np.arange(50)) > 0.99, reliability(noise) < 0.5
    (True, True)
    """
    some = draws[:, :: draws.shape[1] // _MOST_RANKED + 1]
    halves = [some[start::2].mean(axis=0) for start in (0, 1)]
    ranks = [np.argsort(np.argsort(half, kind="stable"), kind="stable") for half in halves]
    correlation = float(np.asarray(np.corrcoef(np.stack(ranks)))[0, 1])
    return 2 * correlation / (1 + correlation) if correlation > 0 else 0.0
