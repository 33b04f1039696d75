"""ClusterSpread: covariances and errors over clusters, against shares and means without one cluster at a time."""

import numpy as np
import pytest
from reference_intervals import effective_number, jackknife

from geh_explain.groups.clusters import Cells
from geh_explain.scores.cluster_spread import ClusterErrors, ClusterSpread

#: Clusters of 1 to 7 points.
CLUSTERS = np.repeat(np.arange(8), [1, 2, 3, 3, 4, 5, 6, 7])


@pytest.fixture
def groups() -> np.ndarray:
    """Groups of the points, which cross the clusters."""
    return np.random.default_rng(0).integers(0, 3, len(CLUSTERS))


@pytest.fixture
def local() -> np.ndarray:
    """Local interactions that are correlated within clusters."""
    rng = np.random.default_rng(1)
    return rng.normal(1.0, 1.0, len(CLUSTERS)) + rng.normal(size=8)[CLUSTERS]


def spread_of(local: np.ndarray, groups: np.ndarray, clusters: np.ndarray) -> ClusterSpread:
    """Return the spread of one draw with two pairs, the second twice as strong."""
    cells = Cells.of(groups, clusters)
    spread = ClusterSpread(cells.clusters, cells.sizes)
    sums = np.bincount(cells.labels, local)
    spread.add(np.stack([sums, 2 * sums], axis=1), groups[cells.first], groups.max() + 1)
    return spread


def test_the_covariance_is_that_of_shares_without_one_cluster_at_a_time(local: np.ndarray, groups: np.ndarray) -> None:
    errors = spread_of(local, groups, CLUSTERS).cluster_errors()
    expected = jackknife(local, groups, CLUSTERS)
    np.testing.assert_allclose(errors.covariance[:, :, 0], expected, rtol=1e-10)
    np.testing.assert_allclose(errors.covariance[:, :, 1], 4 * expected, rtol=1e-10)
    assert np.abs(expected - np.diag(np.diag(expected))).max() > 0.1 * np.diag(expected).min()  # groups are correlated


def test_errors_of_means_leave_one_cluster_of_the_group_out(local: np.ndarray, groups: np.ndarray) -> None:
    errors = spread_of(local, groups, CLUSTERS).errors()[:, 0]
    for group in range(3):
        inside, clusters = local[groups == group], CLUSTERS[groups == group]
        names = np.unique(clusters)
        without = np.array([inside[clusters != name].mean() for name in names])
        expected = (len(names) - 1) / len(names) * ((without - inside.mean()) ** 2).sum()
        assert errors[group] == pytest.approx(np.sqrt(expected), rel=1e-10)


def test_clusters_of_equal_size_have_the_usual_cluster_robust_covariance() -> None:
    clusters, groups = np.repeat(np.arange(6), 4), np.tile([0, 0, 1, 1], 6)
    local = np.random.default_rng(0).normal(1.0, 1.0, 24)
    shares = np.array([local[groups == group].sum() for group in (0, 1)]) / 24
    residuals = np.array(
        [
            [local[(clusters == c) & (groups == g)].sum() - 4 * shares[g] for g in (0, 1)]  # S_gm - phi_m N_g
            for c in range(6)
        ]
    )
    expected = 6 / 5 * residuals.T @ residuals / 24**2
    np.testing.assert_allclose(spread_of(local, groups, clusters).cluster_errors().covariance[:, :, 0], expected)


def test_clusters_of_one_point_are_independent_points(local: np.ndarray, groups: np.ndarray) -> None:
    spread = spread_of(local, groups, np.arange(len(local)))
    by_group = np.where(groups == np.arange(3)[:, None], local, 0.0)
    np.testing.assert_allclose(spread.cluster_errors().covariance[:, :, 0], np.cov(by_group) / len(local), rtol=1e-10)
    expected = [local[groups == g].std(ddof=1) / np.sqrt((groups == g).sum()) for g in range(3)]
    np.testing.assert_allclose(spread.errors()[:, 0], expected, rtol=1e-10)


def test_effective_numbers_of_clusters(local: np.ndarray, groups: np.ndarray) -> None:
    errors = spread_of(local, groups, CLUSTERS).cluster_errors()
    assert errors.total == pytest.approx(effective_number(CLUSTERS))
    assert errors.counts.tolist() == pytest.approx([effective_number(CLUSTERS[groups == g]) for g in range(3)])


def test_a_group_of_one_cluster_has_no_error_of_its_mean_and_one_of_its_share(local: np.ndarray) -> None:
    groups = np.where(CLUSTERS == 3, 1, 0)
    spread = spread_of(local, groups, CLUSTERS)
    assert np.isnan(spread.errors()[1]).all()
    assert np.isfinite(spread.errors()[0]).all()
    np.testing.assert_allclose(spread.cluster_errors().covariance[:, :, 0], jackknife(local, groups, CLUSTERS))


def test_draws_are_averaged(local: np.ndarray, groups: np.ndarray) -> None:
    cells = Cells.of(groups, CLUSTERS)
    spread = ClusterSpread(cells.clusters, cells.sizes)
    for factor in (1.0, 3.0):
        spread.add(factor * np.bincount(cells.labels, local)[:, None], groups[cells.first], 3)
    errors: ClusterErrors = spread.cluster_errors()
    np.testing.assert_allclose(errors.covariance[:, :, 0], 5 * jackknife(local, groups, CLUSTERS), rtol=1e-10)
