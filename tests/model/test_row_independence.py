"""A model must be one function of each row: in every batch, with and without gradients, at the first and last call."""

import numpy as np
import pytest
import torch
from expected_errors import refused
from explaining import explain_draws, explain_point, explain_point_quietly, random_points
from networks import mlp
from torch import nn

import geh_explain as geh
from geh_explain.data.forward_args import ForwardArgs
from geh_explain.data.rows import Rows
from geh_explain.engines.probes import PartChoice
from geh_explain.engines.structured import engine as structured_engine

#: The row that changes a batch, far from the first rows.
OUTLIER = 700
ENGINES = ("auto", "exact", "difference", "stein")


class Wrapped(nn.Module):
    """``function(net, x, calls)`` of a small network, which counts its calls."""

    def __init__(self, function, dropout=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(mlp(4, 8, 8), nn.Dropout(dropout), nn.Tanh(), nn.Linear(8, 1, dtype=torch.double))
        self.function, self.calls = function, 0

    def forward(self, x):
        self.calls += 1
        return self.function(self.net, x, self.calls)


def points(n=1000):
    x = random_points(n, 4).clamp(-2.5, 2.5)
    x[OUTLIER if n > OUTLIER else n // 2, 0] = 8.0
    return x


def large_only(change):
    """Return a function that changes the network's function for more than 8 rows."""
    return lambda net, x, calls: change(net, x) if len(x) > 8 else net(x)


def cubic(net, x):
    return net(x) + x[:, :1] ** 3 / 100


MIXING = {
    "largest entry": lambda net, x, calls: net(x) * (1 + 0.1 * x.max() * (x.max() > 5)),
    "largest output": lambda net, x, calls: cubic(net, x) / cubic(net, x).abs().max().clamp(min=2),
    "sixth moment": lambda net, x, calls: net(x / ((x**6).mean() > 60).double().add(1)),
    "other factor": large_only(lambda net, x: 2 * net(x)),
    "other function": large_only(lambda net, x: net(x) ** 2),
    "row before": large_only(lambda net, x: net(x + 0.1 * x.roll(1, 0))),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mixing", MIXING)
def test_rows_that_mix_in_large_batches_or_beside_an_outlier_are_refused(mixing, engine):
    with refused(RuntimeError, "model", "mixes rows", "in a batch of 1000"):
        explain_point(Wrapped(MIXING[mixing]), points(), engine=engine, batch_size=1000)


@pytest.mark.parametrize("mixing", MIXING)
def test_so_are_they_in_draws_that_are_computed_at_once(mixing):
    with refused(RuntimeError, "mixes rows"):
        explain_draws(Wrapped(MIXING[mixing], dropout=0.1), points(), draws=3)


@pytest.mark.parametrize("n", [9, 40, 3000])
def test_so_are_they_whatever_the_number_of_rows(n):
    with refused(RuntimeError, "mixes rows"):
        explain_point(Wrapped(MIXING["other function"]), points(n), batch_size=n)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("where", ["inputs", "outputs"])
def test_noise_in_large_batches_is_refused(where, engine):
    def noisy(net, x):
        return net(x + 0.1 * torch.randn_like(x)) if where == "inputs" else net(x) + 0.1 * torch.randn(len(x), 1)

    with refused(RuntimeError, "not one function", "Stochastic()"):
        explain_point(Wrapped(large_only(noisy)), points(), engine=engine)


@pytest.mark.parametrize("calls", [3, 10, 20, 50])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_function_that_changes_after_some_calls_is_refused(engine, calls):
    model = Wrapped(lambda net, x, number: net(x) * (1 if number <= calls else 2), dropout=0.1)
    with refused(RuntimeError, "model", "not one function"):
        explain_draws(model, points(200), draws=30, engine=engine, batch_size=50)
    assert model.calls > calls


@pytest.mark.parametrize("engine", ["auto", "exact", "stein"])
@pytest.mark.parametrize("layer", [None, "net.0"])
def test_another_function_where_gradients_are_computed_is_refused(layer, engine):
    def function(net, x, calls):
        hidden = net(x)
        return hidden * (2 if hidden.requires_grad and torch.is_grad_enabled() else 1)

    with refused(RuntimeError, "where gradients are computed", "is_grad_enabled()", "engine='difference'"):
        explain_point(Wrapped(function), points(20), engine=engine, layer=layer)


def test_differences_need_no_gradients_and_explain_the_other_function():
    def function(factor):
        return lambda net, x, calls: net(x) * (factor if torch.is_grad_enabled() else 1)

    expected, found = (explain_point(Wrapped(function(factor)), points(20), engine="difference") for factor in (1, 2))
    assert np.array_equal(found.signed, expected.signed)


def test_small_noise_is_not_taken_for_a_mistake_of_the_structured_engine(monkeypatch):
    monkeypatch.setattr(structured_engine, "_agrees", lambda local, directions, products: len(products) == 2)
    with refused(RuntimeError, "not one function"):
        explain_point(Wrapped(large_only(lambda net, x: net(x) + 1e-4 * torch.randn(len(x), 1))), points())


def test_a_model_that_is_seldom_random_is_explained_as_a_stochastic_one(recwarn):
    def function(net, x, calls):
        return net(x) * (1 + (torch.rand((), dtype=torch.double) < 0.2))

    model = Wrapped(function)
    torch.manual_seed(8)  # without a seed of their own the first two calls would be equal, and the third would not
    result = explain_draws(model, points(50), posterior=geh.posterior.Stochastic(), draws=30)
    assert len(np.unique(result.geh.draws[:, 0].round(6))) == 2


class Experts(nn.Module):
    """Rows go to one of four kinked experts, and experts without rows are not called."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(4, 6 * k), nn.ReLU(), nn.Linear(6 * k, 1)) for k in range(1, 5)
        ).double()

    def forward(self, x):
        chosen = x[:, :2].gt(0).long() @ torch.tensor([1, 2])
        out = x.new_zeros(len(x), 1)
        for number, expert in enumerate(self.experts):
            if bool((chosen == number).any()):
                out[chosen == number] = expert(x[chosen == number])
        return out


def test_experts_that_a_small_batch_does_not_call_do_not_mix_rows():
    assert explain_point_quietly(Experts(), points(300)).eah.mean.any()


def test_rounding_in_half_precision_is_not_taken_for_mixed_rows():
    def function(net, x, calls):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net(x.float()).double()

    model = Wrapped(function).float()
    assert explain_point_quietly(model, points(300).float()).settings["engine"] == "exact"


def test_all_chunks_are_compared_until_every_point_was_seen():
    rows = Rows((torch.zeros(1000, 3),), ForwardArgs.of(None, (), 1000))
    choice = PartChoice(n_points=1000)
    seen = [choice.parts(chunk) for chunk in rows.split(250)]
    assert all(seen)
    assert 5 < sum(bool(choice.parts(rows)) for _ in range(1000)) < 50


def test_the_parts_of_a_chunk_have_the_same_points_of_all_draws_and_no_common_one():
    rows = Rows((torch.zeros(50, 3),), ForwardArgs.of(None, (), 50)).repeat(3)
    first, second = PartChoice(n_points=50).parts(rows)
    for part in (first, second):
        by_draw = np.array(part).reshape(3, -1)
        assert (by_draw % 50 == by_draw[0]).all()
        assert (by_draw // 50 == np.arange(3)[:, None]).all()
    assert not set(first) & set(second)


def test_a_checked_run_gives_the_scores_of_an_unchecked_one(monkeypatch):
    model = Wrapped(lambda net, x, calls: net(x), dropout=0.1)
    found = explain_draws(model, points())
    monkeypatch.setattr(PartChoice, "parts", lambda self, rows: [])
    assert np.array_equal(found.signed, explain_draws(model, points()).signed)
