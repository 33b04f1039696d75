"""Means of local interactions in unions of groups, with their errors over draws and points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.errors import GEHValueError
from geh_explain.scores.cluster_spread import ClusterErrors
from geh_explain.scores.measured_points import error_counts
from geh_explain.scores.measures import geh
from geh_explain.scores.point_uncertainty import known_errors
from geh_explain.scores.protocol import GroupMeans, PairResult
from geh_explain.statistics.differences import EstimatedMeans


class DrawnMeans(GroupMeans, Protocol):
    """Means over groups whose draws are read: those of a result's pairs, or of its differences between levels."""

    @property
    def signed(self) -> Floats:
        """Mean local interaction (K, M, P) of each draw, group and pair; raises if draws were not kept."""

    @property
    def noise(self) -> Floats | None:
        """Standard errors (K, M, P) of ``signed`` where the engine estimates it with noise, else None."""


class DrawnResult(DrawnMeans, PairResult, Protocol):
    """A result whose draws are read; see :class:`geh_explain.Interactions`."""


def merged_means(result: DrawnMeans, groups: Ints, pairs: Ints, source: str) -> EstimatedMeans:
    """Return the means of some pairs in unions of groups, with the errors that count.

    Over draws the covariance is that of one more draw about the mean of K, cov (1 + 1 / K), as in the sign rule. The
    variance over the n points of a union is that of all its local interactions: ::

        [ sum_m (n_m - 1) n_m e_m^2 + sum_m n_m (mean_m - mean)^2 ] / (n (n - 1)),

    with the standard errors e_m of the groups. If draws were not kept, the standard deviation of a union is the mean of
    those of its groups, an upper bound.

    Parameters
    ----------
    result
        The result.
    groups
        Index of the union of each group (M,), -1 for groups that are left out.
    pairs
        Indices (p,) of the pairs.
    source
        ``"both"``, ``"draws"`` or ``"points"``.
    """
    shares = union_shares(result.group_shares, groups)
    means, std = (values[:, pairs] for values in result.signed_means)
    draws = result.scores("geh").n_draws
    of_draws = None
    if draws > 1 and source != "points":
        if kept_draws(result) is None:
            of_draws = (shares @ std) ** 2 * (1 + 1 / draws)
        else:
            of_draws = next_draw_covariance(merged_draws(result, groups, pairs))
    of_points, freedom = None, np.ones(len(shares))
    if source != "draws":
        of_points, freedom = _point_variances(result, groups, shares, pairs)
    return EstimatedMeans(shares @ means, of_draws, max(draws - 1.0, 1.0), of_points, freedom)


def merged_draws(result: DrawnMeans, groups: Ints, pairs: Ints) -> Floats:
    """Return the draws (K, unions, p) of the means of some pairs in unions of groups; raises if draws were not kept."""
    return np.asarray(np.matmul(union_shares(result.group_shares, groups), result.signed[:, :, pairs]))


def next_draw_covariance(draws: Floats) -> Floats:
    """Return the covariance (M, M, p) of one more draw about the mean of K draws (K, M, p): cov (1 + 1 / K).

    >>> import numpy as np
    >>> next_draw_covariance(np.array([[[1.0]], [[3.0]]])).tolist()  # variance 2
    [[[3.0]]]
    """
    count, deviations = len(draws), draws - draws.mean(axis=0)
    covariance = np.einsum("kmp,klp->mlp", deviations, deviations, optimize=True) / (count - 1)
    return np.asarray(covariance * (1 + 1 / count))


def pair_draws(estimates: Sequence[EstimatedMeans], first: Floats, second: Floats) -> list[EstimatedMeans]:
    """Return two estimates whose draws, ``first`` and ``second`` (K, M, p), are of the same K functions.

    The variance over draws of their difference is that of the differences within draws. The first estimate has it, the
    second one has none, so that their sum is the variance of the difference.
    """
    a, b = estimates
    return [replace(a, of_draws=next_draw_covariance(first - second)), replace(b, of_draws=None)]


def merged_scores(result: DrawnMeans, groups: Ints, pairs: Ints) -> Floats:
    """Return the mean GEH (p,) over draws of some pairs, with unions of groups in place of the groups.

    If draws were not kept, it is that of the mean over draws.
    """
    indicator = (groups == np.arange(groups.max() + 1)[:, None]) * result.group_shares
    # Shares of the groups in place of numbers of points, which sum to 1.
    indicator = indicator / indicator.sum()
    signed = kept_draws(result)
    if signed is None:
        return geh(indicator @ result.signed_means[0][:, pairs], 1)
    noise = result.noise
    variance = 0.0 if noise is None else np.matmul(indicator**2, noise[:, :, pairs] ** 2)
    return np.asarray(geh(np.matmul(indicator, signed[:, :, pairs]), 1, variance).mean(axis=0))


def union_shares(sizes: Floats | Ints, groups: Ints) -> Floats:
    """Return the share (unions, M) of each group in the points, or in their weights, of each union.

    >>> import numpy as np
    >>> union_shares(np.array([1, 3, 5]), np.array([0, 0, 1])).tolist()
    [[0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
    """
    indicator = (groups == np.arange(groups.max() + 1)[:, None]) * np.asarray(sizes, dtype=np.float64)
    return np.asarray(indicator / indicator.sum(axis=1, keepdims=True))


def kept_draws(result: DrawnMeans) -> Floats | None:
    """Return the draws (K, M, P) of the group means, None if only their moments were kept."""
    try:
        return result.signed
    except GEHValueError:
        return None


def _point_variances(result: DrawnMeans, groups: Ints, shares: Floats, pairs: Ints) -> tuple[Floats | None, Floats]:
    """Return the variances (unions, p) of the means over the choice of points, and their degrees of freedom.

    For clusters of points, which may have points in several unions, it is the covariance (unions, unions, p).
    """
    errors = known_errors(result)
    indicator = (shares > 0).astype(float)
    sizes = result.sizes.astype(float)
    merged = indicator @ sizes
    if errors is None:
        return None, np.ones(len(shares))
    errors = _fill_unknown(errors[:, pairs], sizes)
    if result.cluster_errors is not None:
        return _cluster_covariance(result.cluster_errors, errors, indicator, sizes, pairs)
    means = result.signed_means[0][:, pairs]
    if result.sample_weight is not None:
        return _weighted_variances(result, shares, means, errors)
    within = indicator @ ((np.maximum(sizes - 1, 0) * sizes)[:, None] * errors**2)
    between = indicator @ (sizes[:, None] * means**2) - merged[:, None] * (shares @ means) ** 2
    # A union of one point has the variance of the other groups, not of its own.
    single = (merged < 2)[:, None] * (indicator @ errors**2)
    variance = (within + np.maximum(between, 0)) / (merged * np.maximum(merged - 1, 1))[:, None] + single
    return np.asarray(variance), np.asarray(np.maximum(indicator @ error_counts(result) - 1, 0.5))


def _weighted_variances(result: DrawnMeans, shares: Floats, means: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """Return the variances (unions, p) of means of points with case weights, and their degrees of freedom.

    With the shares s_m of the groups in the weights of a union and Kish's effective number n of its points ::

        sum_m s_m^2 e_m^2 + sum_m s_m (mean_m - mean)^2 / (n - 1).
    """
    counts = np.maximum(np.asarray(result.effective_counts, dtype=np.float64), 1e-9)
    measured = 1 / (shares**2 / np.maximum(np.asarray(error_counts(result), dtype=np.float64), 1e-9)).sum(axis=1)
    effective = 1 / (shares**2 / counts).sum(axis=1)
    between = np.maximum(shares @ means**2 - (shares @ means) ** 2, 0)
    between[(shares > 0).sum(axis=1) == 1] = 0
    variance = shares**2 @ errors**2 + between / np.maximum(effective - 1, 1)[:, None]
    return np.asarray(variance), np.maximum(measured - 1, 0.5)


def _cluster_covariance(
    clusters: ClusterErrors, errors: Floats, indicator: Floats, sizes: Floats, pairs: Ints
) -> tuple[Floats, Floats]:
    """Return the covariance (unions, unions, p) of means over the choice of clusters, and its degrees of freedom.

    Correlations are those of the unions' shares in the score. Variances are those of the groups; of a union of several
    groups that of its share, which contains the randomness of its size.
    """
    covariance = clusters.covariance[:, :, pairs]
    of_shares = np.einsum("um,mlp,vl->uvp", indicator, covariance, indicator, optimize=True)
    spread = np.sqrt(np.maximum(np.einsum("uup->up", of_shares), 0))
    product = spread[:, None] * spread[None]
    correlation = np.divide(of_shares, product, out=np.zeros_like(of_shares), where=product > 0)
    several = (indicator.sum(axis=1) > 1)[:, None]
    std = np.where(several, spread * (sizes.sum() / (indicator @ sizes))[:, None], indicator @ errors)
    index = np.arange(len(std))
    correlation[index, index] = 1.0
    freedom = np.where(several[:, 0], clusters.total - 1, indicator @ clusters.counts - 1)
    return correlation * std[:, None] * std[None], np.maximum(freedom, 0.5)


def _fill_unknown(errors: Floats, sizes: Floats) -> Floats:
    """Return standard errors (M, p) in which unknown ones have the variance per point of the other groups."""
    known = ~np.isnan(errors)
    per_point = np.where(known, sizes[:, None] * np.nan_to_num(errors) ** 2, 0.0)
    weight = (sizes[:, None] * known).sum(axis=0)
    pooled = np.divide((sizes[:, None] * per_point).sum(axis=0), weight, out=np.zeros(len(weight)), where=weight > 0)
    return np.where(known, errors, np.sqrt(pooled / np.maximum(sizes, 1)[:, None]))
