"""Spread of local interactions over the points of each group, and the sampling error of group means that follows."""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats, Ints

#: How many draws, the first ones, measure the variance of local interactions over points: its mean needs no more.
POINT_DRAWS = 4


class PointSpread:
    """Variance of local interactions over the points of each group, pooled over draws.

    With c_k points h of a group in draw k, and n points of the group in all ::

        variance = sum_k sum_{points} (h - mean_k)^2 / sum_k (c_k - 1),    error = sqrt(variance / n).

    The error is the standard error of the group's mean over the choice of points: how far it lies from the mean over
    the population from which the points are a random sample. Groups are taken as given. The variance is the mean of the
    variances of single draws; that of the mean over draws of h is smaller or equal, so the error is an upper bound for
    the mean network.

    Attributes
    ----------
    n_draws
        Number of draws so far.

    Examples
    --------
    >>> import numpy as np
    >>> spread = PointSpread()
    >>> spread.add(np.array([[6.0]]), np.array([[14.0]]), np.array([3]))  # h = 1, 2, 3 in one group: variance 1
    >>> spread.errors(np.array([100])).tolist()  # the three are a sample of 100 points
    [[0.1]]
    """

    def __init__(self) -> None:
        self.n_draws = 0
        #: Sums of squared deviations (M, P), and degrees of freedom (M,).
        self._deviations: Floats = np.zeros(())
        self._freedom: Floats = np.zeros(())

    def add(self, total: Floats, squares: Floats, counts: Floats | Ints) -> None:
        """Update with one draw.

        Parameters
        ----------
        total, squares
            Sums (M, P) of h and of h^2 over the points of each group.
        counts
            Number of these points (M,), or (M, P) if each pair has groups of its own; groups with fewer than two tell
            nothing.
        """
        counts = np.asarray(counts, dtype=np.float64)
        # In place: for thousands of units each array is a large one.
        deviations = total**2
        deviations /= -np.maximum(counts, 1).reshape(len(counts), -1)
        deviations += squares
        # Rounding may leave a small negative number where all points are equal.
        np.maximum(deviations, 0, out=deviations)
        deviations[counts < 2] = 0
        self.n_draws += 1
        self._deviations = deviations if self.n_draws == 1 else self._deviations + deviations
        self._freedom = self._freedom + np.maximum(counts - 1, 0)

    def errors(self, sizes: Ints) -> Floats | None:
        """Return the standard errors (M, P) of the means of groups with ``sizes`` (M,) points; None without draws.

        NaN for groups of which fewer than two points were visited in every draw.
        """
        if not self.n_draws:
            return None
        divisors = np.maximum(self._freedom, 1) * np.maximum(sizes, 1)
        errors: Floats = self._deviations / divisors.reshape(len(divisors), -1)
        np.sqrt(errors, out=errors)
        errors[self._freedom == 0] = np.nan
        # Squares in single precision overflow where the interactions themselves do not.
        errors[np.isinf(errors)] = np.nan
        return errors
