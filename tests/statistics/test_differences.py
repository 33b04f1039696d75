"""Differences of two estimates of group means."""

import numpy as np
import pytest
from scipy import stats

from geh_explain.statistics.differences import EstimatedMeans, MeanDifference, interval_p_value


def of_points(samples: list[np.ndarray]) -> EstimatedMeans:
    """Return the means of samples (n, P), one per group, with their errors over points."""
    mean = np.stack([sample.mean(axis=0) for sample in samples])
    variance = np.stack([sample.var(axis=0, ddof=1) / len(sample) for sample in samples])
    return EstimatedMeans(mean, None, 1.0, variance, np.array([len(sample) - 1.0 for sample in samples]))


def normal(rows: int, seed: int, groups: int = 1, pairs: int = 4) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.normal(1, 1 + group, (rows + group, pairs)) for group in range(groups)]


def test_in_one_group_the_test_is_that_of_welch() -> None:
    one, other = normal(8, 0), normal(30, 1)
    difference = MeanDifference(of_points(one), of_points(other), np.ones(1))
    expected = stats.ttest_ind(one[0], other[0], equal_var=False)
    np.testing.assert_allclose(difference.p_value, expected.pvalue, rtol=1e-10)
    low, high = expected.confidence_interval(0.9)
    np.testing.assert_allclose(difference.delta[0] - difference.half_widths(0.9)[0], low, rtol=1e-10)
    np.testing.assert_allclose(difference.delta[0] + difference.half_widths(0.9)[0], high, rtol=1e-10)


def test_simes_combines_the_groups() -> None:
    one, other = normal(8, 0, groups=2), normal(9, 1, groups=2)
    difference = MeanDifference(of_points(one), of_points(other), np.array([0.5, 0.5]))
    p = np.sort([stats.ttest_ind(a, b, equal_var=False).pvalue for a, b in zip(one, other, strict=True)], axis=0)
    np.testing.assert_allclose(difference.p_value, np.minimum(2 * p[0], p[1]), rtol=1e-10)


def test_the_size_of_the_difference_is_the_weighted_sum_of_absolute_values() -> None:
    first = EstimatedMeans(np.array([[1.0], [-2.0]]), None, 1.0, np.full((2, 1), 1e-8), np.array([50.0, 50.0]))
    second = EstimatedMeans(np.array([[0.5], [2.0]]), None, 1.0, np.full((2, 1), 1e-8), np.array([50.0, 50.0]))
    difference = MeanDifference(first, second, np.array([0.25, 0.75]))
    np.testing.assert_allclose(difference.size, [0.25 * 0.5 + 0.75 * 4])
    low, high = difference.size_interval(0.95)
    # Clear of 0 it is the usual interval, of a sum with the variance sum w^2 v.
    half = 2 * np.sqrt(2 * 1e-8 * (0.25**2 + 0.75**2))
    np.testing.assert_allclose([difference.size - low, high - difference.size], half, rtol=0.05)


def test_correlated_draws_widen_the_interval_of_the_sum() -> None:
    def interval(correlation: float) -> float:
        covariance = 0.01 * np.array([[1, correlation], [correlation, 1]])[:, :, None]
        first = EstimatedMeans(np.array([[5.0], [5.0]]), covariance, 1e9, None, np.ones(2))
        second = EstimatedMeans(np.zeros((2, 1)), None, 1.0, None, np.ones(2))
        low, high = MeanDifference(first, second, np.array([0.5, 0.5])).size_interval(0.95)
        return float((high - low)[0])

    assert interval(1.0) == pytest.approx(np.sqrt(2) * interval(0.0), rel=0.02)
    # Without known correlations the widest one is returned.
    first = EstimatedMeans(np.array([[5.0], [5.0]]), np.full((2, 1), 0.01), 1e9, None, np.ones(2))
    second = EstimatedMeans(np.zeros((2, 1)), None, 1.0, None, np.ones(2))
    low, high = MeanDifference(first, second, np.array([0.5, 0.5])).size_interval(0.95)
    assert float((high - low)[0]) == pytest.approx(interval(1.0))


def test_equal_means_have_p_value_one_and_unknown_errors_none() -> None:
    same = EstimatedMeans(np.zeros((1, 1)), None, 1.0, np.zeros((1, 1)), np.array([9.0]))
    assert MeanDifference(same, same, np.ones(1)).p_value.tolist() == [1.0]
    unknown = EstimatedMeans(np.zeros((1, 1)), None, 1.0, None, np.ones(1))
    assert np.isnan(MeanDifference(unknown, unknown, np.ones(1)).p_value).all()
    assert np.isnan(MeanDifference(unknown, unknown, np.ones(1)).size_interval(0.95)).all()


def test_the_interval_holds_the_size_of_the_difference_at_its_level() -> None:
    generator = np.random.default_rng(0)
    truth, pairs, error = np.array([0.0, 0.3, -1.0]), 4000, 0.1
    weights, freedom = np.array([0.5, 0.3, 0.2]), np.full(3, 200.0)

    def estimate(mean: np.ndarray) -> EstimatedMeans:
        noisy = mean[:, None] + generator.normal(0, error, (3, pairs))
        return EstimatedMeans(noisy, None, 1.0, np.full((3, pairs), error**2), freedom)

    low, high = MeanDifference(estimate(truth), estimate(np.zeros(3)), weights).size_interval(0.9)
    size = weights @ np.abs(truth)
    assert 0.88 <= np.mean((low <= size) & (size <= high)) <= 0.97


def test_a_p_value_is_one_minus_the_level_of_the_interval_that_ends_at_zero() -> None:
    difference = np.array([-4.0, -1.5, 0.0, 0.4, 2.2, 5.5])
    freedom = 7

    def reach(level: float) -> tuple[np.ndarray, np.ndarray]:
        half = np.full(len(difference), stats.t.ppf((1 + level) / 2, freedom))
        return half, half

    expected = 2 * stats.t.sf(np.abs(difference), freedom)
    np.testing.assert_allclose(interval_p_value(difference, reach), expected, rtol=0.05)
