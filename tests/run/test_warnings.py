"""Scores that are 0 for all pairs or for a unit, groups of one point and softmax of softmax come with a warning."""

import numpy as np
import pytest
import torch
from expected_errors import ROWS, Net, valid_points
from explaining import explain_draws, explain_point
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout, PointEstimate, Stochastic

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


def test_smoothing_is_not_advised_where_the_network_was_smoothed():
    with warned("all 10 pairs are exactly 0: the path from 'encoder' to the output is linear, or a function of each"):
        result = explain_point(Net(activation=nn.ReLU), valid_points(), layer="encoder", groups=2)
    assert result.settings["smoothed"]["functions"] == {"relu": 1}


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


def test_an_additive_black_box_is_said_to_be_additive():
    """Also one that fails for tensors that require gradients, after all draws were made."""
    for additive in (lambda x: x.numpy()[:, 0], lambda x: x.detach()[:, 0]):
        with warned("all 3 pairs are exactly 0: the model is additive in the inputs", "takes larger steps"):
            explain_point(additive, valid_points(), groups=2, engine="difference")
        with warned("the pair is exactly 0: these units do not interact at these points", "Other pairs"):
            explain_point(additive, valid_points(), groups=2, engine="difference", pairs=[(0, 1)])
    with warned("all 3 pairs are exactly 0: the output does not depend on the inputs; pass other points"):
        explain_point(lambda x: np.ones(len(x)), valid_points(), groups=2, engine="difference")


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


# Zeros that mislead


def test_units_that_never_change_are_named_where_scores_are_scaled():
    x = torch.cat([valid_points(), torch.ones(ROWS, 1)], dim=1)
    with warned("scale='std': the units x3 are constant", "pass points at which they vary, or scale=None"):
        result = explain_point(lambda x: x.prod(1), x, scale="std")
    assert not result.geh.mean[3].any()
    assert explain_point(lambda x: x.prod(1), x).geh.mean[3, :3].all()  # a warning would be an error


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e6 + 0.1])
@pytest.mark.parametrize("rows", [7, ROWS])
def test_a_constant_unit_in_double_precision_is_named(value, rows):
    x = torch.cat([valid_points()[:rows].double(), torch.full((rows, 1), value, dtype=torch.float64)], dim=1)
    with warned("scale='std': the units x3 are constant"):
        result = explain_point(lambda x: x.prod(1), x, scale="std", groups=1)
    assert not result.geh.mean[3].any()


def test_many_units_are_counted():
    x = torch.cat([valid_points(), torch.ones(ROWS, 9)], dim=1)
    with warned("the units x3, x4, x5, x6, x7 and 4 more are constant"):
        explain_point(lambda x: x.exp().sum(1).square(), x, scale="std")


class Rounds(nn.Module):
    """The last input decides which of two networks is used, by an index."""

    def forward(self, x):
        table = torch.tensor([1.0, -2.0], dtype=x.dtype)
        return x[:, 0] * x[:, 1] * table[(x[:, 2] > 0).long()]


def test_a_unit_without_derivatives_on_which_the_output_depends_is_named():
    flat = "all derivatives with respect to the units x2 are exactly 0", "though the output depends"
    # Other slopes jump where the index changes, which is a warning of its own.
    with warned("kinks or jumps of comparisons"), warned(*flat, "engine='difference'"):
        result = explain_point(Rounds(), valid_points())
    assert not result.eah.mean[2].any()
    assert explain_point(Rounds(), valid_points(), engine="difference").eah.mean[2].any()


def test_a_unit_that_the_model_ignores_is_named():
    with warned("all derivatives with respect to the units x1 are exactly 0: at these points the model ignores them"):
        explain_point(lambda x: x[:, 0] * x[:, 2], valid_points())


def test_a_unit_that_a_black_box_ignores_is_named():
    with warned("all derivatives with respect to the units x1 are exactly 0: at these points the model ignores them."):
        model = lambda x: torch.as_tensor(x.numpy()[:, 0] * x.numpy()[:, 2])  # noqa: E731
        result = explain_point(model, valid_points(), engine="difference")
    np.testing.assert_allclose(result.geh.mean[0, 2], 1, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:draws=")
def test_a_unit_that_no_draw_uses_is_not_ignored_by_the_model(recwarn):
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Dropout(0.9), nn.Linear(6, 1))
    result = explain_draws(net, valid_points(), layer="0", output="probability", draws=2, posterior=MCDropout())
    assert not result.eah.mean.all(axis=0).any()
    assert not [warning for warning in recwarn if "all derivatives" in str(warning.message)]


def test_noise_of_the_model_is_not_taken_for_an_effect():
    with warned("with respect to the units x2 are exactly 0: at these points the model ignores them"):
        explain_draws(lambda x: x[:, 0] * x[:, 1] * torch.rand(()), valid_points(), posterior=Stochastic())


def softmax_twice():
    return nn.Sequential(Net(outputs=3), nn.Softmax(dim=1))


def sigmoid_twice():
    return nn.Sequential(Net(), nn.Sigmoid(), nn.Flatten(0))


@pytest.mark.parametrize(("make", "target"), [(softmax_twice, 1), (sigmoid_twice, None)])
def test_probabilities_of_probabilities_are_warned_of(make, target):
    model = make()
    with warned("output='probability': the model returns probabilities already", "output='raw'"):
        explain_point(model, valid_points(), target, output="probability")
    explain_point(model, valid_points(), target)  # a warning would be an error
    explain_point(model[0], valid_points(), target, output="probability")


def clamped(z):
    return torch.clamp(torch.sigmoid(z), 1e-6, 1 - 1e-6)


#: From the outputs (n, 3) of a network to probabilities.
PROBABILITIES = {
    "clamped": lambda z: clamped(z[:, 0]),
    "clamped, of several labels": clamped,
    "clamped softmax": lambda z: z.softmax(1).clamp(0.01, 0.99),
    "one class of a softmax": lambda z: z.softmax(1)[:, 1:2],
    "the other class": lambda z: 1 - torch.sigmoid(z[:, :1]),
    "smoothed labels": lambda z: 0.98 * torch.sigmoid(z[:, :1]) + 0.01,
    "mean": lambda z: torch.stack([torch.sigmoid(z), z.softmax(1)]).mean((0, 2)),
    "exponential": lambda z: nn.functional.logsigmoid(z[:, :1]).exp(),
    "in double precision": lambda z: torch.sigmoid(z[:, :1]).double().clamp_min(1e-9),
}
#: From the outputs of a network to logits, some of which lie in [0, 1].
LOGITS = {
    "linear": lambda z: z,
    "close to one half": lambda z: 0.5 + z[:, :1] / 100,
    "gated": lambda z: torch.sigmoid(z[:, :1]) * z[:, 1:2],
    "bounded": lambda z: torch.tanh(z[:, :1].abs()),
    "bounded on both sides": lambda z: 8 * torch.sigmoid(z[:, :1]) - 4,
    "clamped": lambda z: z[:, :1].clamp(0, 1),
    "logarithms": lambda z: z.log_softmax(1),
    "odds": lambda z: torch.logit(torch.sigmoid(z[:, :1])),
    "linear in probabilities": lambda z: torch.sigmoid(z) @ torch.full((3, 1), 0.3, dtype=z.dtype),
}


class Ending(nn.Module):
    def __init__(self, last, frozen=False):
        super().__init__()
        self.net, self.last = Net(outputs=3).requires_grad_(not frozen), last

    def forward(self, x):
        return self.last(self.net(x))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("last", PROBABILITIES)
def test_probabilities_that_were_limited_or_combined_are_still_probabilities(last, frozen):
    with warned("the model returns probabilities already"):
        explain_point(Ending(PROBABILITIES[last], frozen), valid_points(), 0, output="probability")


@pytest.mark.parametrize("last", LOGITS)
def test_logits_are_not_taken_for_probabilities(last, recwarn):
    explain_point(Ending(LOGITS[last]), valid_points(), 0, output="probability")
    assert not [warning for warning in recwarn if "probabilities already" in str(warning.message)]
