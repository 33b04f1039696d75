"""Uncertainty of scores over the choice of points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.scores.measured_points import error_counts
from geh_explain.scores.protocol import GroupMeans
from geh_explain.scores.weighted_uncertainty import weighted_covariance
from geh_explain.statistics.absolute_sums import GivenCovariance, IndependentPoints, ShareCovariance, distances


@dataclass(frozen=True)
class PointUncertainty:
    """Sampling error of the scores of P pairs in one measure, over the choice of points or of clusters of points.

    The population is that from which the points are a random sample, the groups are fixed parts of its space, and the
    score of the population is sum_m |phi_m| over the shares phi_m of the groups, see
    :mod:`geh_explain.statistics.absolute_sums`. AEH and EAH are scores of one group.

    Attributes
    ----------
    shares
        Estimated shares (M, P) of the groups; with several draws their root mean squares over draws, with the sign of
        the mean.
    covariance
        Covariance of their errors.
    score
        The score (P,).
    freedom
        Degrees of freedom of the covariance, a number or (P,).
    """

    shares: Floats
    covariance: ShareCovariance
    score: Floats
    freedom: Floats | float

    @property
    def variance(self) -> Floats:
        """Variance (P,) of the score over the choice of points."""
        return self.covariance.quadratic(np.where(self.shares < 0, -1.0, 1.0))

    def distances(self, level: float) -> tuple[Floats, Floats]:
        """Return how far the ends of the interval of the score lie below and above it, both (P,)."""
        return distances(self.shares, self.covariance, self.score, self.freedom, level)


def find_point_uncertainty(result: GroupMeans, measure: str) -> PointUncertainty | None:
    """Return the uncertainty of a measure over the choice of points, None where it is not known.

    For clusters of points, and for points with case weights, that of EAH is not known: engines do not sum absolute
    values by cluster, nor with squared weights. Scores of pairs with a category are sums over differences between
    levels, see :mod:`~geh_explain.scores.level_means`.
    """
    errors, clusters, moments = known_errors(result), result.cluster_errors, result.weight_moments
    if errors is None or ((clusters is not None or moments is not None) and measure == "eah"):
        return None
    score = result.scores(measure).pair_mean
    shares = _shares(result)
    if measure != "geh":
        single = np.where(shares.sum(axis=0) < 0, -score, score)[None]
    if clusters is not None:
        freedom = max(clusters.total - 1, 1.0)
        if measure == "geh":
            return PointUncertainty(shares, GivenCovariance(clusters.covariance), score, freedom)
        total = clusters.covariance.sum(axis=(0, 1))[None, None]
        return PointUncertainty(single, GivenCovariance(total), score, freedom)
    if moments is not None:
        weighted, of_geh, effective = weighted_covariance(result, errors, moments, shares)
        if measure == "geh":
            return PointUncertainty(shares, weighted, score, of_geh)
        of_mean = weighted.quadratic(np.ones_like(shares))
        return PointUncertainty(single, GivenCovariance(of_mean[None, None]), score, max(effective - 1, 1.0))
    squares, within = _squares(result, errors)
    n_points = result.n_points
    if measure == "geh":
        covariance = IndependentPoints(squares, shares, n_points)
        return PointUncertainty(shares, covariance, score, _freedom(covariance, within, error_counts(result)))
    if measure == "aeh":
        independent = IndependentPoints(squares.sum(axis=0)[None], single, n_points)
        return PointUncertainty(single, independent, score, max(float(np.sum(error_counts(result))) - 1, 1.0))
    return _of_eah(result, squares.sum(axis=0), score)


def known_errors(result: GroupMeans) -> Floats | None:
    """Return the standard errors (M, P) of the group means, None if all are unknown."""
    errors = result.point_errors
    return None if errors is None or np.isnan(errors).all() else errors


def _shares(result: GroupMeans) -> Floats:
    """Return the shares (M, P) of the groups: root mean squares over draws, with the sign of the mean."""
    mean, std = result.signed_means
    return np.asarray(
        result.group_shares.reshape(len(mean), -1) * np.copysign(np.hypot(mean, np.nan_to_num(std)), mean)
    )


def _squares(result: GroupMeans, errors: Floats) -> tuple[Floats, Floats]:
    """Return the sums (M, P) of squared interactions of each group, and their part about the group's mean.

    The error of a group with one visited point is unknown. It gets the variance per point of the other groups, unless
    it has one point in all, whose square is known.
    """
    sizes, known = result.sizes.reshape(len(errors), -1), ~np.isnan(errors)
    per_point = np.where(known, sizes * np.nan_to_num(errors) ** 2, 0.0)
    weight = (sizes * known).sum(axis=0)
    pooled = np.divide((sizes * per_point).sum(axis=0), weight, out=np.full(len(weight), np.nan), where=weight > 0)
    within = np.maximum(sizes - 1, 0) * np.where(known, per_point, pooled)
    mean, std = result.signed_means
    return within + sizes * (mean**2 + np.nan_to_num(std) ** 2), within


def _freedom(covariance: IndependentPoints, within: Floats, counts: Floats | Ints) -> Floats:
    """Return the degrees of freedom (P,) of the variance of GEH, after Welch and Satterthwaite.

    Its parts are the variances within the groups, measured at n_m points (``counts``) with n_m - 1 degrees of freedom,
    and that between groups, with N - 1.
    """
    n_points = covariance.n_points
    total = covariance.variance.sum(axis=0)
    parts = within / (n_points * max(n_points - 1, 1))
    between = np.maximum(total - parts.sum(axis=0), 0)
    of_groups = np.maximum(counts - 1, 0.5).reshape(len(counts), -1)
    inverse = (parts**2 / of_groups).sum(axis=0) + between**2 / max(n_points - 1, 1)
    unlimited = np.full(len(total), float(max(n_points - 1, 1)))
    return np.asarray(np.divide(total**2, inverse, out=unlimited, where=inverse > 0))


def _of_eah(result: GroupMeans, squares: Floats, score: Floats) -> PointUncertainty:
    """Return the uncertainty of EAH, a mean of |h|; ``squares`` (P,) are the sums of h^2 over all points.

    It may be measured at a sample of the points, drawn anew in each of K draws.
    """
    n_points = result.n_points
    visited = min(result.record.eah_points or n_points, n_points)
    per_point = np.maximum(squares / n_points - score**2, 0) * n_points / max(n_points - 1, 1)
    repeats = result.scores("geh").n_draws
    variance = per_point * (1 / n_points + (1 / visited - 1 / n_points) / repeats)
    return PointUncertainty(score[None], GivenCovariance(variance[None, None]), score, max(visited - 1.0, 1.0))
