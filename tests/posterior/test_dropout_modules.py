"""MCDropout: chosen modules, models without dropout, and draws that a user enters."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from explaining import explain_draws, explain_point, random_points, uniform_points
from posterior_cases import dropping, local_hessians, network, same
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout

pytestmark = pytest.mark.usefixtures("seeded")


# Chosen modules


class TwoDropouts(nn.Module):
    """Drops in two modules and in a function."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = (nn.Linear(*size).double() for size in ((3, 30), (30, 30), (30, 1)))
        self.low, self.high = nn.Dropout(0.5), nn.Dropout(0.5)
        self.dropped = {}

    def drop(self, name, function, hidden):
        out = function(hidden)
        self.dropped[name] = not torch.equal(out, hidden)
        return out

    def forward(self, x):
        hidden = self.drop("low", self.low, torch.tanh(self.first(x)))
        hidden = self.drop("high", self.high, torch.tanh(self.second(hidden)))
        return self.last(torch.tanh(self.drop("function", lambda h: F.dropout(h, 0.5, self.training), hidden)))


def dropped_where(model, modules):
    model.eval()
    for draw in MCDropout(modules).draws(model, 1, 0):
        with draw, torch.no_grad():
            model(random_points(1, 3))
            model(random_points(3, 3))
    return {name for name, dropped in model.dropped.items() if dropped}


def test_only_the_chosen_modules_drop():
    model = TwoDropouts()
    assert dropped_where(model, [model.low]) == {"low"}
    assert dropped_where(model, [model.high]) == {"high"}
    assert dropped_where(model, [model.low, model.high]) == {"low", "high"}


def test_a_module_chosen_twice_drops_once():
    model = TwoDropouts()
    assert dropped_where(model, [model.low, model.low]) == {"low"}


def test_choosing_a_module_chooses_the_dropout_inside_it():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = TwoDropouts()
            self.dropped = self.inner.dropped

        def forward(self, x):
            return F.dropout(self.inner(x), 0.5, self.training)

    model = Outer()
    inside = {"low", "high"}
    assert inside <= dropped_where(model, [model.inner])
    # A chosen module inside another chosen one does not end the outer one's choice.
    assert dropped_where(model, [model.inner, model.inner.low]) == dropped_where(model, [model.inner])


def test_choosing_all_dropout_modules_is_the_default():
    model = dropping()
    inputs = random_points(6, 3)
    assert same(local_hessians(model, inputs, MCDropout([model[2]])), local_hessians(model, inputs, MCDropout()))


# Nothing to drop


@pytest.mark.parametrize("make", [network, partial(dropping, p=0.0)], ids=["none", "p=0"])
def test_asking_for_dropout_where_there_is_none_is_an_error(make):
    with pytest.raises(geh.GEHError, match=r"dropped nothing.*Ensemble, WeightSamples or Stochastic") as error:
        explain_draws(make(), random_points(20, 3), posterior=MCDropout(), groups=2)
    assert isinstance(error.value, RuntimeError)


@pytest.mark.parametrize("make", [network, partial(dropping, p=0.0)], ids=["none", "p=0"])
def test_without_dropout_the_default_is_the_point_estimate_said_in_a_warning(make):
    model = make()
    inputs = random_points(20, 3)
    with pytest.warns(geh.GEHWarning, match="no dropout.*point estimate.*posterior=") as caught:
        result = geh.GEHExplainer(model, posterior=None).explain(inputs, groups=2, draws=4, progress=False)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert result.settings["posterior"] == "PointEstimate()"
    assert np.array_equal(result.signed, explain_point(model, inputs, groups=2).signed)


class DropsBatches(nn.Module):
    """Has dropout for batches of more than 8 rows only."""

    def __init__(self, drop):
        super().__init__()
        self.net, self.drop = network(), drop

    def forward(self, x):
        return self.net(self.drop(x) if len(x) > 8 else x)


@pytest.mark.parametrize("drop", [nn.Dropout(0.3), lambda x: F.dropout(x, 0.3)], ids=["module", "function"])
@pytest.mark.parametrize("n", [6, 20])
def test_dropout_of_batches_alone_is_not_taken_for_none(drop, n):
    with pytest.raises(geh.GEHError, match=r"dropout to a batch and none to a single row.*PointEstimate"):
        geh.GEHExplainer(DropsBatches(drop)).explain(random_points(n, 3), groups=1, progress=False)


def test_a_chosen_module_that_drops_nothing_is_an_error():
    model = dropping()
    with pytest.raises(geh.GEHError, match="dropped nothing"):
        explain_draws(model, random_points(20, 3), posterior=MCDropout([model[1]]), groups=2)


def test_modules_of_another_model_are_refused():
    with pytest.raises(geh.GEHError, match=r"modules.*Dropout.*not part of the model"):
        explain_draws(dropping(), random_points(20, 3), posterior=MCDropout([nn.Dropout()]), groups=2)


@pytest.mark.parametrize("modules", [[], 3, ["drop"], nn.Dropout(), "drop"], ids=repr)
def test_modules_must_be_a_list_of_modules(modules):
    with pytest.raises(geh.GEHError, match=r"modules.*list"):
        MCDropout(modules)


def test_the_point_estimate_is_the_network_without_dropout():
    model, inputs = dropping(), random_points(20, 3)
    without = nn.Sequential(*(layer for layer in model if not isinstance(layer, nn.Dropout)))
    assert same(explain_point(model, inputs, groups=2).signed, explain_point(without, inputs, groups=2).signed)


# A bare draw, as a user may enter it


def test_the_first_forward_of_a_bare_draw_must_have_one_row():
    model = dropping()
    with next(MCDropout().draws(model, 1, 0)):
        with pytest.raises(geh.GEHError, match=r"single row.*model\(inputs\[:1\]\)"):
            model(random_points(5, 3))
        assert model(random_points(1, 3)).shape == (1, 1)
        assert model(random_points(5, 3)).shape == (5, 1)


def test_the_first_forward_of_a_bare_draw_must_have_one_row_by_keyword_too():
    model = dropping()
    with next(MCDropout().draws(model, 1, 0)), pytest.raises(geh.GEHError, match="single row"):
        model(input=random_points(5, 3))


def test_the_first_forward_of_a_bare_draw_must_have_one_row_whatever_else_is_passed():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = dropping()

        def forward(self, x, factor):
            return self.net(x * factor)

    model = Scaled()
    with next(MCDropout().draws(model, 1, 0)), pytest.raises(geh.GEHError, match="single row"):
        model(random_points(5, 3), torch.ones(1))


class Erratic(nn.Module):
    """Drops at its end for some batch sizes only."""

    def __init__(self, drops_for):
        super().__init__()
        self.net, self.drops_for = dropping(), drops_for

    def forward(self, x):
        return F.dropout(self.net(x), 0.5) if self.drops_for(len(x)) else self.net(x)


def test_a_forward_that_drops_more_often_than_the_first_one_is_refused():
    with pytest.raises(geh.GEHError, match=r"MCDropout.*more often.*must not\s+depend on"):
        explain_draws(Erratic(lambda rows: rows > 1), random_points(20, 3), posterior=MCDropout(), groups=2)


def test_a_forward_that_drops_less_often_than_the_first_one_is_refused():
    with pytest.raises(geh.GEHError):
        explain_draws(Erratic(lambda rows: rows == 1), random_points(20, 3), posterior=MCDropout(), groups=2)


@pytest.mark.filterwarnings("ignore:posterior=None")
def test_dropout_inside_a_recurrent_layer_is_said_to_be_out_of_reach():
    class Model(nn.Module):
        def __init__(self, p):
            super().__init__()
            self.rnn, self.drop = nn.LSTM(2, 4, num_layers=2, dropout=0.5, batch_first=True), nn.Dropout(p)

        def forward(self, x):
            return self.drop(self.rnn(x)[0][:, -1]).prod(1)

    x = uniform_points(12, 6).reshape(12, 3, 2)
    for p in (0.0, 0.3):
        with pytest.warns(geh.GEHWarning, match="'rnn' is inside torch's own kernel"):
            geh.GEHExplainer(Model(p).double()).explain(x, groups=1, draws=3, progress=False)
