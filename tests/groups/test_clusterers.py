"""Groups found by clusterers with scikit-learn's interface: labels of any kind, and errors where they do not fit."""

import numpy as np
import pytest
import torch
from expected_errors import ROWS, valid_points
from explaining import explain_point
from networks import dropout_network
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import DBSCAN, KMeans

import geh_explain as geh


class Clusterer(ClusterMixin, BaseEstimator):
    """Gives back the labels it was made with."""

    def __init__(self, labels=None):
        self.labels = labels

    def fit_predict(self, X, y=None):
        return self.labels


def clustered(labels) -> geh.Interactions:
    return explain_point(dropout_network(), valid_points(), groups=Clusterer(labels))


def test_labels_that_no_point_has_are_no_groups():
    result = clustered(np.arange(ROWS) % 2 * 5)
    assert (result.group_names, result.sizes.tolist()) == (["0", "5"], [ROWS // 2] * 2)
    assert result.signed == pytest.approx(
        explain_point(dropout_network(), valid_points(), groups=np.arange(ROWS) % 2).signed
    )


def test_points_without_a_cluster_are_a_group_of_their_own():
    result = clustered(np.arange(ROWS) % 3 - 1)
    assert (result.group_names, result.sizes.tolist()) == (["-1", "0", "1"], [ROWS // 3] * 3)
    crowd = torch.cat([valid_points(20) * 0.01, 50 + valid_points(4) * 20])
    found = explain_point(dropout_network(), crowd, groups=DBSCAN(eps=1.0, min_samples=3))
    assert "-1" in found.group_names
    assert found.sizes.sum() == len(crowd)
    assert (found.sizes > 0).all()


@pytest.mark.parametrize("kind", [float, np.float32, np.uint8, str, bool, object, list])
def test_labels_may_be_of_any_kind(kind):
    labels = (np.arange(ROWS) % 2).tolist() if kind is list else (np.arange(ROWS) % 2).astype(kind)
    result = clustered(labels)
    assert result.sizes.tolist() == [ROWS // 2] * 2
    assert result.signed == pytest.approx(
        explain_point(dropout_network(), valid_points(), groups=np.arange(ROWS) % 2).signed
    )


@pytest.mark.parametrize(
    "labels",
    [
        *(np.zeros(ROWS - 1), np.zeros(ROWS + 1), np.zeros(0), np.zeros((ROWS, 1)), np.full(ROWS, np.nan)),
        *([None] * ROWS, np.array(3), None, 3, [[0], [1, 2]] * (ROWS // 2)),
    ],
    ids=["too few", "too many", "none", "a column", "NaN", "missing", "a number", "nothing", "an int", "ragged"],
)
def test_a_clusterer_whose_labels_do_not_fit_is_refused(labels):
    with pytest.raises(geh.GEHError, match="groups"):
        clustered(labels)


def test_a_clusterer_that_fails_is_refused_in_words():
    with pytest.raises(geh.GEHError, match=r"groups=KMeans.*n_samples=3"):
        explain_point(dropout_network(), valid_points(3), groups=KMeans(5))


def test_a_clusterer_without_random_state_gives_the_same_groups_and_leaves_the_global_generators_alone():
    labels = []
    for seed in range(3):
        np.random.seed(seed)
        before = repr(np.random.get_state())
        labels.append(explain_point(dropout_network(), valid_points(60), groups=KMeans(6, n_init=1)).labels)
        assert repr(np.random.get_state()) == before
    assert all(np.array_equal(found, labels[0]) for found in labels)
