"""Kinked functions are explained by their smooth forms, for every way to call them."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from explaining import explain_draws, explain_point, explain_point_quietly, random_points, uniform_points
from kinked_functions import (
    ESSENTIAL,
    Kink,
    Net,
    Way,
    check_call,
    check_step_sharpness,
    check_zero_unsmoothed,
    doubles,
    for_calls,
    for_kinks,
)
from networks import mlp
from reference import hidden_hessians, local_hessians
from reference_scores import CLOSE, assert_scores
from torch import Tensor, nn

import geh_explain as geh

# One set of arguments per function; the others are in the long tests.


@for_calls(ESSENTIAL)
def test_however_it_is_called_its_smooth_form_is_explained(kink: Kink, way: Way) -> None:
    check_call(kink, way)


@for_kinks(ESSENTIAL)
def test_a_step_sets_the_sharpness_by_how_far_the_input_moves(kink: Kink) -> None:
    check_step_sharpness(kink)


@for_kinks([kink for kink in ESSENTIAL if kink.linear])
def test_unsmoothed_it_has_no_curvature_and_the_warning_names_it(kink: Kink) -> None:
    check_zero_unsmoothed(kink)


@pytest.mark.parametrize("kink", [Kink("elu", (1.7,)), Kink("selu"), Kink("hardswish")], ids=str)
def test_unsmoothed_what_bends_between_its_kinks_keeps_that_curvature(kink: Kink) -> None:
    net, x = Net(kink, kink.hard).eval(), random_points(12, 3)
    assert_scores(explain_point(net, x, smooth=None), local_hessians(net, x), every_pair=True)


@pytest.mark.parametrize("inplace", [False, True])
def test_a_relu_network_is_explained_as_the_softplus_network_of_that_beta(inplace: bool) -> None:
    x = random_points(60, 4)
    kinked = mlp(4, 16, 16, 1, activation=lambda: nn.ReLU(inplace), gain=2.0)
    smooth = mlp(4, 16, 16, 1, activation=lambda: nn.Softplus(beta=7), gain=2.0)
    groups = (x[:, 0] > 0).long()
    result, expected = explain_point(kinked, x, smooth=7.0, groups=groups), explain_point(smooth, x, groups=groups)
    for scores, truth in ((result.aeh, expected.aeh), (result.geh, expected.geh), (result.eah, expected.eah)):
        np.testing.assert_allclose(scores.mean, truth.mean, rtol=0, atol=CLOSE)
    assert_scores(result, local_hessians(lambda x: smooth(x)[:, 0], x), every_pair=True)
    assert expected.settings["smoothed"] is None
    by_int = explain_point(kinked, x, smooth=7, groups=groups)
    np.testing.assert_array_equal(by_int.geh.mean, result.geh.mean)


def test_a_hidden_layer_of_a_relu_network_is_explained_as_that_of_the_softplus_network() -> None:
    x = random_points(40, 4)
    kinked, smooth = (
        mlp(4, 6, 8, 1, activation=nn.ReLU, gain=2.0),
        mlp(4, 6, 8, 1, activation=lambda: nn.Softplus(beta=7), gain=2.0),
    )
    result = explain_point(kinked, x, layer="1", smooth=7.0)
    with torch.no_grad():
        hidden = kinked[:2](x)  # below the cut the network is the original one
    upper = hidden_hessians(lambda h: smooth[2:](h)[:, 0], hidden, torch.eye(6))
    assert_scores(result, upper, every_pair=True)
    assert result.settings["smoothed"]["functions"] == {"relu": 1}


def test_on_raw_output_the_true_pair_of_a_relu_network_comes_first() -> None:
    """|x0 + x1| - |x0 - x1| + x2 from four ReLUs: x0 and x1 act together, x2 with none."""
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1)).double()
    rows = [[1, 1, 0], [-1, -1, 0], [1, -1, 0], [-1, 1, 0], [0, 0, 1], [0, 0, -1]]
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor(rows))
        net[0].bias.zero_()
        net[2].weight.copy_(doubles(1, 1, -1, -1, 1, -1))
        net[2].bias.zero_()
    x = random_points(4000, 3)
    result = explain_point(net, x)
    # d2/dx0dx1 is 2 delta(x0 + x1) + 2 delta(x0 - x1), and both have density 1 / sqrt(4 pi) at 0.
    np.testing.assert_allclose(result.aeh.mean[0, 1], 4 / math.sqrt(4 * math.pi), rtol=0.05)
    assert result.aeh.mean[0, 2] < 1e-12
    assert result.aeh.mean[1, 2] < 1e-12
    with pytest.warns(geh.GEHWarning, match=r"piecewise linear \(relu\)"):
        assert not explain_point(net, x, smooth=None).eah.mean.any()


def test_two_functions_are_both_named() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Unflatten(1, (2, 4)), nn.MaxPool1d(2), nn.Flatten())
    net = nn.Sequential(net, nn.Linear(4, 1)).double()
    with pytest.warns(geh.GEHWarning, match=r"piecewise linear \(relu, max_pool1d\)"):
        explain_point(net, random_points(20, 3), smooth=None)
    assert explain_point_quietly(net, random_points(20, 3)).settings["smoothed"]["functions"] == {
        "relu": 1,
        "max_pool1d": 1,
    }


def test_a_probability_has_curvature_of_its_own_without_smoothing() -> None:
    net, x = mlp(3, 8, 1, activation=nn.ReLU, gain=2.0), random_points(20, 3)
    explainer = geh.GEHExplainer(net, output="probability", posterior=geh.posterior.PointEstimate(), smooth=None)
    assert_scores(
        explainer.explain(x, groups=1, progress=False),
        local_hessians(lambda x: net(x)[:, 0].sigmoid(), x),
        1e-12,
        every_pair=True,
    )


# Infinite values, single points, vmap, parts of tensors.


@pytest.mark.parametrize(
    "longest",
    [
        lambda h: h.amax(dim=1),
        lambda h: h.max(dim=1).values,
        lambda h: -(-h).amin(dim=1),
        lambda h: F.max_pool1d(h[:, None], 6).flatten(),
        lambda h: F.adaptive_max_pool1d(h[:, None], 1).flatten(),
    ],
    ids=["amax", "max", "amin", "max_pool1d", "adaptive_max_pool1d"],
)
@pytest.mark.parametrize("smooth", ["auto", 3.0])
def test_a_place_masked_by_infinity_is_absent(longest: Way, smooth: Any) -> None:
    """As in pooling over sequences of unequal length: padding is -inf before the maximum."""
    torch.manual_seed(0)
    lower, x = nn.Linear(3, 6).double(), random_points(12, 3)
    masked = torch.tensor([False, False, False, False, True, True])
    result = explain_point_quietly(lambda x: longest(lower(x).masked_fill(masked, -math.inf)), x, smooth=smooth)
    beta = result.settings["smoothed"]["beta"][0]
    assert_scores(
        result, local_hessians(lambda x: torch.logsumexp(beta * lower(x)[:, :4], dim=1) / beta, x), every_pair=True
    )


def test_a_given_beta_holds_for_a_single_point_too() -> None:
    x = doubles(0.1, -0.2).reshape(1, 2)
    result = explain_point_quietly(lambda x: F.relu(x.sum(dim=1)), x, smooth=7.0)
    slope = 1 / (1 + math.exp(0.7))
    np.testing.assert_allclose(result.aeh.mean[0, 1], 7 * slope * (1 - slope), rtol=1e-12)


def test_a_kink_inside_vmap_is_smoothed() -> None:
    torch.manual_seed(0)
    lower, x = nn.Linear(3, 5).double(), random_points(12, 3)
    result = explain_point_quietly(lambda x: torch.func.vmap(lambda row: F.relu(lower(row)).sum())(x), x, smooth=7.0)
    assert_scores(result, local_hessians(lambda x: F.softplus(lower(x), 7.0).sum(dim=1), x), every_pair=True)


def test_part_of_a_tensor_changed_in_place_is_smoothed() -> None:
    torch.manual_seed(0)
    lower, x = nn.Linear(3, 6).double(), random_points(12, 3)

    def model(x: Tensor) -> Tensor:
        h = lower(x)
        h[:, :2].relu_()
        F.relu(h[:, 2:4], inplace=True)
        return (h**2).sum(dim=1)

    def smooth(x: Tensor) -> Tensor:
        h = lower(x)
        return (F.softplus(h[:, :4], 3.0) ** 2).sum(dim=1) + (h[:, 4:] ** 2).sum(dim=1)

    assert_scores(explain_point_quietly(model, x, smooth=3.0), local_hessians(smooth, x), every_pair=True)


# Wrong values.


@pytest.mark.parametrize(
    "smooth",
    [
        *("Auto", "softplus", "7", "", True, False, 0, 0.0, -1.0, math.nan, math.inf, -math.inf),
        *(1j, [7.0], (), {}, torch.tensor([1.0, 2.0]), np.array([1.0, 2.0]), nn.Softplus(), F.softplus),
    ],
    ids=repr,
)
def test_a_wrong_smooth_is_refused(smooth: Any) -> None:
    with pytest.raises(geh.GEHError, match="smooth="):
        geh.GEHExplainer(nn.ReLU(), smooth=smooth)


@pytest.mark.filterwarnings("ignore:smoothing the kinks")
def test_each_member_of_an_ensemble_is_smoothed_by_its_own_kinks():
    members = [
        mlp(3, 16, 1, seed=1),
        mlp(3, 16, 1, activation=nn.ReLU, seed=1),
        mlp(3, 16, 16, 16, 1, activation=nn.ReLU, seed=3),
    ]
    x = uniform_points(100, 3)
    together = explain_draws(members[0], x, posterior=geh.posterior.Ensemble(members)).signed
    for draw, member in zip(together, members, strict=True):
        assert draw == pytest.approx(explain_point(member, x).signed[0], abs=1e-12)
        assert draw.any()


class Differences(nn.Module):
    """Kinks of differences of inputs, which do not change if all inputs change by the same number."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x[:, 0] - x[:, 1]) + torch.relu(x[:, 1] - x[:, 2])


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_kinks_of_differences_depend_on_the_inputs(dtype: torch.dtype) -> None:
    # Differences of 0 and 1 are exact, so that no rounding shows that both terms moved.
    x = (random_points(100, 3) > 0).to(dtype)
    result = explain_point_quietly(Differences(), x, groups=1)
    assert result.settings["smoothed"]["functions"] == {"relu": 2}
    scores = result.geh.mean
    assert scores[0, 1] > 0.5
    assert scores[1, 2] > 0.5
    assert scores[0, 2] == 0


@pytest.mark.parametrize("scale", [1e6, 1e8])
def test_inputs_that_are_large_numbers_are_smoothed(scale: float) -> None:
    # In single precision 1e6 + 0.01 is 1e6.
    net, x = mlp(4, 16, 1, activation=nn.ReLU, gain=2.0).float(), random_points(60, 4).float()
    expected = explain_point_quietly(net, x, groups=1, scale="std").geh.pair_mean
    with torch.no_grad():
        net[0].weight.div_(scale)
    scores = explain_point_quietly(net, scale * x, groups=1, scale="std").geh.pair_mean
    np.testing.assert_allclose(scores, expected, rtol=1e-3)
