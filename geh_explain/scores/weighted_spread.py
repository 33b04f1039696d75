"""Sampling errors of weighted group means."""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats, Ints


class WeightedPointSpread:
    """Linearised variance of weighted group means over the choice of points, averaged over draws.

    With local interactions h and case weights w of the n points of a group, W = sum w and theta = sum w h / W ::

        D = sum w^2 (h - theta)^2,    E = sum w^2 (h - theta),    error^2 = n / (n - 1) D / W^2.

    The error is that of a ratio of two sums, as in the analysis of surveys: rows are the units of sampling, and a row
    of weight 2 is one row, not two. For equal weights it is the error of
    :class:`~geh_explain.scores.point_spread.PointSpread`. E enters the covariance of the groups' shares.

    Where D and E are measured at a sample of the points, they are multiplied by the ratio of the sums of squared
    weights.

    Parameters
    ----------
    weights
        Case weights (N,) with mean 1.
    labels
        Group (N,) of each point.
    n_groups
        Number of groups M.

    Examples
    --------
    >>> import numpy as np
    >>> spread = WeightedPointSpread(np.array([0.5, 1.5]), np.array([0, 0]), 1)
    >>> h = np.array([1.0, 3.0])  # theta = 2.5
    >>> w = np.array([0.5, 1.5])
    >>> spread.add(*(np.array([[total]]) for total in (w @ h, w**2 @ h, w**2 @ h**2)), np.array([w @ w]))
    >>> spread.errors().round(4).tolist(), spread.moments().round(4).tolist()  # sqrt(2 (0.25 2.25 + 2.25 0.25) / 4)
    ([[0.75]], [[0.75]])
    """

    def __init__(self, weights: Floats, labels: Ints, n_groups: int) -> None:
        self.n_draws = 0
        self._counts = np.bincount(labels, minlength=n_groups)
        self._sums = np.bincount(labels, weights, n_groups)
        self._squared_weights = np.bincount(labels, weights**2, n_groups)
        #: Sums over draws of D and E (M, P), and of the squared weights (M,) at which they were measured.
        self._squares: Floats = np.zeros(())
        self._cross: Floats = np.zeros(())
        self._visited: Floats = np.zeros(())

    def add(self, total: Floats, cross: Floats, squares: Floats, visited: Floats) -> None:
        """Update with one draw.

        Parameters
        ----------
        total
            Sums (M, P) of w h over all points of each group.
        cross, squares
            Sums (M, P) of w^2 h and of w^2 h^2 over the points of each group that were visited.
        visited
            Sums (M,) of w^2 over the same points.
        """
        means = total / np.where(self._sums > 0, self._sums, 1.0)[:, None]
        deviations = squares - 2 * means * cross + means**2 * visited[:, None]
        self.n_draws += 1
        # Rounding may leave a small negative number where all points are equal.
        self._squares = self._squares + np.maximum(deviations, 0)
        self._cross = self._cross + cross - means * visited[:, None]
        self._visited = self._visited + visited

    def errors(self) -> Floats | None:
        """Return the standard errors (M, P) of the group means; None without draws, NaN for groups of one point."""
        if not self.n_draws:
            return None
        factor = self._counts / np.maximum(self._counts - 1, 1) / np.where(self._sums > 0, self._sums, 1.0) ** 2
        errors = np.sqrt(self._to_all(self._squares) * factor[:, None])
        errors[(self._counts < 2) | (self._visited == 0)] = np.nan
        errors[np.isinf(errors)] = np.nan
        return np.asarray(errors)

    def moments(self) -> Floats | None:
        """Return E (M, P), averaged over draws; None without draws."""
        return np.nan_to_num(self._to_all(self._cross)) if self.n_draws else None

    def _to_all(self, values: Floats) -> Floats:
        """Return sums (M, P) over draws and visited points as means over draws of sums over all points."""
        return np.asarray(values * (self._squared_weights / np.where(self._visited > 0, self._visited, 1.0))[:, None])
