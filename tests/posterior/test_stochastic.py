"""Stochastic: a model that samples its own weights is one function per draw, determined by the seed."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from explaining import explain_draws, explain_point, random_points
from posterior_cases import dropping, local_hessians, network, same, with_twins
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout, Stochastic

pytestmark = pytest.mark.usefixtures("seeded")


class WeightNoise(nn.Module):
    """A Bayesian layer: new weights in every forward."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 5).double(), nn.Linear(5, 1).double()

    def forward(self, x):
        weight = self.first.weight + 0.5 * torch.randn_like(self.first.weight)
        return self.last(torch.tanh(F.linear(x, weight, self.first.bias)))


def test_a_stochastic_model_is_one_function_per_draw():
    hessians = local_hessians(WeightNoise(), with_twins(), Stochastic())
    assert same(hessians[:, 0], hessians[:, 3])
    assert not same(hessians[:, 0], hessians[:, 1])
    assert len(np.unique(hessians[:, 0].round(12), axis=0)) == 6


def test_a_stochastic_draw_does_not_depend_on_the_batch_size():
    model, inputs = WeightNoise(), random_points(9, 3)
    together = local_hessians(model, inputs, Stochastic())
    assert same(together, local_hessians(model, inputs, Stochastic(), batch_size=2))


@pytest.mark.parametrize(
    "source", [lambda: torch.rand(()), np.random.rand, random.random], ids=["torch", "numpy", "random"]
)
def test_every_global_generator_is_frozen(source):
    hessians = local_hessians(lambda x: x[:, 0] * x[:, 1] * source() + x[:, 2], with_twins(), Stochastic())
    assert len(np.unique(hessians[:, :, 0].round(12))) == 6


def test_a_stochastic_model_without_the_posterior_is_refused():
    with pytest.raises(geh.GEHError, match=r"not one function.*Stochastic\(\)"):
        explain_point(WeightNoise(), random_points(20, 3), groups=2)


NOISE_PER_ROW = {
    "one number": lambda x: x[:, 0] * x[:, 1] * torch.randn(len(x), dtype=x.dtype),
    "one column": lambda x: (x * torch.rand(len(x), 1, dtype=x.dtype)).prod(1),
    "every number": lambda x: (x * torch.randn(x.shape, dtype=x.dtype)).prod(1),
    "from numpy": lambda x: x[:, 0] * x[:, 1] * torch.as_tensor(np.random.rand(len(x))),
}


@pytest.mark.parametrize("noise", NOISE_PER_ROW)
@pytest.mark.parametrize("rows", [3, 20])
def test_noise_of_every_row_is_refused(noise, rows):
    with pytest.raises(geh.GEHError, match=r"mixes rows|not one function"):
        explain_draws(NOISE_PER_ROW[noise], random_points(rows, 3), posterior=Stochastic(), groups=1)


@pytest.mark.parametrize("options", [{"groups": 3}, {"groups": 1, "scale": "std"}], ids=["groups", "scale"])
def test_a_seed_decides_everything_about_a_stochastic_hidden_layer(options):
    class NoisyBelow(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.above = nn.Linear(3, 4).double(), network(features=4)

        def forward(self, x):
            return self.above(self.first(x * torch.randn(3, dtype=x.dtype)))

    model, inputs, found = NoisyBelow(), random_points(30, 3), []
    for state_of_the_world in (1, 2):
        torch.manual_seed(state_of_the_world)
        found.append(explain_draws(model, inputs, posterior=Stochastic(), layer="first", seed=7, **options))
    assert np.array_equal(found[0].labels, found[1].labels)
    assert np.array_equal(found[0].signed, found[1].signed)


# Seeds, of dropout too


def posteriors_with_a_seed():
    return [(dropping(hidden=40), MCDropout()), (WeightNoise(), Stochastic())]


def test_the_first_draws_are_the_same_however_many_follow():
    inputs = random_points(6, 3)
    for model, posterior in posteriors_with_a_seed():
        few = local_hessians(model, inputs, posterior, draws=3)
        many = local_hessians(model, inputs, posterior, draws=7)
        assert np.array_equal(few, many[:3])


def test_a_seed_decides_the_draws():
    inputs = random_points(6, 3)
    for model, posterior in posteriors_with_a_seed():
        once = local_hessians(model, inputs, posterior, seed=5)
        torch.manual_seed(123)
        assert np.array_equal(once, local_hessians(model, inputs, posterior, seed=5))
        assert not same(once, local_hessians(model, inputs, posterior, seed=6))


def test_neighbouring_seeds_share_no_draw():
    inputs = random_points(2, 3)
    for model, posterior in posteriors_with_a_seed():
        draws = np.concatenate([local_hessians(model, inputs, posterior, seed=seed) for seed in range(4)])
        assert len(np.unique(draws.round(12), axis=0)) == len(draws)
