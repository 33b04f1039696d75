"""From draws of differences between levels to draws of pairs.

The draws of a run with categories have one column for each pair of numeric units and one for each contrast q, a
difference between levels (:mod:`geh_explain.units.contrasts`). With h_kmq the mean of contrast q over the points of
group m in draw k, w_q its weight and n_m / N the share of the group ::

    GEH_k = sum_q w_q sum_m (n_m / N) |h_kmq|,

and AEH and EAH likewise. A pair has no sign of its own, as the signs of its contrasts depend on the order of the
levels. ``signed`` of a pair is the sum of its contrasts, each with the sign s_q of its mean over points and draws ::

    signed_km = sum_q w_q s_q h_kmq,    s_q = sign( sum_km n_m h_kmq ),

which is positive where the pattern of most of the data holds, and negative where it is reversed. Over all points its
mean is that of sum_q w_q |mean of h_q|. If a pair has a single contrast, as for categories with two levels, s_q = 1.
The main effect of a category is made of the differences of its mean outputs between levels in the same way.

Standard errors over points are weighted means of those of the contrasts: an upper bound, as the standard deviation of a
sum is at most the sum of the standard deviations.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.scores.cluster_spread import ClusterErrors
from geh_explain.scores.draws import DrawMoments, Draws, LevelDraws
from geh_explain.units.contrasts import Contrasts


class PairReduction:
    """Turns draws of columns, pairs of numeric units and then contrasts, into draws of pairs.

    Parameters
    ----------
    contrasts
        The contrasts.
    columns
        Draws of all columns, ``slopes`` (K, M, D + levels) with the mean output at each level at the end. Their means
        decide on the signs.
    sizes
        Number of points of each group (M,), or the sum of their case weights.
    """

    def __init__(self, contrasts: Contrasts, columns: Draws, sizes: Floats | Ints) -> None:
        self._contrasts = contrasts
        shares = sizes / sizes.sum()
        total = shares @ contrasts.split(columns.signed)[1].mean(axis=0)
        self._signs = np.where(contrasts.single | (total >= 0), 1.0, -1.0)
        self._main = None if columns.slopes is None else self._main_weights(shares @ columns.slopes.mean(axis=0))

    def _main_weights(self, means: Floats) -> Floats:
        """Return the matrix (D + levels, D) that maps slopes and mean outputs at levels to main effects of units.

        ``means`` (D + levels,) are means over all points and draws.
        """
        n_units = self._contrasts.pairs.n_units
        matrix = np.zeros((len(means), n_units))
        numeric = np.setdiff1d(np.arange(n_units), list(self._contrasts.levels))
        matrix[numeric, numeric] = 1
        start = n_units
        for unit, levels in self._contrasts.levels.items():
            low, high = (start + ends for ends in levels.ends)
            signs = np.where((means[high] >= means[low]) | (len(levels) == 2), 1.0, -1.0)
            np.add.at(matrix[:, unit], high, signs * levels.weights)
            np.add.at(matrix[:, unit], low, -signs * levels.weights)
            start += len(levels)
        return matrix

    def main_effects(self, slopes: Floats) -> Floats:
        """Return the slopes (K, M, D) of all units from those with mean outputs at levels (K, M, D + levels)."""
        assert self._main is not None
        return np.asarray(slopes @ self._main)

    def draws(self, columns: Draws) -> Draws:
        """Return the draws of the pairs; ``columns.slopes`` are those of units already."""
        contrasts = self._contrasts
        numeric, signed = contrasts.split(columns.signed)
        numeric_absolute, absolute = contrasts.split(columns.absolute)
        noise = None
        if columns.noise is not None:
            noise = contrasts.join(contrasts.split(columns.noise)[0], np.zeros(1))
        return Draws(
            contrasts.join(numeric, contrasts.average(signed * self._signs)),
            contrasts.join(numeric_absolute, contrasts.average(absolute)),
            noise,
            columns.slopes,
            levels=LevelDraws(contrasts, Draws(signed, absolute)),
        )

    def with_errors(
        self,
        draws: Draws | DrawMoments,
        point_errors: Floats | None,
        cluster_errors: ClusterErrors | None = None,
        weight_moments: Floats | None = None,
    ) -> Draws | DrawMoments:
        """Return the draws of pairs with what is known of errors over points.

        It is given for columns: standard errors (M, columns), the covariance (M, M, columns) of clusters, and for
        weighted points the sums E (M, columns) of :class:`~geh_explain.scores.weighted_spread.WeightedPointSpread`.
        """
        levels, contrasts = draws.levels, self._contrasts
        assert levels is not None
        of_levels = levels.draws
        if point_errors is not None:
            of_levels = replace(of_levels, point_errors=contrasts.split(point_errors)[1])
            draws = replace(draws, point_errors=contrasts.by_pair(point_errors))
        if weight_moments is not None:
            numeric, moments = contrasts.split(weight_moments)
            of_levels = replace(of_levels, weight_moments=moments)
            # E is linear in the local interactions, as ``signed`` is.
            of_pairs = contrasts.join(numeric, contrasts.average(moments * self._signs))
            draws = replace(draws, weight_moments=of_pairs)
        if cluster_errors is not None:
            numeric, covariance = contrasts.split(cluster_errors.covariance)
            of_levels = replace(of_levels, cluster_errors=replace(cluster_errors, covariance=covariance))
            std = contrasts.average(np.sqrt(np.maximum(np.einsum("mmq->mq", covariance), 0)))
            bound = contrasts.join(numeric, std[:, None] * std[None])
            draws = replace(draws, cluster_errors=replace(cluster_errors, covariance=bound))
        return replace(draws, levels=replace(levels, draws=of_levels))
