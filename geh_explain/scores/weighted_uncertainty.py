"""Uncertainty of scores over the choice of points with case weights."""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats
from geh_explain.scores.measured_points import error_counts
from geh_explain.scores.protocol import GroupMeans
from geh_explain.statistics.absolute_sums import WeightedPoints


def weighted_covariance(
    result: GroupMeans, errors: Floats, moments: Floats, shares: Floats
) -> tuple[WeightedPoints, Floats, float]:
    """Return the covariance of the groups' shares, degrees of freedom (P,) of GEH, and the effective number of points.

    Parameters
    ----------
    result
        A result with case weights.
    errors, moments
        Standard errors of the group means, and the sums E, both (M, P); see
        :class:`~geh_explain.scores.weighted_spread.WeightedPointSpread`.
    shares
        Estimated shares (M, P) of the groups: their share of the weights times their mean interaction.
    """
    assert result.sample_weight is not None
    counted = result.labels >= 0
    labels, weights = result.labels[counted], result.sample_weight[counted]
    counts, of_group = result.sizes[:, None], (result.group_shares * len(labels))[:, None]
    squared: Floats = np.bincount(labels, weights**2, len(counts)).astype(float)[:, None]
    within = errors**2 * of_group**2 * (counts - 1) / np.maximum(counts, 1)
    within = np.where(counts < 2, 0.0, _pool_unknown(within, squared))
    means = np.divide(
        shares, result.group_shares[:, None], out=np.zeros_like(shares), where=result.group_shares[:, None] > 0
    )
    cross = means * squared + moments
    covariance = WeightedPoints(within + 2 * means * cross - means**2 * squared, cross, shares, weights)
    total = covariance.variance.sum(axis=0)
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    # After Welch and Satterthwaite, as for points without weights.
    parts = within * covariance.scale
    between = np.maximum(total - parts.sum(axis=0), 0)
    freedom_within = np.maximum(np.asarray(error_counts(result)) - 1, 0.5)[:, None]
    inverse = (parts**2 / freedom_within).sum(axis=0) + between**2 / max(effective - 1, 1)
    unlimited = np.full(len(total), max(effective - 1, 1.0))
    return covariance, np.divide(total**2, inverse, out=unlimited, where=inverse > 0), effective


def _pool_unknown(within: Floats, squared: Floats) -> Floats:
    """Return sums of squares (M, P) with those that are NaN estimated from others, per squared weight (M, 1)."""
    known = ~np.isnan(within)
    weight = (squared * known).sum(axis=0)
    pooled = np.divide(np.nansum(within, axis=0), weight, out=np.zeros(within.shape[1]), where=weight > 0)
    return np.where(known, within, squared * pooled)
