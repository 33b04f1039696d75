"""Combination of p-values from tests that are not independent."""

from __future__ import annotations

from typing import Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.errors import GEHValueError

#: P-values above this count as this.
_MAX_P = 0.99


def cauchy_combination(p_values: Any) -> Floats:
    """Return one p-value (P,) of each hypothesis from K tests (K, P) of it, by the Cauchy combination.

    ::

        T = mean over k of tan((1/2 - p_k) pi)          p = 1/2 - arctan(T) / pi

    T has nearly a Cauchy distribution in its tail whatever the dependence of the tests (Liu and Xie, 2020). The sum of
    their z-scores does not have a known distribution: tests that share training data are dependent.

    A p-value of 1 would make T infinite, and hide any evidence of the other tests. P-values above 0.99 are therefore
    set to 0.99, unless all are 1. For five independent tests this raises a level of 5 % to 5.05 %.

    Parameters
    ----------
    p_values
        P-values (K, P), or (K,) for a single hypothesis. NaN for tests that were not made, which are left out; the
        result is NaN where no test was made.

    Examples
    --------
    >>> float(cauchy_combination([0.02, 0.02, 0.02]).round(6)), float(cauchy_combination([0.001, 0.5, 1.0]).round(4))
    (0.02, 0.0033)
    """
    p_values = np.asarray(p_values, dtype=float)
    if not p_values.ndim or not len(p_values):
        raise GEHValueError(f"p_values has shape {p_values.shape}; give those of at least one test.")
    outside = p_values[(p_values < 0) | (p_values > 1)]
    if outside.size:
        raise GEHValueError(f"p_values: {outside[0]:g} is not between 0 and 1.")
    made = ~np.isnan(p_values)
    count = made.sum(axis=0)
    angles = np.pi * np.where(made, np.minimum(p_values, _MAX_P), 0.5)
    with np.errstate(divide="ignore", invalid="ignore"):
        # tan((1/2 - p) pi) = 1 / tan(p pi), which is exact for tiny p and infinite for 0.
        statistic = (1 / np.tan(angles)).sum(axis=0) / count
    # 1/2 - arctan(T) / pi, without cancellation for large T.
    combined = np.arctan2(1.0, statistic) / np.pi
    combined = np.where((p_values == 1).sum(axis=0) == count, 1.0, combined)
    return np.where(count > 0, combined, np.nan)
