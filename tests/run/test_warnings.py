"""Scores that are all 0, and groups of one point, come with a warning that says why."""

import numpy as np
import pytest
import torch
from expected_errors import ROWS, Net, valid_points
from explaining import explain_point
from torch import nn

import geh_explain as geh
from geh_explain.posterior import PointEstimate

pytestmark = pytest.mark.usefixtures("seeded")


def warned(*words):
    return pytest.warns(geh.GEHWarning, match=".*".join(words))


def test_a_piecewise_linear_network_is_said_to_be_one():
    with warned("all 3 pairs are exactly 0", "piecewise linear", "relu", "output='probability'"):
        explain_point(Net(activation=nn.ReLU), valid_points(), smooth=None, groups=2)


@pytest.mark.parametrize("trainable", [True, False])
def test_a_linear_path_is_said_to_be_one(trainable):
    model = Net().requires_grad_(trainable)
    with warned("all 10 pairs are exactly 0", "the path from 'act' to the output is linear", "output='probability'"):
        result = explain_point(model, valid_points(), layer="act", groups=2)
    assert not result.eah.mean.any()


@pytest.mark.parametrize("trainable", [True, False])
def test_before_the_last_activation_every_unit_bends_on_its_own(trainable):
    with warned("all 10 pairs are exactly 0", "the path from 'encoder'", "choose an earlier", "output='probability'"):
        explain_point(Net().requires_grad_(trainable), valid_points(), layer="encoder", groups=2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(3, 1),
        lambda: lambda x: x.exp().sum(1),
        lambda: nn.Sequential(nn.Tanh(), nn.Linear(3, 1)),
    ],
    ids=["linear", "sum of functions", "linear after functions"],
)
def test_an_additive_model_is_said_to_be_one(make):
    with warned("all 3 pairs are exactly 0", "additive"):
        explain_point(make(), valid_points(), groups=2)


class ForwardArgs(nn.Module):
    """Has a layer whose output is not used."""

    def __init__(self):
        super().__init__()
        self.side, self.net = nn.Linear(3, 4), Net()

    def forward(self, x):
        self.side(x)
        return self.net(x)


@pytest.mark.parametrize("trainable", [True, False])
def test_an_output_that_does_not_depend_on_the_layer_is_said_to_be_so(trainable):
    with warned("all 6 pairs are exactly 0", "does not depend on layer 'side'", "choose a layer"):
        explain_point(ForwardArgs().requires_grad_(trainable), valid_points(), layer="side", groups=2)


def test_a_constant_model_is_said_to_be_one():
    with warned("all 3 pairs are exactly 0", "does not depend on the inputs"):
        explain_point(lambda x: torch.ones(len(x)), valid_points(), groups=2)


def test_the_only_pair_is_called_the_only_pair():
    with warned("the only pair is exactly 0"):
        explain_point(lambda x: x.exp().sum(1), valid_points()[:, :2], groups=2)


@pytest.mark.parametrize("groups", [20, [0] * (ROWS - 1) + [1]], ids=["number", "labels"])
def test_groups_of_one_point_are_warned_of(groups):
    with warned("groups", "hold a single point", "fewer groups"):
        explain_point(Net(), valid_points(), groups=groups)


def test_every_point_as_a_group_is_meant():
    result = explain_point(Net(), valid_points(), groups=ROWS)  # a warning would be an error
    assert len(result.group_names) == ROWS
    assert np.allclose(result.geh.mean, result.eah.mean, rtol=1e-6)


def test_a_warning_points_at_the_users_line_and_stays_with_the_result():
    explainer = geh.GEHExplainer(lambda x: x.exp().sum(1), posterior=PointEstimate())
    with pytest.warns(geh.GEHWarning) as caught:
        result = explainer.explain(valid_points(), groups=2, draws=2, progress=False)
    assert [warning.filename for warning in caught] == [__file__]
    assert result.settings["warnings"] == [str(caught[0].message)]
