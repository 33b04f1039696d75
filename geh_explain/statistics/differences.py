"""Differences of two estimates of group means.

The difference of group m is delta_m = a_m - b_m, with the errors of both estimates over draws and over points. All four
are taken as independent, so that their variances add ::

    V = V_draws(a) + V_draws(b) + V_points(a) + V_points(b).

The size of the difference over M groups of weights w_m, which are taken as given, is f = sum_m w_m |delta_m|. Its
interval is that of :mod:`geh_explain.statistics.absolute_sums` with the shares w_m delta_m. The p-value is that of the
hypothesis delta_1 = ... = delta_M = 0: Student's t in each group, with degrees of freedom after Welch and
Satterthwaite, and Simes' rule over the groups.

If both estimates have the draws of the same functions, V_draws is one variance, that of the differences within draws.

For two estimates from the same points the sum is conservative: the errors over points are then correlated, mostly
positively, and the variance of their difference is V_points(a) + V_points(b) minus twice their covariance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from geh_explain._process import cached_property
from geh_explain._types import Floats
from geh_explain._validation import check_level
from geh_explain.statistics.absolute_sums import GivenCovariance, distances
from geh_explain.statistics.p_values import simes, two_sided_p_value, welch_freedom

#: Error rates 1 - level at which intervals are computed to find a p-value; smaller ones are not told apart.
_RATES = np.array([0.9999, 0.6, 0.3, 0.15, 0.07, 0.03, 0.015, 6e-3, 2.5e-3, 1e-3, 3e-4, 1e-4, 1e-5, 1e-6, 1e-9, 1e-12])


@dataclass(frozen=True)
class EstimatedMeans:
    """Means of P pairs in M groups, with their errors.

    Attributes
    ----------
    mean
        The means (M, P).
    of_draws
        Covariance (M, M, P) of the errors over draws; variances (M, P) where only these are known; None where draws do
        not count.
    draw_freedom
        Degrees of freedom of ``of_draws``.
    of_points
        Covariance (M, M, P) of the errors over points; variances (M, P) where groups are independent; None where points
        do not count.
    point_freedom
        Degrees of freedom (M,) of ``of_points``.
    """

    mean: Floats
    of_draws: Floats | None
    draw_freedom: float
    of_points: Floats | None
    point_freedom: Floats

    @property
    def parts(self) -> list[tuple[Floats, Floats | float]]:
        """Variances (M, P) by source, with their degrees of freedom."""
        parts: list[tuple[Floats, Floats | float]] = []
        if self.of_draws is not None:
            parts.append((_variances(self.of_draws), self.draw_freedom))
        if self.of_points is not None:
            parts.append((_variances(self.of_points), self.point_freedom[:, None]))
        return parts


@dataclass(frozen=True)
class MeanDifference:
    """Difference of two :class:`EstimatedMeans` of the same M groups and P pairs; see the module.

    Examples
    --------
    >>> import numpy as np
    >>> def estimate(mean):  # two groups, errors over 50 points each
    ...     return EstimatedMeans(np.array(mean), None, 1.0, np.full((2, 1), 0.005), np.array([49.0, 49.0]))
    >>> difference = MeanDifference(estimate([[1.0], [2.0]]), estimate([[1.5], [1.5]]), np.array([0.5, 0.5]))
    >>> difference.size.tolist(), difference.p_value.round(6).tolist()
    ([0.5], [3e-06])
    >>> [end.round(2).tolist() for end in difference.size_interval(0.95)]
    [[0.36], [0.66]]
    """

    first: EstimatedMeans
    second: EstimatedMeans
    weights: Floats

    @cached_property
    def delta(self) -> Floats:
        """Differences (M, P) of the means."""
        return np.asarray(self.first.mean - self.second.mean)

    @cached_property
    def parts(self) -> list[tuple[Floats, Floats | float]]:
        """Variances (M, P) of the differences by source, with their degrees of freedom; empty if unknown."""
        return [*self.first.parts, *self.second.parts]

    @cached_property
    def p_value(self) -> Floats:
        """P-value (P,) of the hypothesis that all differences of a pair are 0; NaN without a known error."""
        if not self.parts:
            return np.full(self.delta.shape[1], np.nan)
        return simes(self.group_p_values)

    @property
    def group_p_values(self) -> Floats:
        """Two-sided p-values (M, P) of single differences; NaN without a known error."""
        return two_sided_p_value(self.delta, self.parts) if self.parts else np.full_like(self.delta, np.nan)

    def half_widths(self, level: float) -> Floats:
        """Return half the widths (M, P) of the intervals of single differences; NaN without a known error."""
        from scipy.special import stdtrit

        check_level(level)
        if not self.parts:
            return np.full_like(self.delta, np.nan)
        variance = np.sum([part for part, _ in self.parts], axis=0)
        return np.asarray(stdtrit(welch_freedom(self.parts), (1 + level) / 2) * np.sqrt(variance))

    @property
    def size(self) -> Floats:
        """sum_m w_m |delta_m| (P,)."""
        return np.asarray(self.weights @ np.abs(self.delta))

    def size_interval(self, level: float) -> tuple[Floats, Floats]:
        """Return the ends (P,) of the interval of :attr:`size`, of which the low one may be below 0; NaN if unknown."""
        size = self.size
        if not self.parts:
            return np.full_like(size, np.nan), np.full_like(size, np.nan)
        weights = self.weights[:, None]
        # Sums over groups of the variances of the shares, by source.
        by_source = [((weights**2 * part).sum(axis=0), self._pooled(part, freedom)) for part, freedom in self.parts]
        covariance = GivenCovariance(self._covariance() * (weights @ weights.T)[:, :, None])
        down, up = distances(weights * self.delta, covariance, size, welch_freedom(by_source), level)
        return size - down, size + up

    def _pooled(self, part: Floats, freedom: Floats | float) -> Floats | float:
        """Return the degrees of freedom (P,) of the sum over groups of the variances of one source."""
        if np.ndim(freedom) == 0:
            return freedom
        of_groups = [(w**2 * row, float(f)) for w, row, f in zip(self.weights, part, np.ravel(freedom), strict=True)]
        return welch_freedom(of_groups)

    def _covariance(self) -> Floats:
        """Return the covariance (M, M, P) of the differences."""
        groups, pairs = self.delta.shape
        total = np.zeros((groups, groups, pairs))
        index = np.arange(groups)
        for estimate in (self.first, self.second):
            if estimate.of_draws is not None and estimate.of_draws.ndim == 3:
                total += estimate.of_draws
            elif estimate.of_draws is not None:
                # Correlations are not known; these give the largest variance of the size.
                std = np.sqrt(estimate.of_draws) * np.where(self.delta < 0, -1.0, 1.0)
                total += std[:, None] * std[None]
            if estimate.of_points is not None and estimate.of_points.ndim == 3:
                total += estimate.of_points
            elif estimate.of_points is not None:
                total[index, index] += estimate.of_points
        return total


def _variances(covariance: Floats) -> Floats:
    """Return the variances (M, P) of a covariance (M, M, P), or the variances themselves."""
    return covariance if covariance.ndim == 2 else np.asarray(np.einsum("mmp->mp", covariance))


def interval_p_value(difference: Floats, reach: Callable[[float], tuple[Floats, Floats]]) -> Floats:
    """Return the p-values (P,) of the hypothesis that a difference is 0, by inversion of its interval.

    ``reach(level)`` returns how far the ends of the interval at ``level`` lie below and above the difference. The
    p-value is 1 minus the level at which the interval begins to hold 0; those below 1e-12 are not told apart.

    >>> import numpy as np
    >>> from scipy.special import ndtri
    >>> def reach(level):
    ...     return (np.full(2, ndtri((1 + level) / 2)),) * 2
    >>> interval_p_value(np.array([1.96, -3.0]), reach).round(3).tolist()
    [0.05, 0.003]
    """
    from scipy.special import ndtr, ndtri

    size = np.abs(difference)
    ends = np.stack([np.where(difference > 0, *reach(float(1 - rate))) for rate in _RATES])
    # The ends are almost linear in the normal quantiles of the levels, between which they are interpolated.
    quantiles = -ndtri(_RATES / 2)
    place = np.clip((ends <= size).sum(axis=0), 1, len(ends) - 1)
    columns = np.arange(len(size))
    low, high = ends[place - 1, columns], ends[place, columns]
    part = np.clip(np.divide(size - low, high - low, out=np.ones_like(size), where=high > low), 0, 1)
    quantile = quantiles[place - 1] + part * (quantiles[place] - quantiles[place - 1])
    return np.where(np.isnan(ends).any(axis=0), np.nan, np.where(size == 0, 1.0, 2 * ndtr(-quantile)))
