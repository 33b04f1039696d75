"""Several draws in one forward pass equal the draws one by one: dropout masks, and weights of linear layers."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout
from geh_explain.posterior.protocols import seed_of_draw

pytestmark = pytest.mark.usefixtures("seeded")


class OneByOne:
    """A posterior without the method ``batched``; MC dropout by default."""

    def __init__(self, posterior=None):
        self.posterior = posterior or MCDropout()

    def draws(self, model, n, seed):
        return self.posterior.draws(model, n, seed)


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.maps, self.last = nn.Conv2d(1, 3, 3), nn.Dropout2d(0.4), nn.Linear(3 * 4, 2)

    def forward(self, x):
        return self.last(F.dropout(torch.tanh(self.maps(self.conv(x))).flatten(1), 0.2))


def mlp():
    return nn.Sequential(nn.Dropout(0.2), nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.4), nn.Linear(6, 2)).double()


def attention():
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, activation="gelu", batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(12, 2)).double()


CASES = {
    "table": (mlp, (4,), {}),
    "maps": (lambda: Conv().double(), (1, 4, 4), {"units": geh.units.Patches(2)}),
    "attention": (attention, (3, 4), {"units": geh.units.Tokens()}),
}


@pytest.mark.parametrize("engine", ["auto", "exact"])
@pytest.mark.parametrize("groups", [3, "auto"])
@pytest.mark.parametrize("name", CASES)
def test_batched_draws_equal_single_draws(name, groups, engine):
    make, shape, options = CASES[name]
    model, x = make(), torch.randn(9, *shape, dtype=torch.double)
    target = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1, 1])
    batched, alone = (
        geh.GEHExplainer(model, posterior=posterior, engine=engine, **options).explain(
            x, target, groups=groups, draws=25, progress=False
        )
        for posterior in (MCDropout(), OneByOne())
    )
    assert batched.settings["group_count"] == alone.settings["group_count"]
    np.testing.assert_allclose(batched.signed, alone.signed, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(batched.absolute, alone.absolute, rtol=1e-9, atol=1e-12)


def test_one_forward_pass_evaluates_all_further_draws():
    sizes = []
    model = mlp()
    model.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))
    geh.GEHExplainer(model).explain(torch.randn(9, 4).double(), 0, groups=1, draws=30, progress=False)
    assert max(sizes) == 9 * 29


def test_chosen_modules_only():
    model, x = mlp(), torch.randn(6, 4, dtype=torch.double)
    batched, alone = (
        geh.GEHExplainer(model, posterior=posterior).explain(x, 0, groups=1, draws=7, progress=False)
        for posterior in (MCDropout([model[3]]), OneByOne(MCDropout([model[3]])))
    )
    np.testing.assert_allclose(batched.signed, alone.signed, rtol=1e-9)


def test_a_batch_size_bounds_rows_times_draws():
    sizes = []
    model = mlp()
    model.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))
    geh.GEHExplainer(model).explain(torch.randn(9, 4).double(), 0, groups=1, draws=30, batch_size=20, progress=False)
    assert max(sizes) <= 20


def test_rows_that_cannot_be_divided_among_the_draws_are_refused():
    model = mlp().eval()
    with torch.no_grad(), MCDropout().batched(model, range(2), seed=0):
        model(torch.randn(1, 4).double())
        with pytest.raises(geh.GEHError, match="5 rows cannot be divided among 2 draws"):
            model(torch.randn(5, 4).double())


def test_a_draw_has_the_masks_of_its_number():
    model, x = mlp().eval(), torch.randn(3, 4, dtype=torch.double)
    posterior = MCDropout()
    alone = []
    with torch.no_grad():
        for draw in posterior.draws(model, 4, seed=5):
            with draw:
                model(x[:1])
                alone.append(model(x))
        with posterior.batched(model, range(1, 4), seed=5):
            model(x[:1])
            batched = model(torch.cat([x] * 3))
    assert torch.equal(batched, torch.cat(alone[1:]))
    assert seed_of_draw(5, 1) != seed_of_draw(5, 2)


def test_the_row_of_an_error_is_one_of_the_points():
    def broken(x):
        return torch.where(x[:, 0] > 5, torch.nan, 1.0) * F.dropout(x, 0.5).prod(1)

    x = torch.rand(6, 2)
    x[4, 0] = 9
    with pytest.raises(geh.GEHError, match="row 4"):
        geh.GEHExplainer(broken).explain(x, groups=1, draws=8, progress=False)


# Weights of linear layers


class Tokens(nn.Module):
    """Attention-like mixing of tokens, with the tokens first in some layers."""

    def __init__(self, tokens_first):
        super().__init__()
        self.first, self.last, self.tokens_first = nn.Linear(4, 5), nn.Linear(5, 2), tokens_first

    def forward(self, x):
        h = self.first(x.transpose(0, 1) if self.tokens_first else x)
        h = torch.tanh(h)
        return self.last(h.transpose(0, 1) if self.tokens_first else h).mean(1)


def plain_mlp():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Softplus(), nn.Linear(5, 2)).double()


def samples_of(model, n=12, only=""):
    state = model.state_dict()
    return [{k: v + 0.1 * torch.randn_like(v) for k, v in state.items() if k.startswith(only)} for _ in range(n)]


def batched_sizes(model, posterior, x, **options):
    """Return the draws, and the number of rows of each forward pass."""
    sizes = []
    handle = model.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))
    result = geh.GEHExplainer(model, posterior=posterior, **options).explain(x, 1, groups=2, draws=12, progress=False)
    handle.remove()
    return result.signed, sizes


@pytest.mark.parametrize("engine", ["structured", "exact"])
@pytest.mark.parametrize("output", ["raw", "probability"])
@pytest.mark.parametrize("only", ["", "2.", "4.", "4.weight"])
def test_samples_of_linear_layers_are_computed_at_once(only, output, engine):
    model, x = plain_mlp(), torch.randn(9, 4, dtype=torch.double)
    posterior = geh.posterior.WeightSamples(samples_of(model, only=only))
    expected, _ = batched_sizes(model, OneByOne(posterior), x, output=output, engine=engine)
    found, sizes = batched_sizes(model, posterior, x, output=output, engine=engine)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert max(sizes) == 9 * 11


@pytest.mark.parametrize("tokens_first", [False, True])
def test_layers_whose_rows_come_second_are_computed_one_by_one(tokens_first):
    model, x = Tokens(tokens_first).double(), torch.randn(9, 4, 4, dtype=torch.double)
    posterior = geh.posterior.WeightSamples(samples_of(model))
    units = geh.units.Tokens()
    expected, _ = batched_sizes(model, OneByOne(posterior), x, units=units, output="probability")
    found, sizes = batched_sizes(model, posterior, x, units=units, output="probability")
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert (max(sizes) > 4 * 9) is not tokens_first


def test_samples_of_other_layers_or_shared_weights_are_computed_one_by_one():
    normalised = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2)).double()
    tied = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    tied[2].weight = tied[0].weight
    x = torch.randn(9, 4, dtype=torch.double)
    for model in (normalised, tied):
        _, sizes = batched_sizes(model, geh.posterior.WeightSamples(samples_of(model)), x)
        assert max(sizes) < 9 * 4


def test_a_hidden_layer_above_drawn_weights_is_computed_again_in_each_draw():
    """The first sample is the network itself: what it passes on to the layer does not hold for the others."""
    model, x = plain_mlp(), torch.randn(9, 4, dtype=torch.double)
    samples = [model.state_dict(), *samples_of(model)]
    posterior = geh.posterior.WeightSamples(samples)
    found, expected = (
        geh.GEHExplainer(model, "1", posterior=chosen, output="probability")
        .explain(x, 1, groups=1, draws=13, progress=False)
        .signed
        for chosen in (posterior, OneByOne(posterior))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_samples_of_a_callable_are_requested_once_and_in_order():
    model, x, requested = plain_mlp(), torch.randn(9, 4, dtype=torch.double), []
    samples = samples_of(model)

    def sample(k):
        requested.append(k)
        return samples[k]

    batched_sizes(model, geh.posterior.WeightSamples(sample), x)
    assert requested == list(range(12))
