"""Conditional means of functions of two units, given everything else, under a Gaussian copula.

What remains of the network's interaction h must be orthogonal to all functions of x without i and of x without j. With
the normal scores z of units and covariates, whose precision matrix is Q, the score of unit i given all others is ::

    z_i ~ N(z_i - (Q z)_i / Q_ii, 1 / Q_ii)

so that E[h | x without i], E[h | x without j] and E[h | x without i and j] are integrals over one and two normal
variables. They are functions of x without i, without j and without both whatever the distribution is, and therefore
valid nuisance columns. Where the copula is Gaussian they are what polynomials only approximate. The difference matters
where what is left beside the units explains most of their variance, as the differences between members of a group do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from geh_explain._types import Floats

#: Nodes of the quadrature over one variable, and over each of two.
_NODES = 9
_NODES_OF_TWO = 7

#: A function of the values of two units, arrays of one shape.
PairFunction = Callable[[Floats, Floats], Floats]


class GaussianCopula:
    """Conditional distributions of D units, given all other ones and covariates.

    Parameters
    ----------
    values
        Values (n, D) of the units.
    scores
        Normal scores (n, N) of the units, then those of covariates.
    precision
        Precision matrix (N, N) of the scores.

    Examples
    --------
    Two units with a correlation of 0.6: E[u v | v] = 0.6 v^2.

    >>> import numpy as np
    >>> from scipy.stats import norm
    >>> v = norm.ppf((np.arange(4000) + 0.5) / 4000)
    >>> u = 0.6 * v + 0.8 * np.random.default_rng(0).permutation(v)
    >>> values = np.column_stack([v[u.argsort().argsort()], v])  # with the quantiles of a normal variable
    >>> copula = GaussianCopula(values, values, np.linalg.inv([[1, 0.6], [0.6, 1]]))
    >>> mean = copula.conditional_means(0, 1, np.multiply)[:, 0]
    >>> bool(np.abs(mean - 0.6 * v**2)[np.abs(v) < 2].max() < 0.02)
    True
    """

    def __init__(self, values: Floats, scores: Floats, precision: Floats) -> None:
        self._values = values
        self._sorted = np.sort(values, axis=0)
        self._scores = scores
        self._precision = precision

    def conditional_means(self, i: int, j: int, function: PairFunction) -> Floats:
        """Return the means (n, 3) of a function of i and j, given x without i, without j, and without both."""
        nodes, weights = _quadrature(_NODES)
        first, second = (
            self._quantiles(unit, mean[:, None] + std * nodes)
            for unit, (mean, std) in ((unit, self._given_others(unit)) for unit in (i, j))
        )
        without_i = function(first, np.broadcast_to(self._values[:, [j]], first.shape)) @ weights
        without_j = function(np.broadcast_to(self._values[:, [i]], second.shape), second) @ weights
        nodes, weights = _quadrature(_NODES_OF_TWO)
        means, root = self._both_given_others(i, j)
        one, two = (axis.ravel() for axis in np.meshgrid(nodes, nodes, indexing="ij"))
        both = function(
            self._quantiles(i, means[:, [0]] + root[0, 0] * one),
            self._quantiles(j, means[:, [1]] + root[1, 0] * one + root[1, 1] * two),
        )
        return np.column_stack([without_i, without_j, both @ np.outer(weights, weights).ravel()])

    def centred(self, unit: int, other: int, transformed: Floats) -> Floats:
        """Return a transformed unit (n,) minus its mean given everything but this unit and another one.

        ``transformed`` is a nondecreasing function of the unit.
        """
        nodes, weights = _quadrature(_NODES)
        means, root = self._both_given_others(unit, other)
        places = self._probabilities(means[:, [0]] + root[0, 0] * nodes)
        return np.asarray(transformed - np.interp(places, self._steps(), np.sort(transformed)) @ weights)

    def _given_others(self, unit: int) -> tuple[Floats, float]:
        """Return the mean (n,) and the standard deviation of a unit's score, given all others."""
        row = self._precision[unit]
        return self._scores[:, unit] - self._scores @ row / row[unit], float(row[unit] ** -0.5)

    def _both_given_others(self, i: int, j: int) -> tuple[Floats, Floats]:
        """Return the means (n, 2) of two scores, given all others, and a root (2, 2) of their covariance."""
        pair = [i, j]
        rows = self._precision[pair]
        covariance = np.linalg.inv(rows[:, pair])
        return self._scores[:, pair] - self._scores @ rows.T @ covariance, np.linalg.cholesky(covariance)

    def _quantiles(self, unit: int, scores: Floats) -> Floats:
        """Return the values of a unit at normal scores of any shape."""
        return np.interp(self._probabilities(scores), self._steps(), self._sorted[:, unit])

    def _steps(self) -> Floats:
        """Return the probabilities (n,) of the sorted values."""
        return np.asarray((np.arange(len(self._sorted)) + 0.5) / len(self._sorted))

    @staticmethod
    def _probabilities(scores: Floats) -> Floats:
        """Return the normal probabilities below scores."""
        from scipy.special import ndtr

        return np.asarray(ndtr(scores))


def _quadrature(count: int) -> tuple[Floats, Floats]:
    """Return nodes and weights (count,) of the mean over a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()
