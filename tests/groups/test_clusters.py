"""Clusters of points: labels of users, cells of groups and clusters, and unions of many clusters."""

import numpy as np
import pandas as pd
import pytest
import torch
from explaining import explain_point, random_points
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

import geh_explain as geh
from geh_explain.groups.clusters import Cells, make_cells, unite_clusters
from geh_explain.groups.grouping import Grouping


def product(x):
    return x[:, 0] * x[:, 1] ** 2


def explain(clusters, x=None, **options):
    return explain_point(product, random_points(40, 2) if x is None else x, clusters=clusters, **options)


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(40) // 4,
        (np.arange(40) // 4).astype(float) / 7,
        [f"photograph {k // 4}" for k in range(40)],
        pd.Series(np.arange(40) // 4, index=range(100, 140)),
        torch.arange(40) // 4,
        pd.Categorical([f"p{k // 4}" for k in range(40)]),
    ],
    ids=["ints", "floats", "text", "series", "tensor", "categories"],
)
def test_labels_of_any_kind_name_the_same_clusters(labels):
    result, expected = explain(labels), explain((np.arange(40) // 4).tolist())
    assert result.settings["clusters"] == 10
    np.testing.assert_array_equal(result.point_errors, expected.point_errors)


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        (np.arange(39), r"clusters has shape \(39,\); give one label for each of the 40 points"),
        ([np.nan, *range(39)], r"clusters has missing labels .* give every point a cluster"),
        ([None, *range(39)], "clusters has missing labels"),
        (pd.Series([pd.NA, *range(39)], dtype="Int64"), "clusters has missing labels"),
        (pd.Series([None, *"ab" * 19, "a"], dtype="string"), "clusters has missing labels"),
        (pd.to_datetime([None, *["2020-01-01", "2020-01-02"] * 19, "2020-01-03"]), "clusters has missing labels"),
        (set(range(40)), "are no labels"),
        ([1j, *range(39), object()][1:], "clusters: labels of type int, object cannot be sorted"),
        (np.zeros(40), "clusters has the same label for all 40 points"),
        (7, "clusters=7: give one label per row"),
        ("patient", r"clusters='patient': give the labels themselves, one per row, such as frame\['patient'\]"),
        ({"a": 1}, "give one label per row"),
        (np.zeros((40, 2)), r"clusters has shape \(40, 2\)"),
    ],
)
def test_wrong_clusters_are_named(clusters, message):
    with pytest.raises(geh.GEHError, match=message):
        explain(clusters)


def test_a_loader_with_a_sampler_of_its_own_cannot_be_matched():
    data = TensorDataset(random_points(40, 2))
    shuffled = DataLoader(data, batch_size=8, sampler=SubsetRandomSampler(range(40)))
    with pytest.raises(geh.GEHError, match="clusters has one entry per row, but the loader picks"):
        explain(np.arange(40) // 4, shuffled)
    ordered = explain(np.arange(40) // 4, DataLoader(data, batch_size=8))
    np.testing.assert_allclose(ordered.point_errors, explain(np.arange(40) // 4).point_errors, rtol=1e-10)


def test_few_clusters_are_warned_about():
    with pytest.warns(geh.GEHWarning, match="clusters: 4 clusters are few"):
        explain(np.arange(40) // 10)


def test_cells_are_the_points_of_one_group_and_one_cluster():
    groups, clusters = np.array([0, 1, 0, 1, 1]), np.array([0, 0, 1, 1, 1])
    cells = Cells.of(groups, clusters)
    assert cells.labels.tolist() == [0, 2, 1, 3, 3]
    assert groups[cells.first].tolist() == [0, 0, 1, 1]
    assert cells.clusters.tolist() == [0, 1, 0, 1]
    assert cells.sizes.tolist() == [1, 1, 1, 2]


def test_many_clusters_become_unions_of_about_equal_size():
    clusters = np.random.default_rng(0).integers(0, 500, 4000)
    united = unite_clusters(clusters, 50)
    sizes = np.bincount(united)
    assert len(sizes) == 50
    assert sizes.max() - sizes.min() < np.bincount(clusters).max()
    # No cluster is divided.
    assert all(len(np.unique(united[clusters == cluster])) == 1 for cluster in range(500))


def test_memory_limits_the_number_of_cells():
    grouping = Grouping(np.arange(3000) % 2, ["0", "1"])
    clusters = np.arange(3000) // 10
    assert len(make_cells(clusters, grouping, max_cells=10_000)) == 600
    united = make_cells(clusters, grouping, max_cells=100)
    assert united.clusters.max() + 1 == 50
    assert make_cells(clusters, grouping, max_cells=30) is None
    assert make_cells(None, grouping, max_cells=30) is None
