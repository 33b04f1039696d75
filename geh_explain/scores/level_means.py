"""Uncertainty of pairs that are made of differences between levels.

The score of a pair with a category is a weighted mean of the scores of its contrasts, which are dependent. So

- distances of the ends of intervals over points, and standard deviations over points, are weighted means of those of
  the contrasts. This is an upper bound, reached if all contrasts vary together;
- the p-value of the sign rule combines those of the contrasts by Simes' rule, as those of groups are. The hypothesis is
  that all differences between levels are 0 in all groups. For pairwise differences of 3 to 20 independent levels, with
  5 to 100 draws, 3.9 to 5.4 % of the p-values of true hypotheses are below 5 %, and at most 1.3 % below 1 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geh_explain._process import cached_property
from geh_explain._types import Floats, Ints
from geh_explain.scores.cluster_spread import ClusterErrors
from geh_explain.scores.draws import DrawMoments, Draws, LevelDraws
from geh_explain.scores.measured_points import error_counts
from geh_explain.scores.moments import draws_not_kept
from geh_explain.scores.pair_scores import Scores
from geh_explain.scores.point_uncertainty import PointUncertainty, find_point_uncertainty, known_errors
from geh_explain.scores.protocol import PairResult, RunDescription
from geh_explain.statistics.p_values import sign_p_value, simes


@dataclass(frozen=True)
class LevelMeans:
    """The Q differences between levels of a result, with what is read of a result's pairs."""

    levels: LevelDraws
    result: PairResult

    @classmethod
    def of(cls, result: PairResult) -> LevelMeans | None:
        """Return the differences between levels of a result, None without categories."""
        levels = result.level_draws
        return None if levels is None else cls(levels, result)

    # Points and groups are those of the result.

    @property
    def labels(self) -> Ints:
        """Group of each point (N,); -1 for points of weight 0."""
        return self.result.labels

    @property
    def n_points(self) -> int:
        """Number of points that count."""
        return self.result.n_points

    @property
    def sizes(self) -> Ints:
        """Number of points of each group (M,)."""
        return self.result.sizes

    @property
    def group_shares(self) -> Floats:
        """Share of each group (M,) in the case weights, or in the points."""
        return self.result.group_shares

    @property
    def sample_weight(self) -> Floats | None:
        """Case weights (N,); None where all points count alike."""
        return self.result.sample_weight

    @property
    def effective_counts(self) -> Floats | Ints:
        """Effective number of points (M,), or of clusters of points, that the error of each group's mean rests on."""
        return self.result.effective_counts

    @property
    def record(self) -> RunDescription:
        """The record of the run."""
        return self.result.record

    # Means and errors are those of the differences.

    @cached_property
    def signed_means(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation over draws of each group's mean difference, both (M, Q)."""
        return self.levels.draws.signed_moments()

    @property
    def signed(self) -> Floats:
        """Mean difference (K, M, Q) of each draw and group; raises if draws were not kept."""
        draws = self.levels.draws
        if isinstance(draws, DrawMoments):
            raise draws_not_kept("signed", draws.geh.count, len(self.result.names))
        return draws.signed

    @property
    def noise(self) -> Floats | None:
        """Differences between levels are computed without noise."""
        return None

    @property
    def point_errors(self) -> Floats | None:
        """Standard errors (M, Q) over the choice of points, None if unknown."""
        return self.levels.draws.point_errors

    @property
    def cluster_errors(self) -> ClusterErrors | None:
        """Covariance of the groups' shares where points come in clusters, else None."""
        return self.levels.draws.cluster_errors

    @property
    def weight_moments(self) -> Floats | None:
        """Sums (M, Q) beside ``point_errors`` where points have case weights, else None."""
        return self.levels.draws.weight_moments

    def scores(self, measure: str = "geh") -> Scores:
        """Return the scores (Q,) of the differences; they have vectors, and no matrices."""
        draws = self.levels.draws
        values = draws.scores(measure, self.result.weight_sums) if isinstance(draws, Draws) else getattr(draws, measure)
        return Scores(values, self.levels.contrasts.pairs.n_units)

    def sign_p_values(self) -> Floats:
        """Return the p-value (Q,) of each difference by the sign rule."""
        return sign_p_value(*self.signed_means, self.scores().n_draws, known_errors(self), error_counts(self))


@dataclass(frozen=True)
class PairUncertainty:
    """Sampling error over points of the scores of all pairs, some of which are made of differences between levels."""

    pairs: PointUncertainty
    of_levels: PointUncertainty | None = None
    levels: LevelDraws | None = None

    @property
    def variance(self) -> Floats:
        """Variance (P,) of the score over the choice of points; an upper bound for pairs with a category."""
        variance = self.pairs.variance
        if self.levels is not None and self.of_levels is not None:
            contrasts = self.levels.contrasts
            std = contrasts.average(np.sqrt(np.maximum(self.of_levels.variance, 0)))
            variance[contrasts.category_pairs] = std**2
        return variance

    def distances(self, level: float) -> tuple[Floats, Floats]:
        """Return how far the ends of the interval of the score lie below and above it, both (P,)."""
        down, up = self.pairs.distances(level)
        if self.levels is not None and self.of_levels is not None:
            contrasts = self.levels.contrasts
            for own, of_levels in zip((down, up), self.of_levels.distances(level), strict=True):
                own[contrasts.category_pairs] = contrasts.average(of_levels)
        return down, up


def find_pair_uncertainty(result: PairResult, measure: str) -> PairUncertainty | None:
    """Return the uncertainty of a measure over the choice of points, None where it is not known."""
    pairs, means = find_point_uncertainty(result, measure), LevelMeans.of(result)
    if pairs is None or means is None:
        return None if pairs is None else PairUncertainty(pairs)
    return PairUncertainty(pairs, find_point_uncertainty(means, measure), means.levels)


def with_level_p_values(p_values: Floats, means: LevelMeans) -> Floats:
    """Return the p-values (P,) of the sign rule, with those of pairs with a category from their differences."""
    contrasts, of_levels = means.levels.contrasts, means.sign_p_values()
    combined = p_values.copy()
    for pair in contrasts.category_pairs:
        combined[pair] = simes(of_levels[contrasts.of_pair(pair), None])[0]
    return combined
