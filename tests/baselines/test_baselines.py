"""Other methods on data with known interactions, and the ranking that all of them return."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain import baselines
from geh_explain.bnn import HybridNet
from geh_explain.errors import GEHTypeError


def table(rows=2000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1, (rows, 4))
    return x, 3 * x[:, 1] * x[:, 3] + x[:, 0] + 0.05 * rng.standard_normal(rows)


def test_a_lasso_finds_a_product():
    x, y = table()
    assert baselines.lasso(pd.DataFrame(x, columns=list("abcd")), y).top(1) == [("b", "d")]


def test_the_oracle_finds_an_effect_of_any_form():
    x, _ = table()
    effect = np.cos(6 * x[:, 0] * x[:, 2])
    found = baselines.oracle(x, effect + 5 * x[:, 1], {(0, 2): effect}, names=list("abcd"))
    assert found.top(1) == [("a", "c")]
    assert found.rank("c", "a") == found.rank(2, 0) == 1
    assert np.sort(found.scores)[-2] < 0.01 * found.scores.max()


def test_nid_reads_the_weights():
    first, second, last = (torch.tensor(w) for w in ([[1.0, -2, 0], [0, 0.5, 1]], [[1.0, -1], [0, 2]], [[3.0, -1]]))
    net = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    for layer, weight in zip(net[::2], (first, second, last), strict=True):
        layer.weight.data = weight
    influence = (last.abs() @ second.abs())[0]
    expected = [float(influence[0] * 1), 0.0, float(influence[1] * 0.5)]
    assert baselines.nid(net).scores == pytest.approx(expected)
    assert baselines.nid(HybridNet(5, hidden=(4, 3), pairs=0)).scores.shape == (10,)
    with pytest.raises(GEHTypeError, match="products of polynomials"):
        baselines.nid(HybridNet(5, hidden=(4, 3)))
    with pytest.raises(geh.GEHError, match="needs an MLP"):
        baselines.nid(nn.Conv2d(1, 2, 3))


def test_shap_of_trees_finds_the_pair():
    pytest.importorskip("shap")
    pytest.importorskip("lightgbm")
    x, y = table()
    found = baselines.shap_trees(x, y, trees=100, learning_rate=0.1, points=50)
    assert found.top(1) == [("x1", "x3")]
    again = baselines.shap_trees(x, y, trees=100, learning_rate=0.1, points=50)
    assert np.array_equal(found.scores, again.scores)


def test_all_methods_give_the_same_kind_of_ranking():
    x, y = table(300)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    result = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate()).explain(
        torch.rand(20, 4), groups=2, progress=False
    )
    for found in (baselines.lasso(x, y), baselines.nid(net), baselines.oracle(x, y, {}), result.ranking("eah")):
        assert isinstance(found, geh.PairRanking)
        assert found.ranks.sum() == 21
        assert list(found.table()["rank"]) == sorted(found.ranks)
        assert np.array_equal(found.matrix, found.matrix.T)


def test_equal_scores_share_their_ranks():
    assert geh.PairRanking("", [0.0, 5.0, 0.0], list("abc")).ranks.tolist() == [2.5, 1, 2.5]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: baselines.lasso(np.ones((5, 1)), np.ones(5)), "at least two columns"),
        (lambda: baselines.lasso(np.ones((5, 2)), np.ones(4)), "y has shape \\(4,\\) for 5 rows"),
        (lambda: baselines.lasso(np.ones((5, 2)), np.ones(5), names=["a"]), "names has 1 entries for 2 columns"),
    ],
)
def test_wrong_tables_are_refused(call, message):
    with pytest.raises(geh.GEHError, match=message):
        call()
