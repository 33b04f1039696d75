"""Smoothing does not change functions without kinks, calls below the cut, or anything after the run."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from explaining import explain_point, explain_point_quietly, random_points
from kinked_functions import Kink, Net, Way, image_net
from networks import mlp
from reference import hidden_hessians, local_hessians
from reference_scores import assert_scores
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack

import geh_explain as geh
from geh_explain.engines.smoothing.smooth_functions import FORMS

NAMES = [name + tail for name in FORMS for tail in ("", "_")]


def functions() -> dict[tuple[str, str], Any]:
    places = {"F": F, "torch": torch, "Tensor": Tensor, "torch._C._nn": torch._C._nn}
    return {
        (place, name): getattr(owner, name) for place, owner in places.items() for name in NAMES if hasattr(owner, name)
    }


@pytest.mark.parametrize("fails", [False, True])
def test_functions_modules_and_outputs_are_the_same_afterwards(fails: bool) -> None:
    net, calls = image_net(), []
    x = torch.randn(10, 1, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    net.eval()
    output = net(x).detach()
    before = functions()
    modules = [(name, module, dict(vars(module))) for name, module in net.named_modules()]

    def read(raw: Tensor) -> Tensor:
        calls.append(raw.requires_grad)
        if fails and raw.requires_grad:
            raise KeyError("in the middle of a smoothed forward")
        return raw

    explainer = geh.GEHExplainer(net, output=read, posterior=geh.posterior.PointEstimate())
    if fails:
        with pytest.raises(KeyError, match="in the middle"):
            explainer.explain(x, 1, groups=1, progress=False)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", geh.GEHWarning)
            assert explainer.explain(x, 1, groups=1, progress=False).eah.mean.any()
    assert any(calls)
    assert all(function is before[key] for key, function in functions().items())
    assert _get_current_function_mode_stack() == []
    assert float(F.relu(torch.tensor(-1.0))) == 0.0
    for (name, module, state), (name_after, module_after) in zip(modules, net.named_modules(), strict=True):
        assert (name, id(module)) == (name_after, id(module_after))
        assert vars(module).keys() == state.keys()
        assert all(vars(module)[key] is value for key, value in state.items())
    assert torch.equal(net(x), output)


def test_kinks_below_the_cut_are_not_smoothed() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    x = random_points(30, 3)
    for layer, units in (("1", 6), (net[1], 6), ("2", 4)):
        result = explain_point_quietly(net, x, layer=layer)
        assert result.settings["smoothed"] is None
        if units == 6:
            with torch.no_grad():
                hidden = net[:2](x)
            assert_scores(result, hidden_hessians(lambda h: net[2:](h)[:, 0], hidden, torch.eye(6)), every_pair=True)
    # One layer lower the ReLU is above the cut.
    assert explain_point_quietly(net, x, layer="0").settings["smoothed"]["functions"] == {"relu": 1}
    assert explain_point_quietly(net, x).settings["smoothed"]["functions"] == {"relu": 1}


def test_a_smooth_network_is_not_smoothed() -> None:
    net, x = mlp(3, 8, 1, activation=nn.Tanh, gain=2.0), random_points(20, 3)
    for smooth in ("auto", 7.0, None):
        result = explain_point(net, x, smooth=smooth)
        assert result.settings["smoothed"] is None
        assert_scores(result, local_hessians(lambda x: net(x)[:, 0], x), every_pair=True)


@pytest.mark.parametrize(
    "elu", [nn.ELU(), F.elu, lambda x: F.elu(x, 1.0), lambda x: F.elu_(x, alpha=1.0), nn.CELU(), nn.CELU(0.4)]
)
def test_an_elu_whose_slope_does_not_jump_is_left_alone(elu: Way) -> None:
    kink, x = Kink("elu"), random_points(12, 3)
    net = Net(kink, elu)
    result = explain_point(net, x)
    assert result.settings["smoothed"] is None
    assert_scores(result, local_hessians(net, x), every_pair=True)


@pytest.mark.parametrize("smooth", ["auto", 7.0])
@pytest.mark.parametrize(
    "safe",
    [
        lambda z: z.clamp(min=1e-8),
        lambda z: z.clip(1e-8, 1e8),
        lambda z: torch.clamp_min(z, 1e-8),
        lambda z: (+z).clamp_(min=1e-8),
        lambda z: z.clamp_max(1e8),
    ],
    ids=["clamp", "clip", "clamp_min", "clamp_", "clamp_max"],
)
def test_a_clamp_that_never_clamps_is_left_alone(safe: Way, smooth: Any) -> None:
    def size(x: Tensor) -> Tensor:
        return (x**2).sum(dim=1) + x[:, 0] * x[:, 1] + 0.01

    x = random_points(30, 3)
    result = explain_point(lambda x: safe(size(x)).log(), x, smooth=smooth)
    plain = explain_point(lambda x: size(x).log(), x, smooth=smooth)
    assert result.settings["smoothed"] is None
    np.testing.assert_array_equal(result.eah.mean, plain.eah.mean)
    assert_scores(result, local_hessians(lambda x: size(x).log(), x), every_pair=True)


def test_a_clamp_that_clamps_one_point_of_many_is_smoothed_whatever_the_batches() -> None:
    x = random_points(30, 3).abs() + 0.1
    x[17] = -1.0
    for batch_size in (None, 1, 10):
        result = explain_point_quietly(lambda x: x.sum(dim=1).clamp(min=0.0), x, batch_size=batch_size)
        assert result.settings["smoothed"]["functions"] == {"clamp": 1}


def test_kinks_of_what_does_not_depend_on_the_units_are_left_alone():
    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.linspace(-1, 1, 3).double())

        def forward(self, x):
            return (x.tanh() + torch.relu(self.bias)).prod(1)

    assert explain_point(Biased(), random_points(10, 3)).settings["smoothed"] is None
