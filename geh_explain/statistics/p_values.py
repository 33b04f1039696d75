"""P-values of pairs, and decisions at a false discovery rate.

Two p-values are computed from posterior draws. The Bayesian p-value of a score with posterior mean m and standard
deviation s is the Gaussian posterior probability of a score below 0 ::

    p = Phi(-m / s)

The sign rule tests the signed group means instead of the score. With mean m_g and standard deviation s_g of group g
over K draws ::

    t_g = |m_g| / (s_g sqrt(1 + 1 / K))          p_g = 2 P(T_{K-1} < -t_g)
    p   = min_k  M p_(k) / k                     p_(1) <= ... <= p_(M)      (Simes)

where T_{K-1} has Student's t distribution with K - 1 degrees of freedom and M is the number of groups.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain._validation import check_rate


def bayesian_p_value(mean: Floats, std: Floats) -> Floats:
    """Return Phi(-mean / std), the Gaussian posterior probability of a score below 0.

    It reproduces the p-values of the paper's Table 2. A score that is 0 in every draw has p-value 1.

    >>> import numpy as np
    >>> float(bayesian_p_value(np.array([0.901]), np.array([0.330]))[0].round(3))
    0.003
    """
    from scipy.special import ndtr

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((mean == 0) & (std == 0), 1.0, ndtr(-np.asarray(mean) / std))


def benjamini_hochberg(p_values: Floats, rate: float) -> NDArray[np.bool_]:
    """Return which tests are significant at a false discovery rate.

    The k smallest of n p-values are significant, with the largest k for which p_(k) <= ``rate`` k / n (Benjamini and
    Hochberg, 1995). The expected share of false discoveries is then at most ``rate`` if the tests are independent or
    positively dependent.

    >>> import numpy as np
    >>> benjamini_hochberg(np.array([0.01, 0.02, 0.04, 0.5]), rate=0.05).tolist()
    [True, True, False, False]
    """
    from scipy.stats import false_discovery_control

    check_rate(rate)
    return np.asarray(false_discovery_control(p_values) <= rate)


def sign_p_value(mean: Floats, std: Floats, draws: int) -> Floats:
    """Return the p-value (P,) of each pair under the hypothesis that all its group means are 0.

    A score is an absolute value, and noise alone moves it away from 0, so that its interval excludes 0 too often.
    Signed group means do not have this bias. If the posterior is calibrated, its centre is as far from the truth as its
    draws are from the centre; the mean of K draws adds 1 / K to that variance. Student's t accounts for the standard
    deviation being estimated from the draws. Simes' rule combines the groups; it is valid if groups are independent or
    positively dependent.

    Parameters
    ----------
    mean, std
        Mean and standard deviation over draws of the signed group means, both (M, P).
    draws
        Number of draws K, at least 2.

    Examples
    --------
    >>> import numpy as np
    >>> sign_p_value(np.array([[0.0, 3.0], [0.0, -3.0]]), np.ones((2, 2)), draws=1000).round(4).tolist()
    [1.0, 0.0028]
    """
    from scipy.special import stdtr

    with np.errstate(divide="ignore", invalid="ignore"):
        # 0 / 0 is a group in which the pair has no effect in any draw: no evidence, p-value 1.
        ratio = np.where((mean == 0) & (std == 0), 0.0, np.abs(mean) / std)
    sorted_p = np.sort(2 * stdtr(draws - 1, -ratio / np.sqrt(1 + 1 / draws)), axis=0)
    groups = len(sorted_p)
    return np.asarray(np.minimum(1.0, (sorted_p * groups / np.arange(1, groups + 1)[:, None]).min(axis=0)))
