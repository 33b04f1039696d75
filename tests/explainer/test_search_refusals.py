"""search() refuses what it cannot answer, in words, and leaves the model as it was."""

import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain.errors import GEHValueError
from geh_explain.run import pair_search

POINT = geh.posterior.PointEstimate()


def network(units, dropout=0.0):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(units, 6), nn.Tanh(), nn.Dropout(dropout), nn.Linear(6, 1)).double()


def inputs(rows, units):
    return torch.randn(rows, units, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"top": 0}, "top=0 must be at least 1"),
        ({"top": True}, "top=True must be a whole number"),
        ({"top": None}, "top=None must be a whole number"),
        ({"top": 5.0}, "top=5.0 must be a whole number"),
        ({"top": 67}, "top=67, but 12 units have only 66 pairs"),
        ({"target": "all"}, "one target"),
        ({"groups": "pairwise"}, r"groups='pairwise' does not go with search\(\)"),
        ({"names": ["a", "b"]}, "names"),
    ],
)
def test_bad_arguments_are_refused(options, match):
    explainer = geh.GEHExplainer(network(12), posterior=POINT)
    with pytest.raises(geh.GEHError, match=match):
        explainer.search(inputs(20, 12), **({"top": 5, "progress": False} | options))


@pytest.mark.parametrize("engine", ["difference", "stein", geh.engines.Difference(step=0.5)])
def test_engines_without_second_derivatives_are_refused(engine):
    explainer = geh.GEHExplainer(network(12), posterior=POINT, engine=engine)
    with pytest.raises(GEHValueError, match=r"search\(\) takes second derivatives, which .* does not give"):
        explainer.search(inputs(20, 12), top=5, progress=False)


@pytest.mark.parametrize(
    "model",
    [
        lambda x: (x[:, 3] * x[:, 4]).sqrt() * x[:, 5] + x[:, 0] * x[:, 1],
        lambda x: ((x + 1) * torch.inf).tanh().prod(1),
    ],
    ids=["some pairs", "all pairs"],
)
def test_pairs_without_second_derivatives_are_not_left_out_of_a_search(model):
    x = inputs(20, 30).abs()
    x[7, 3:5] = 0
    with pytest.raises(geh.GEHError, match="second derivatives are NaN or infinite in rows 0 to 19"):
        geh.GEHExplainer(model, posterior=POINT).search(x, top=1, groups=1, progress=False)


def test_black_boxes_are_refused_with_what_to_do():
    explainer = geh.GEHExplainer(lambda x: torch.as_tensor(x.numpy().prod(1)), posterior=POINT)
    with pytest.raises(GEHValueError, match=r"rows=explainer\.screen\(inputs\)"):
        explainer.search(inputs(20, 12), top=5, groups=1, progress=False)


def test_categories_are_refused():
    units = geh.units.Categorical({"c": [0, 1, 2]})
    x = torch.cat([torch.eye(3).repeat(10, 1), torch.randn(30, 4)], dim=1).double()
    explainer = geh.GEHExplainer(network(7), units=units, posterior=POINT)
    with pytest.raises(GEHValueError, match=r"search\(\): units=Categorical\(...\) has categories"):
        explainer.search(x, top=2, groups=1, progress=False)


def test_ctrl_c_during_the_search_leaves_the_model_as_it_was(monkeypatch):
    net = network(80, dropout=0.1).train()

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(pair_search, "find_top_pairs", interrupt)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(KeyboardInterrupt):
        geh.GEHExplainer(net).search(inputs(20, 80), top=5, groups=1, progress=False)
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
