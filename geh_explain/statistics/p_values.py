"""P-values of pairs, and decisions at a false discovery rate.

Two p-values are computed from posterior draws. The Bayesian p-value of a score with posterior mean m and standard
deviation s is the Gaussian posterior probability of a score below 0 ::

    p = Phi(-m / s)

The sign rule tests the signed group means instead of the score. With mean m_g and standard deviation s_g of group g
over K draws, and standard error e_g of the group mean due to the finite choice of its n_g points ::

    v_g  = s_g^2 (1 + 1 / K)
    t_g  = |m_g| / sqrt(v_g + e_g^2)                            p_g = 2 P(T_{nu_g} < -t_g)
    nu_g = (v_g + e_g^2)^2 / (v_g^2 / (K - 1) + e_g^4 / (n_g - 1))     (Welch and Satterthwaite)
    p    = min_k  M p_(k) / k                                   p_(1) <= ... <= p_(M)      (Simes)

where T_nu has Student's t distribution with nu degrees of freedom and M is the number of groups. One draw has v_g = 0;
without standard errors of the points e_g = 0 and nu_g = K - 1.

:func:`discoveries` is the only place where p-values of many pairs are turned into decisions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats, Ints
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


def benjamini_hochberg(p_values: Floats, fdr: float = 0.05) -> NDArray[np.bool_]:
    """Return which tests are significant at a false discovery rate.

    The k smallest of n p-values are significant, with the largest k for which p_(k) <= ``fdr`` k / n (Benjamini and
    Hochberg, 1995). The expected share of false discoveries is then at most ``fdr`` if the tests are independent or
    positively dependent.

    >>> import numpy as np
    >>> benjamini_hochberg(np.array([0.01, 0.02, 0.04, 0.5]), fdr=0.05).tolist()
    [True, True, False, False]
    """
    from scipy.stats import false_discovery_control

    check_rate(fdr)
    return np.asarray(false_discovery_control(p_values) <= fdr)


def discoveries(p_values: Floats, fdr: float) -> NDArray[np.bool_]:
    """Return which pairs (P,) are discoveries at a false discovery rate, by :func:`benjamini_hochberg`.

    Pairs with p-value NaN were not tested. They do not count as tests and are no discoveries.

    >>> import numpy as np
    >>> discoveries(np.array([0.03, np.nan, 0.5]), fdr=0.1).tolist()
    [True, False, False]
    """
    check_rate(fdr)
    tested = ~np.isnan(p_values)
    found = np.zeros(len(p_values), dtype=bool)
    if tested.any():
        found[tested] = benjamini_hochberg(p_values[tested], fdr)
    return found


def sign_p_value(
    mean: Floats,
    std: Floats,
    draws: int,
    point_errors: Floats | None = None,
    sizes: Ints | Floats | None = None,
) -> Floats:
    """Return the p-value (P,) of each pair under the hypothesis that all its group means are 0 in this network.

    A score is an absolute value, and noise alone moves it away from 0, so that its interval excludes 0 too often.
    Signed group means do not have this bias. If the posterior is calibrated, its centre is as far from the network's
    value as its draws are from the centre; the mean of K draws adds 1 / K to that variance. Student's t accounts for
    variances being estimated. Simes' rule combines the groups; it is valid if groups are independent or positively
    dependent.

    Parameters
    ----------
    mean, std
        Mean and standard deviation over draws of the signed group means, both (M, P). With one draw ``std`` is ignored.
    draws
        Number of draws K.
    point_errors
        Standard errors (M, P) of the group means due to the finite choice of points; None if they are unknown. NaN is
        an unknown error of one group, which then has p-value 1.
    sizes
        Number of points of each group (M,), or effective number of clusters of points, for the degrees of freedom of
        ``point_errors``; (M, P) where each pair has groups of its own, 0 for those that it does not have. None: many.

    Returns
    -------
    ndarray
        P-values (P,); NaN if there is one draw and no ``point_errors``.

    Examples
    --------
    >>> import numpy as np
    >>> sign_p_value(np.array([[0.0, 3.0], [0.0, -3.0]]), np.ones((2, 2)), draws=1000).round(4).tolist()
    [1.0, 0.0028]
    """
    if draws < 2 and point_errors is None:
        return np.full(mean.shape[1], np.nan)
    of_draws = std**2 * (1 + 1 / draws) if draws > 1 else np.zeros_like(mean)
    of_points = np.zeros_like(mean) if point_errors is None else point_errors**2
    freedom = np.full((len(mean), 1), np.inf) if sizes is None else np.maximum(sizes - 1.0, 0.5).reshape(len(mean), -1)
    p_values = two_sided_p_value(mean, [(of_draws, max(draws - 1, 1)), (of_points, freedom)])
    p_values = np.where(np.isnan(of_points), 1.0, p_values)
    if sizes is not None and np.ndim(sizes) == 2:
        # Groups that a pair does not have are no hypotheses.
        p_values = np.where(np.asarray(sizes) > 0, p_values, np.nan)
    return simes(p_values)


def two_sided_p_value(mean: Floats, parts: Sequence[tuple[Floats, Floats | float]]) -> Floats:
    """Return the two-sided p-values (M, P) of means whose variance is the sum of independent ``parts``.

    Each part is an estimated variance (M, P) with its degrees of freedom, a number or (M, 1).

    >>> import numpy as np
    >>> two_sided_p_value(np.array([[3.0]]), [(np.array([[1.0]]), 10.0)]).round(4).tolist()
    [[0.0133]]
    """
    from scipy.special import stdtr

    variance = np.sum([part for part, _ in parts], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # 0 / 0 is a group in which the pair has no effect in any draw and point: no evidence, p-value 1.
        ratio = np.where((mean == 0) & (variance == 0), 0.0, np.abs(mean) / np.sqrt(variance))
    return np.asarray(2 * stdtr(welch_freedom(parts), -ratio))


def welch_freedom(parts: Sequence[tuple[Floats, Floats | float]]) -> Floats:
    """Return the degrees of freedom of a sum of estimated variances, (sum v)^2 / sum (v^2 / freedom).

    >>> import numpy as np
    >>> welch_freedom([(np.array([2.0]), 5.0), (np.array([2.0]), 5.0)]).tolist()
    [10.0]
    """
    variance = np.sum([part for part, _ in parts], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.sum([(part / variance) ** 2 / freedom for part, freedom in parts], axis=0)
    # Without any variance the degrees of freedom do not matter. 1e9 of them are a Gaussian.
    return np.asarray(1 / np.maximum(np.nan_to_num(inverse, nan=1.0), 1e-9))


def simes(p_values: Floats) -> Floats:
    """Return min_k M p_(k) / k, the p-value (P,) of the hypothesis that all hypotheses (M, P) of a column are true.

    NaN is a hypothesis that a column does not have; each has at least one.

    >>> import numpy as np
    >>> simes(np.array([[0.02], [0.5], [0.03]])).tolist()
    [0.045]
    """
    groups = (~np.isnan(p_values)).sum(axis=0)
    scaled = np.sort(p_values, axis=0) * groups / np.arange(1, len(p_values) + 1)[:, None]
    return np.asarray(np.minimum(1.0, np.nanmin(scaled, axis=0)))
