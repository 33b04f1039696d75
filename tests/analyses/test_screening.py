"""Screening of many units: the strongest are found, and can be passed on to be explained."""

import numpy as np
import pytest
import torch
from explaining import point_explainer, random_points
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout, PointEstimate

pytestmark = pytest.mark.usefixtures("seeded")


def few_of_many(x):
    return x[:, 3] * x[:, 70] + 2 * x[:, 5] + 0.5 * x[:, 91] ** 2


def test_units_that_matter_are_found_the_strongest_first():
    x = torch.randn(200, 100, dtype=torch.double)
    subset = geh.GEHExplainer(few_of_many, posterior=PointEstimate()).screen(x, keep=4, progress=False)
    assert isinstance(subset, geh.units.Subset)
    assert subset.indices[0] == 5
    assert sorted(subset.indices) == [3, 5, 70, 91]
    gradient = torch.stack([x[:, 70], 2 + 0 * x[:, 0], x[:, 3], x[:, 91]], 1).abs().mean(0) * x[:, [3, 5, 70, 91]].std(
        0, False
    )
    np.testing.assert_allclose(np.sort(subset.importance), np.sort(gradient), rtol=1e-10)


def test_what_is_kept_can_be_explained():
    x = torch.randn(100, 100, dtype=torch.double)
    subset = geh.GEHExplainer(few_of_many, posterior=PointEstimate()).screen(x, keep=4, progress=False)
    result = geh.GEHExplainer(few_of_many, units=subset, posterior=PointEstimate()).explain(x, groups=1, progress=False)
    top = result.top(1)
    assert {top["unit_i"][0], top["unit_j"][0]} == {"x3", "x70"}
    assert top["mean"][0] == pytest.approx(1)


def test_units_of_measure_do_not_matter_by_default_and_do_without_scale():
    x = torch.randn(100, 3, dtype=torch.double) * torch.tensor([1000.0, 1.0, 1.0])
    model = lambda x: x[:, 0] / 100 + x[:, 1]  # noqa: E731
    explainer = geh.GEHExplainer(model, posterior=PointEstimate())
    assert explainer.screen(x, keep=1, progress=False).indices == [0]
    assert explainer.screen(x, keep=1, scale=None, progress=False).indices == [1]


def test_hidden_channels_and_draws():
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Dropout2d(0.2), nn.Flatten(), nn.Linear(6 * 16, 1))
    with torch.no_grad():
        model[4].weight[:, 2 * 16 : 3 * 16] *= 100
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(20, 1, 6, 6)
    explainer = geh.GEHExplainer(model, "0", posterior=MCDropout())
    subset = explainer.screen(x, keep=2, progress=False)
    assert subset.indices[0] == 2
    assert explainer.screen(x, keep=2, progress=False).indices == subset.indices
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert geh.GEHExplainer(model, "0", units=subset, output="probability").explain(
        x, groups=1, draws=3, progress=False
    ).names == [f"0[{i}]" for i in subset.indices]


def test_a_model_that_has_learned_to_drop_inputs_is_believed():
    class Dropping(nn.Linear):
        input_dropout_rates = torch.tensor([0.9, 0.1, 0.5])

    subset = geh.GEHExplainer(Dropping(3, 1), posterior=PointEstimate()).screen(torch.randn(5, 3), keep=2)
    assert subset.indices == [1, 2]
    np.testing.assert_allclose(subset.importance, [0.9, 0.5], rtol=1e-6)


def test_a_black_box_has_no_gradients():
    with pytest.raises(geh.GEHError, match="screen needs gradients"):
        geh.GEHExplainer(lambda x: (x.detach() ** 2).sum(1)).screen(torch.randn(5, 3), progress=False)


@pytest.mark.parametrize("wrong", [{"keep": 0}, {"keep": 1.5}, {"draws": 0}, {"seed": -1}, {"batch_size": 0}])
def test_wrong_arguments_are_named(wrong):
    with pytest.raises(geh.GEHError, match=next(iter(wrong))):
        geh.GEHExplainer(few_of_many).screen(torch.randn(5, 100), **wrong)


def test_an_arbitrary_order_is_warned_of():
    explainer = point_explainer(lambda x: x[:, 0] * x[:, 1] + x[:, 3])
    with pytest.warns(geh.GEHWarning, match="scale='std': all units are constant.*arbitrary"):
        explainer.screen(random_points(1, 4), keep=2, progress=False)
    assert sorted(explainer.screen(random_points(1, 4), keep=3, scale=None, progress=False).indices) == [0, 1, 3]
