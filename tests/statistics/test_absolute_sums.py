"""Intervals of sums of absolute means: quantiles against simulation, and coverage where the truth is known."""

import numpy as np
import pytest
from reference_intervals import simulated_distances

from geh_explain.errors import GEHError
from geh_explain.statistics.absolute_sums import GivenCovariance, IndependentPoints, distances

#: Shares of four groups with standard error 1: known and unknown signs.
SHARES = [(9.0, -8.0, 7.0, 6.0), (9.0, 1.0, -0.5, 6.0), (0.0, 0.1, -0.2, 0.3), (2.0, 2.0, -2.0, 2.0)]


def correlated(rho: float) -> np.ndarray:
    """Return a covariance (4, 4) with variances 1 and all correlations ``rho``."""
    return np.full((4, 4), rho) + (1 - rho) * np.eye(4)


@pytest.mark.parametrize(
    ("rho", "level", "tolerance"), [(0.0, 0.5, 0.01), (0.0, 0.95, 0.01), (0.4, 0.95, 0.05), (0.8, 0.95, 0.05)]
)
@pytest.mark.parametrize("shares", SHARES)
def test_distances_are_the_quantiles_of_simulated_errors(shares, rho, level, tolerance):
    shares = np.array(shares)
    score = np.abs(shares).sum()
    expected = simulated_distances(shares, correlated(rho), score, 1e9, level)
    found = distances(shares[:, None], GivenCovariance(correlated(rho)[:, :, None]), np.array([score]), 1e9, level)
    np.testing.assert_allclose([float(end[0]) for end in found], expected, rtol=tolerance)


def test_one_share_of_known_sign_has_the_interval_of_student():
    down, up = distances(np.array([[-5.0]]), GivenCovariance(np.full((1, 1, 1), 0.04)), np.array([5.0]), 10, 0.95)
    # 2.228 is the 97.5 % quantile with 10 degrees of freedom.
    assert down[0] == pytest.approx(2.228 * 0.2, rel=1e-3)
    assert up[0] == pytest.approx(2.228 * 0.2 + (2.228 * 0.2) ** 2 / 10, rel=1e-3)


def test_independent_points_have_the_covariance_of_their_indicators():
    rng = np.random.default_rng(0)
    local, labels = rng.normal(1.0, 2.0, 30), np.arange(30) % 3
    by_group = np.where(labels == np.arange(3)[:, None], local, 0.0)  # one variable per group
    expected = np.cov(by_group) / 30
    squares, shares = (by_group**2).sum(axis=1), by_group.mean(axis=1)
    covariance = IndependentPoints(squares[:, None], shares[:, None], 30)
    np.testing.assert_allclose(covariance.variance[:, 0], np.diag(expected), rtol=1e-12)
    for signs in (np.ones(3), np.array([1.0, -1.0, 1.0])):
        np.testing.assert_allclose(covariance.quadratic(signs[:, None]), signs @ expected @ signs, rtol=1e-12)


@pytest.mark.parametrize(("size", "lowest", "highest"), [(0.0, 0.955, 1.0), (1.0, 0.955, 1.0), (9.0, 0.935, 0.97)])
@pytest.mark.parametrize("groups", [1, 4, 11])
def test_intervals_hold_the_sum_whether_or_not_it_is_clear_of_0(groups, size, lowest, highest):
    """4,000 pairs, whose estimated shares have standard error 1."""
    shares = size + np.random.default_rng(1).normal(size=(groups, 4000))
    score = np.abs(shares).sum(axis=0)
    covariance = GivenCovariance(np.broadcast_to(np.eye(groups)[:, :, None], (groups, groups, 4000)))
    down, up = distances(shares, covariance, score, 1e9, 0.95)
    covered = (score - down <= groups * size) & (groups * size <= score + up)
    assert lowest < covered.mean() < highest


def test_no_error_leaves_no_distance():
    found = distances(np.array([[2.0], [0.0]]), GivenCovariance(np.zeros((2, 2, 1))), np.array([2.0]), 5, 0.95)
    assert [end.tolist() for end in found] == [[0.0], [0.0]]


def test_the_level_is_checked():
    with pytest.raises(GEHError, match="level"):
        distances(np.ones((1, 1)), GivenCovariance(np.ones((1, 1, 1))), np.ones(1), 5, 95)
