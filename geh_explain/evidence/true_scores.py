"""The score that the labels support, with an interval: what the GEH of the true function is likely to be.

The true function is taken to differ from the network g, as far as units i and j interact, by ::

    beta_0 G + sum_{a,b=1..3} beta_ab L_a(x_i) L_b(x_j) + sum_k gamma_k L_1(x_i) L_1(x_j) L_1(x_k)

with the network's own interaction G, Legendre polynomials L and all other units k. The coefficients are estimated by
regressing y - g on these functions beside the nuisance columns, with a covariance that is robust to unequal errors.
Those of degree 3 and of three units have a normal prior, whose standard deviation maximises the evidence; the others
are free. Mixed derivatives of the functions, averaged over the points of each group, turn coefficients into group means
theta_m of the truth. Then ::

    psi  = sum_m (n_m / N) sign(theta_m of g) theta_m        low  = max(0, psi - z se)
    size = sum_m (n_m / N) |theta_m|                          high = max(psi + z se, mean + z std of size)

psi is linear in the truth, so that it has no bias from absolute values, and is at most the true GEH; ``size`` covers
what psi misses where a sign is wrong. A mean derivative cannot be estimated without an assumption of smoothness; here
it is that the network's error in a pair is a cubic polynomial of both units, plus their product times a linear function
of the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain.evidence.explained import Explained
from geh_explain.evidence.pair_functions import Pair
from geh_explain.statistics.slopes import project_off

#: What projection leaves of the residual is rounding up to this part of it.
_ROUNDING = 1e-12
#: Degree of the polynomials of both units.
_DEGREE = 3
#: Products whose factors have at most this degree have no prior.
_FREE_DEGREE = 2
#: The prior's standard deviation is at least this, relative to that of the network's interaction,
_MIN_PRIOR = 0.05
#: and at most the larger of these, relative to those of the network's interaction and of the residual.
_MAX_PRIOR = 1.6, 0.5
_PRIOR_CANDIDATES = 8
#: Products of three units are left out if there are more other units than this.
_MAX_OTHERS = 50
#: Draws of the coefficients from which the mean and standard deviation of the size are estimated.
_DRAWS = 400
#: Polynomials are bounded by the values between these quantiles.
_ENDS = (0.002, 0.998)
#: Fewer distinct values than this have no derivative.
_MIN_DISTINCT = 5
_MAX_LEVERAGE = 0.9
#: Precision of a flat prior, per row and for functions of variance 1.
_FLAT = 1e-8


class TrueScore(NamedTuple):
    """Estimates for one pair: psi and its standard error; mean and standard deviation of the size."""

    signed: float
    signed_se: float
    size: float
    size_std: float


#: Estimates where there are none.
UNKNOWN = TrueScore(np.nan, np.nan, np.nan, np.nan)


class TrueScores:
    """Estimates the true scores of pairs from held-out labels of a regression.

    Parameters
    ----------
    values
        Values (n, D) of the units in the held-out rows.
    residual
        Labels minus outputs of the network (n,).
    common
        Orthonormal nuisance columns of all pairs, see :class:`~geh_explain.evidence.nuisance.Nuisance`.
    explained
        The points whose scores are estimated.
    root_weights
        Roots (n,) of the case weights of the held-out rows, by which ``common`` are multiplied.
    """

    def __init__(
        self, values: Floats, residual: Floats, common: Floats, explained: Explained, root_weights: Floats
    ) -> None:
        self._root_weights = root_weights
        self._residual = residual
        self._common = common
        self._explained = explained
        low, high = np.quantile(values, _ENDS, axis=0)
        width = high - low
        self._varies = np.array([np.unique(column).size >= _MIN_DISTINCT for column in values.T]) & (width > 0)
        width = np.where(width > 0, width, 1.0)
        bounded = (np.clip((2 * sample - low - high) / width, -1, 1) for sample in (values, explained.values))
        held_out, points = bounded
        self._polynomials = legendre.legvander(held_out, _DEGREE)[..., 1:]
        derivatives = [legendre.legder(np.eye(_DEGREE + 1)[degree]) for degree in range(1, _DEGREE + 1)]
        # By the chain rule, with the units' factors.
        scale = 2 / width * explained.factors
        self._derivatives = np.stack([legendre.legval(points, c) for c in derivatives], axis=-1) * scale[:, None]
        self._held_out, self._points = held_out, points
        degrees = np.maximum.outer(np.arange(1, _DEGREE + 1), np.arange(1, _DEGREE + 1)).ravel()
        self._degree_has_prior = degrees > _FREE_DEGREE

    def _others(self, i: int, j: int) -> list[int]:
        """Return the units that may change the interaction of i and j; none if they are very many."""
        others = [unit for unit in range(self._held_out.shape[1]) if unit not in (i, j)]
        return others if len(others) <= _MAX_OTHERS else []

    def estimate(self, pair: Pair, index: int, local: Floats | None, own: Floats) -> TrueScore:
        """Return the estimates of one pair.

        Parameters
        ----------
        pair, index
            Units i and j, and the index of the pair.
        local
            The network's interaction G (n,) at the held-out rows; None where it has none.
        own
            Orthonormal nuisance columns of this pair.
        """
        i, j = pair
        if not (self._varies[i] and self._varies[j]):
            return UNKNOWN
        network = self._explained.signed[:, index]
        weighted = self._residual * self._root_weights
        response = project_off(weighted, self._common, own)
        if np.abs(response).max() <= _ROUNDING * np.abs(weighted).max():
            # Labels that are the outputs, up to main effects, have no noise that a prior or an error could come from.
            score = float(np.abs(network) @ self._explained.shares)
            return TrueScore(score, 0.0, score, 0.0)
        others = self._others(i, j)
        products = _products(self._polynomials[:, i], self._polynomials[:, j], self._held_out[:, others])
        functions = products if local is None else np.column_stack([local, products])
        # Functions of variance 1, so that coefficients are in units of the labels.
        spreads = functions.std(axis=0)
        spreads = np.where(spreads > 0, spreads, 1.0)
        columns = project_off(functions / spreads * self._root_weights[:, None], self._common, own)
        leverage = np.minimum((self._common**2).sum(axis=1) + (own**2).sum(axis=1), _MAX_LEVERAGE)
        freedom = len(response) - self._common.shape[1] - own.shape[1]
        largest = _MAX_PRIOR[1] * float(self._residual.std())
        scales = np.array([largest])
        if local is not None:
            own_scale = float(local.std())
            scales = np.geomspace(_MIN_PRIOR * own_scale, max(_MAX_PRIOR[0] * own_scale, largest), _PRIOR_CANDIDATES)
        has_prior = np.concatenate(
            [np.zeros(len(spreads) - products.shape[1], bool), self._degree_has_prior, np.ones(len(others), bool)]
        )
        coefficients, covariance = _fit(columns, response, has_prior, scales, leverage, freedom)
        explained = self._explained
        # Means over groups of the mixed derivatives of all functions; that of G is the network's own.
        mixed = _products(self._derivatives[:, i], self._derivatives[:, j], self._points[:, others])
        effects = explained.group_means(mixed)
        effects = (effects if local is None else np.column_stack([network, effects])) / spreads
        truth = network + effects @ coefficients
        weights = explained.shares * np.sign(network)
        gradient = weights @ effects
        root = np.linalg.cholesky(covariance + 1e-12 * np.trace(covariance) * np.eye(len(covariance)))
        noise = np.random.default_rng(0).standard_normal((_DRAWS, len(root)))
        sizes = np.abs(truth + noise @ root.T @ effects.T) @ explained.shares
        return TrueScore(
            float(weights @ truth),
            float(np.sqrt(gradient @ covariance @ gradient)),
            float(sizes.mean()),
            float(sizes.std(ddof=1)),
        )


def _products(first: Floats, second: Floats, others: Floats) -> Floats:
    """Return the products of all columns of ``first`` and ``second``, then of their first ones with ``others``."""
    pairs = (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)
    return np.concatenate([pairs, first[:, :1] * second[:, :1] * others], axis=1)


def _fit(
    columns: Floats, response: Floats, has_prior: NDArray[np.bool_], scales: Floats, leverage: Floats, freedom: int
) -> tuple[Floats, Floats]:
    """Return coefficients (c,) and their covariance, under the prior that maximises the evidence.

    Parameters
    ----------
    columns, response
        What projection leaves of the functions (n, c), whose variance was 1, and of the residual (n,).
    has_prior
        Which coefficients (c,) have a prior; the others are free.
    scales
        Candidates for the standard deviation of the prior.
    leverage
        Leverage (n,) of each row in the projection.
    freedom
        Degrees of freedom that projection leaves.
    """
    variance = float(response @ response) / freedom
    gram, moments = columns.T @ columns, columns.T @ response
    # A flat prior is one of negligible precision.
    flat = np.full(len(gram), _FLAT * len(response))
    best = (-np.inf, flat)
    for scale in scales:
        precision = np.where(has_prior, variance / scale**2, flat)
        solution = np.linalg.solve(gram + np.diag(precision), moments)
        _, log_determinant = np.linalg.slogdet(gram + np.diag(precision))
        evidence = (moments @ solution / variance - log_determinant + np.log(precision).sum()) / 2
        best = max(best, (float(evidence), precision), key=lambda entry: entry[0])
    precision = best[1]
    inverse = np.linalg.inv(gram + np.diag(precision))
    coefficients = inverse @ moments
    errors = (response - columns @ coefficients) ** 2 / (1 - leverage)
    robust = (columns * errors[:, None]).T @ columns
    return coefficients, inverse @ (robust + variance * np.diag(precision)) @ inverse
