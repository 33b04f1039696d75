"""Exemplars that differ: one per cluster, or far apart in the layer's activations."""

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain.interpret import exemplars
from geh_explain.interpret.diversity import choose_diverse, one_per_cluster


def identity():
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1)).eval()
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(2))
    return net


def test_one_per_cluster_takes_the_best_of_each_then_the_second_best():
    codes = torch.tensor([[0, 0, 0, 1, 2, 1]])
    assert one_per_cluster(codes, 3).tolist() == [[0, 3, 4]]
    assert one_per_cluster(codes, 5).tolist() == [[0, 1, 3, 4, 5]]


@pytest.mark.parametrize("batch_size", [1, 7, 256])
@pytest.mark.parametrize("seed", range(3))
def test_exemplars_per_cluster_are_those_of_a_full_sort_whatever_the_batches(batch_size, seed):
    rng = np.random.default_rng(seed)
    x, clusters, k = rng.standard_normal((60, 2)).astype("float32"), rng.integers(0, 5, 60), 7
    found = exemplars(identity(), "0", None, torch.from_numpy(x), k, clusters=clusters, batch_size=batch_size)
    for unit in range(2):
        order = np.argsort(-x[:, unit], kind="stable")
        rank = {
            row: sum(clusters[other] == clusters[row] for other in order[:place]) for place, row in enumerate(order)
        }
        expected = sorted(sorted(order, key=lambda row: (rank[row], -x[row, unit]))[:k], key=lambda row: -x[row, unit])
        assert found.indices[unit].tolist() == expected
        np.testing.assert_allclose(found.scores[unit], x[expected, unit])


def test_diverse_exemplars_skip_copies_of_the_best():
    """Ten copies of the best candidate, and three others that are almost as good."""
    first = torch.tensor([5.0] * 10 + [4.9, 4.8, 4.7] + [0.0] * 20)
    second = torch.tensor([0.0] * 10 + [3.0, -3.0, 9.0] + [0.0] * 20)
    x = torch.stack([first, second], dim=1)
    plain = exemplars(identity(), "0", 0, x, 4)
    diverse = exemplars(identity(), "0", 0, x, 4, diverse=True)
    assert plain.indices.tolist() == [[0, 1, 2, 3]]
    assert diverse.indices.tolist() == [[0, 10, 11, 12]]
    np.testing.assert_allclose(diverse.scores, [[5.0, 4.9, 4.8, 4.7]])
    torch.testing.assert_close(diverse.inputs[0], x[[0, 10, 11, 12]])


def test_the_choice_weighs_score_and_distance():
    scores = torch.tensor([4.0, 3.0, 2.0, 0.0])
    # Distances to the first: 0, 2, 2; the median of all six is 2.
    features = torch.tensor([[0.0], [0.0], [2.0], [2.0]])
    # Gains: 3/4 + 0, 2/4 + 1, 0 + 1.
    assert choose_diverse(scores, features, 2).tolist() == [0, 2]
    assert choose_diverse(scores, torch.zeros(4, 1), 2).tolist() == [0, 1]


def test_positions_of_maxima_belong_to_the_chosen_images():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 36, 1)).eval()
    x = torch.rand(40, 1, 8, 8)
    found = exemplars(net, "0", None, x, 3, diverse=True)
    with torch.no_grad():
        maps = net[0](x)
    for unit in range(2):
        for rank in range(3):
            row, (top, left) = found.indices[unit, rank], found.places[unit, rank]
            assert float(maps[row, unit, top, left]) == pytest.approx(found.scores[unit, rank])
            assert float(maps[row, unit].max()) == pytest.approx(found.scores[unit, rank])


def test_galleries_take_clusters_for_units_and_pairs():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 36, 1)).eval()
    x, clusters = torch.rand(60, 1, 8, 8), np.repeat(np.arange(6), 10)
    explainer = geh.GEHExplainer(net, "1", output="probability", posterior=geh.posterior.PointEstimate())
    result = explainer.explain(x, groups=1, progress=False)
    gallery = explainer.interpret(result, x, pairs=1, k=6, clusters=clusters, ascent=False, progress=False)
    (pair,) = gallery.pairs
    for row in (*pair.exemplars.indices, pair.both.indices[0]):
        assert sorted(clusters[row]) == list(range(6))


def test_wrong_clusters_raise():
    x = torch.rand(10, 2)
    with pytest.raises(ValueError, match="clusters has 9 entries for 10 candidates"):
        exemplars(identity(), "0", 0, x, 3, clusters=[0] * 9)
    for missing in (None, float("nan")):
        with pytest.raises(ValueError, match="clusters has missing labels"):
            exemplars(identity(), "0", 0, x, 3, clusters=[missing, *range(9)])
    with pytest.raises(TypeError, match="one label for each candidate"):
        exemplars(identity(), "0", 0, x, 3, clusters="photo")
