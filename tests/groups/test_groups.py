"""Groups are nested and compact, and do not depend on the order of rows."""

import numpy as np
import pytest
import torch
from explaining import explain_point, random_points
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

import geh_explain as geh
from geh_explain.groups.grouping import from_labels, from_tree
from geh_explain.groups.kmeans import grow
from geh_explain.groups.number import choose_group_number, rank_weighted_distances
from geh_explain.groups.positions import PositionSample


def partition(labels: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}


def within(points: np.ndarray, labels: np.ndarray) -> float:
    return sum(((points[labels == g] - points[labels == g].mean(0)) ** 2).sum() for g in np.unique(labels))


def test_well_separated_blobs_are_found() -> None:
    points, truth = make_blobs(400, centers=5, n_features=3, cluster_std=0.2, random_state=1)
    tree = grow(points, 5, standardise=False)
    assert partition(tree.labels(points)) == partition(truth)


def test_groups_are_almost_as_compact_as_those_of_k_means() -> None:
    points = np.random.default_rng(0).normal(size=(600, 4))
    for count in (2, 5, 11):
        tree = grow(points, count, standardise=False)
        best = KMeans(count, n_init=10, random_state=0).fit(points).inertia_
        assert within(points, tree.labels(points)) < 1.15 * best


def test_coarser_partitions_are_unions_of_finer_ones() -> None:
    points = np.random.default_rng(0).normal(size=(200, 3))
    tree = grow(points, 20, standardise=True)
    finest = tree.labels(points)
    for count in range(1, 21):
        coarse = from_tree(tree, finest, count).labels
        assert sorted(np.unique(coarse)) == list(range(count))
        assert all(len(np.unique(coarse[finest == group])) == 1 for group in range(20))
        assert np.array_equal(coarse, grow(points, count, standardise=True).labels(points))


def test_merged_sums_are_the_sums_over_the_coarser_groups() -> None:
    rng = np.random.default_rng(0)
    points, local = rng.normal(size=(100, 3)), rng.normal(size=(100, 4))
    tree = grow(points, 12, standardise=True)
    finest = tree.labels(points)
    sums = np.stack([local[finest == group].sum(0) for group in range(12)])
    labels = from_tree(tree, finest, 5).labels
    expected = np.stack([local[labels == group].sum(0) for group in range(5)])
    assert tree.merge(sums, 5) == pytest.approx(expected)


def test_the_order_of_rows_and_columns_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    points = rng.normal(size=(150, 4)) * [1, 2, 3, 4]
    rows, columns = rng.permutation(150), rng.permutation(4)
    plain = grow(points, 8, standardise=True).labels(points)
    shuffled = points[rows][:, columns]
    again = grow(shuffled, 8, standardise=True).labels(shuffled)
    assert partition(plain[rows]) == partition(again)


def test_units_of_measure_do_not_matter_to_a_table() -> None:
    points = np.random.default_rng(3).normal(size=(150, 3))
    scaled = points * [1.0, 1000.0, 0.001]
    one = grow(points, 6, standardise=True).labels(points)
    other = grow(scaled, 6, standardise=True).labels(scaled)
    assert partition(one) == partition(other)


def test_a_constant_column_does_not_decide_the_groups_of_wide_points() -> None:
    points = np.random.default_rng(0).normal(size=(50, 300))
    points[:, 0] = 1e6
    tree = grow(points, 50, standardise=True)
    assert sorted(tree.labels(points)) == list(range(50))


def test_equal_points_stay_together() -> None:
    points = np.repeat(np.arange(3.0)[:, None], 10, axis=0)
    tree = grow(points, 9, standardise=True)
    assert tree.n_groups == 3
    assert partition(tree.labels(points)) == partition(np.repeat([0, 1, 2], 10))


def test_the_rank_weighted_distance_is_the_papers_formula() -> None:
    # Three pairs, two numbers of groups: shares (.5, .3, .2) -> (.3, .5, .2), ranks (3, 2, 1) -> (2, 3, 1).
    curve = np.array([[5.0, 3.0, 2.0], [6.0, 10.0, 4.0]])
    assert rank_weighted_distances(curve) == pytest.approx([0.2**2 * 1 + 0.2**2 * 1 + 0])


def test_the_chosen_number_reaches_seventy_percent_of_the_finest_scores_in_the_mean_over_pairs() -> None:
    # Parts of the last row: (.14, .33), (.57, .67), (.71, .67), (.86, 1), (1, 1).
    curve = np.array([[1.0, 1.0], [4.0, 2.0], [5.0, 2.0], [6.0, 3.0], [7.0, 3.0]])
    assert choose_group_number(curve).chosen == 4
    # A strong pair with one sign does not decide for a weak one that cancels; tiny ones decide nothing.
    strong_and_weak = np.array([[9.0, 0.1, 0.0], [9.0, 0.3, 1e-9], [9.0, 0.8, 1e-8], [9.0, 0.9, 1e-7]])
    assert choose_group_number(strong_and_weak).chosen == 3
    # Nor do many weak pairs decide for a strong one that cancels.
    weak_and_strong = np.array([[1.0, 1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0, 50.0], [1.0, 1.0, 1.0, 1.0, 60.0]])
    assert choose_group_number(weak_and_strong).chosen == 2
    assert choose_group_number(np.stack([curve[0]] * 5)).chosen == 1
    assert choose_group_number(np.zeros((5, 2))).chosen == 1
    assert choose_group_number(np.array([[0.0], [1.0], [2.0], [2.0], [2.0]])).chosen == 3  # a single pair
    # Forty groups of 120 points would hold three each; twelve hold ten.
    assert choose_group_number(np.arange(40.0)[:, None], n_places=120).chosen == 9


def test_labels_of_any_kind_are_groups() -> None:
    grouping = from_labels(["b", "a", "b", "c"], 4)
    assert grouping.names == ["a", "b", "c"]
    assert grouping.labels.tolist() == [1, 0, 1, 2]
    assert grouping.sizes.tolist() == [1, 2, 1]


def test_any_scikit_learn_clusterer_can_group_and_stays_unfitted() -> None:
    torch = pytest.importorskip("torch")
    x = torch.cat([torch.randn(30, 2, generator=torch.Generator().manual_seed(0)) + shift for shift in (0, 20)])
    clusterer = KMeans(2, n_init=1, random_state=0)
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    result = explainer.explain(x, groups=clusterer, progress=False)
    assert partition(result.labels) == {frozenset(range(30)), frozenset(range(30, 60))}
    assert not hasattr(clusterer, "labels_")


def sampled(pieces: list[np.ndarray]) -> np.ndarray:
    sample = PositionSample(seed=0)
    for piece in pieces:
        sample.add(piece)
    return sample.result()


def test_a_sample_of_many_points_is_uniform_and_repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geh_explain.groups.positions.MAX_POINTS", 500)
    points = np.arange(20_000.0)[:, None]
    chosen = sampled(np.array_split(points, 37))
    assert len(chosen) == len(np.unique(chosen)) == 500
    assert abs(chosen.mean() - 10_000) < 4 * 20_000 / np.sqrt(12 * 500)
    assert np.array_equal(chosen, sampled(np.array_split(points, 37)))


def test_many_points_are_assigned_to_groups_found_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("geh_explain.groups.positions.MAX_POINTS", 100)
    points, truth = make_blobs(1000, centers=3, n_features=2, cluster_std=0.1, random_state=0)
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    result = explainer.explain(torch.as_tensor(points), groups=3, progress=False)
    assert partition(result.labels) == partition(truth)


def test_groups_of_one_point_are_measured_and_said_to_be_suspicious() -> None:
    x = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [2.0, 0.0], [4.0, 0.0]])
    with pytest.warns(geh.GEHWarning, match="1 of 2 groups"):
        result = explain_point(lambda x: x[:, 0] ** 2 * x[:, 1], x, groups=[0, 1, 1, 1])
    assert result.geh.mean[0, 1] == 1 / 4 * 2 + 3 / 4 * (2 + 4 + 8) / 3


def test_far_apart_clouds_become_the_groups() -> None:
    cloud = torch.arange(30) % 3
    x = 0.1 * random_points(30, 2) + 10.0 * torch.stack([cloud, cloud**2], dim=1)
    labels = explain_point(lambda x: x[:, 0] ** 2 * x[:, 1], x, groups=3).labels
    assert len({(int(a), int(b)) for a, b in zip(cloud, labels, strict=True)}) == 3
