"""From posterior draws to decisions: intervals and p-values. Pure functions of arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain._validation import check_rate


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
