"""Errors over clusters: the same from every engine, batch size, checkpoint and loader, and those of the definition."""

import numpy as np
import pytest
import torch
from explaining import explain_draws, explain_point, random_points
from networks import mlp
from reference import local_hessians
from reference_intervals import effective_number, jackknife
from scipy import stats
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh
from geh_explain.posterior import MCDropout

pytestmark = pytest.mark.usefixtures("seeded")

#: 90 points in 15 clusters of 1 to 11 points, in the order of the rows and mixed.
SIZES = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 6, 6, 6, 6])
CLUSTERS = np.repeat(np.arange(15), SIZES)
MIXED = CLUSTERS[np.arange(90) * 37 % 90]


def multilinear(x):
    """Mixed differences of it are its second derivatives, whatever the steps."""
    return x[:, 0] * x[:, 1] * (1 + x[:, 2]) - 2 * x[:, 2] * x[:, 3] * x[:, 0]


def check(result, local, labels, clusters):
    """Compare covariances with those of shares without one cluster at a time."""
    for pair in range(local.shape[1]):
        expected = jackknife(local[:, pair], labels, clusters)
        found = result.cluster_errors.covariance[:, :, pair]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * max(expected.max(), 1e-6))


@pytest.mark.parametrize("clusters", [CLUSTERS, MIXED], ids=["in order", "mixed"])
@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("engine", ["structured", "exact", "difference"])
def test_engines_give_the_covariance_over_clusters(engine, batch_size, clusters):
    x, labels = random_points(len(CLUSTERS), 4), np.arange(len(CLUSTERS)) % 3
    result = explain_point(multilinear, x, engine=engine, groups=labels, batch_size=batch_size, clusters=clusters)
    assert result.settings["engine"] == engine
    i, j = np.triu_indices(4, 1)
    check(result, local_hessians(multilinear, x)[:, i, j], labels, clusters)
    plain = explain_point(multilinear, x, engine=engine, groups=labels, batch_size=batch_size)
    np.testing.assert_allclose(result.geh.draws, plain.geh.draws, rtol=1e-10)
    np.testing.assert_allclose(result.eah.draws, plain.eah.draws, rtol=1e-10)
    np.testing.assert_allclose(result.main.mean, plain.main.mean, rtol=1e-10)


@pytest.mark.parametrize("eah_points", [None, 20], ids=["all points", "eah of a sample"])
def test_pulled_back_hessians_are_summed_by_cluster(eah_points):
    net, x, labels = mlp(30, 6, 1), random_points(len(CLUSTERS), 30), np.arange(len(CLUSTERS)) % 2
    result = explain_point(net, x, engine="structured", groups=labels, clusters=MIXED, eah_points=eah_points)
    i, j = np.triu_indices(30, 1)
    check(result, local_hessians(lambda x: net(x)[:, 0], x)[:, i, j][:, :40], labels, MIXED)


def test_more_cells_than_a_product_with_the_membership_takes():
    net, x, labels = mlp(5, 8, 1), random_points(300, 5), np.arange(300) % 3
    clusters = np.arange(300) // 4
    for engine in ("structured", "exact"):
        result = explain_point(net, x, engine=engine, groups=labels, clusters=clusters)
        i, j = np.triu_indices(5, 1)
        check(result, local_hessians(lambda x: net(x)[:, 0], x)[:, i, j], labels, clusters)


def test_draws_at_once_have_the_errors_of_single_draws_and_the_first_four_decide():
    net, x = mlp(4, 8, 1, dropout=0.3), random_points(len(CLUSTERS), 4)
    options = {"groups": 2, "posterior": MCDropout(), "clusters": MIXED}
    at_once = explain_draws(net, x, draws=10, **options)
    for other in (explain_draws(net, x, draws=10, batch_size=40, **options), explain_draws(net, x, draws=4, **options)):
        np.testing.assert_allclose(at_once.point_errors, other.point_errors, rtol=1e-8)
        np.testing.assert_allclose(
            at_once.cluster_errors.covariance, other.cluster_errors.covariance, rtol=1e-7, atol=1e-16
        )
    plain = explain_draws(net, x, draws=10, groups=2, posterior=MCDropout())
    np.testing.assert_allclose(at_once.geh.draws, plain.geh.draws, rtol=1e-9)


def test_groups_that_are_merged_have_the_errors_of_given_groups():
    net, x = mlp(4, 16, 1, dropout=0.2, gain=2.0), random_points(len(CLUSTERS), 4)
    merged = explain_draws(net, x, groups="auto", draws=25, posterior=MCDropout(), clusters=CLUSTERS)
    assert 1 < len(merged.group_names) < 30
    given = explain_draws(net, x, groups=merged.labels, draws=25, posterior=MCDropout(), clusters=CLUSTERS)
    np.testing.assert_allclose(merged.cluster_errors.covariance, given.cluster_errors.covariance, rtol=1e-8, atol=1e-15)
    np.testing.assert_allclose(merged.point_errors, given.point_errors, rtol=1e-8)


def test_errors_are_scaled_as_the_interactions_are():
    net, x, factors = mlp(4, 8, 1), random_points(len(CLUSTERS), 4), np.array([1.0, -2.0, 3.0, 0.5])
    plain, scaled = (explain_point(net, x, groups=2, clusters=MIXED, scale=scale) for scale in (None, factors))
    i, j = np.triu_indices(4, 1)
    np.testing.assert_allclose(scaled.point_errors, plain.point_errors * np.abs(factors[i] * factors[j]), rtol=1e-9)
    np.testing.assert_allclose(scaled.variance()["points"].sum(), _by_name(scaled, plain, factors), rtol=1e-9)


def _by_name(scaled, plain, factors):
    """Return the sum of the variances of ``plain``, each multiplied by the squared factors of its units."""
    table = plain.variance().set_index(["unit_i", "unit_j"])["points"]
    names = plain.names
    return sum(value * (factors[names.index(i)] * factors[names.index(j)]) ** 2 for (i, j), value in table.items())


def test_a_resumed_run_has_the_errors_of_an_uninterrupted_one(tmp_path):
    explainer = geh.GEHExplainer(mlp(4, 8, 1, dropout=0.3))
    x = random_points(len(CLUSTERS), 4)
    options = {"groups": 2, "batch_size": 30, "progress": False, "clusters": MIXED}
    explainer.explain(x, draws=2, checkpoint=tmp_path, **options)
    continued = explainer.explain(x, draws=7, checkpoint=tmp_path, **options)
    alone = explainer.explain(x, draws=7, **options)
    np.testing.assert_array_equal(continued.point_errors, alone.point_errors)
    np.testing.assert_array_equal(continued.cluster_errors.covariance, alone.cluster_errors.covariance)
    with pytest.raises(geh.GEHError, match="another clusters"):
        explainer.explain(x, draws=7, checkpoint=tmp_path, **{**options, "clusters": CLUSTERS})


def test_a_streamed_loader_has_the_errors_of_a_tensor():
    net, x = mlp(4, 8, 1), random_points(len(CLUSTERS), 4)
    loader = DataLoader(TensorDataset(x), batch_size=8)
    streamed = explain_point(net, loader, groups=1, clusters=MIXED, memory=1e-4)
    np.testing.assert_allclose(
        streamed.point_errors, explain_point(net, x, groups=1, clusters=MIXED).point_errors, rtol=1e-8
    )


def test_where_memory_is_short_a_warning_says_that_clusters_do_not_count():
    net, x = mlp(30, 8, 1, dropout=0.3), random_points(len(CLUSTERS), 30)
    with pytest.warns(geh.GEHWarning, match="clusters: sums over 15 clusters of 30 units in 3 groups do not fit"):
        result = explain_draws(net, x, groups=3, draws=4, memory=1.2e-4, clusters=MIXED)
    assert result.point_errors is None
    assert result.decisions().sources == ("draws",)


def test_the_interval_and_the_words_are_those_of_clusters():
    """One group, a clear interaction 3 + x2: the interval is that of Student, on the effective number of clusters."""
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.normal(size=(15, 3))[CLUSTERS] + rng.normal(size=(len(CLUSTERS), 3)))
    result = explain_point(lambda x: x[:, 0] * x[:, 1] * (3 + x[:, 2]), x, clusters=CLUSTERS)
    local = 3 + x[:, 2].numpy()
    error = np.sqrt(jackknife(local, np.zeros(len(x), dtype=int), CLUSTERS)[0, 0])
    half = stats.t(effective_number(CLUSTERS) - 1).ppf(0.975) * error
    first = result.table().iloc[0]
    assert first["low"] == pytest.approx(local.mean() - half, rel=1e-6)
    assert first["high"] == pytest.approx(local.mean() + half + half**2 / (2 * local.mean()), rel=1e-6)
    assert result.variance().iloc[0]["points"] == pytest.approx(error**2, rel=1e-6)
    regions = result.regions(0, 1)
    assert regions["low"].iloc[0] == pytest.approx(local.mean() - half, rel=1e-6)
    assert "15 clusters" in repr(result)
    assert "interval of the network's score over clusters of points like these" in repr(result)
    # EAH has no sums by cluster.
    assert result.table("eah")[["low", "high"]].isna().all(axis=None)


def test_the_share_of_points_in_the_variance_of_eah_is_unknown():
    # Absolute values are not summed by cluster, which does not mean that points contribute nothing.
    result = explain_draws(mlp(4, 8, 1, dropout=0.2), random_points(90, 4), draws=5, clusters=CLUSTERS)
    variance = result.variance("eah")
    assert variance[["points", "share"]].isna().all(axis=None)
    np.testing.assert_array_equal(variance["total"], variance["draws"])
