"""WeightSamples: each draw is the model with one sample loaded; errors name a wrong sample."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from explaining import explain_draws, explain_point, random_points, uniform_points
from networks import mlp
from posterior_cases import local_hessians, network, same, trained
from torch import nn
from torch.func import functional_call, hessian, vmap

import geh_explain as geh
from geh_explain.posterior import Ensemble, PointEstimate, WeightSamples

pytestmark = pytest.mark.usefixtures("seeded")


# The model with a sample loaded


def perturbed(model, number=4):
    entries = model.state_dict()
    return [{name: value + 0.3 * torch.randn_like(value) for name, value in entries.items()} for _ in range(number)]


def explained_copies(model, samples, inputs, layer=None):
    """Return what the posterior should give: each sample loaded into a copy of the model."""
    found = []
    for sample in samples:
        copy = deepcopy(model)
        copy.load_state_dict(sample, strict=False)
        found.append(local_hessians(copy, inputs, PointEstimate(), layer)[0])
    return np.stack(found)


@pytest.mark.parametrize("layer", [None, "0"])
def test_samples_are_copies_of_the_model_with_those_weights_loaded(layer):
    model, inputs = network(), random_points(6, 3)
    samples = perturbed(model)
    expected = explained_copies(model, samples, inputs, layer)
    assert same(local_hessians(model, inputs, WeightSamples(samples), layer), expected)
    assert same(local_hessians(model, inputs, WeightSamples(tuple(samples)), layer), expected)
    assert np.array_equal(local_hessians(model, inputs, WeightSamples(lambda k: samples[k]), layer, draws=4), expected)


def test_a_callable_is_asked_for_every_draw_by_number():
    model, asked = network(), []
    samples = perturbed(model, 5)

    def sample(k):
        asked.append(k)
        return samples[k]

    explain_draws(model, random_points(20, 3), posterior=WeightSamples(sample), draws=5, groups=2)
    assert asked == [0, 1, 2, 3, 4]


def test_fewer_draws_are_the_first_samples():
    model, inputs = network(), random_points(6, 3)
    samples = perturbed(model, 4)
    all_draws = local_hessians(model, inputs, WeightSamples(samples), draws=100)
    assert len(all_draws) == 4
    assert same(local_hessians(model, inputs, WeightSamples(samples), draws=2), all_draws[:2])


def test_a_sample_may_hold_some_of_the_weights_only():
    model, inputs = network(), random_points(6, 3)
    samples = [{"2.weight": sample["2.weight"]} for sample in perturbed(model)]
    samples[1] = {"0.bias": torch.randn(6, dtype=torch.double)}  # entries of one draw do not stay for the next
    expected = explained_copies(model, samples, inputs)
    assert same(local_hessians(model, inputs, WeightSamples(samples)), expected)


def test_a_sample_may_hold_batch_statistics():
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1)).double().eval()
    inputs = random_points(6, 3)
    samples = []
    for k in range(3):
        sample = {name: value.clone() for name, value in model.state_dict().items()}
        sample["1.running_mean"] += k
        sample["1.running_var"] *= 1 + k
        samples.append(sample)
    draws = local_hessians(model, inputs, WeightSamples(samples))
    assert np.allclose(draws, explained_copies(model, samples, inputs), rtol=1e-4, atol=1e-7)
    assert not same(draws[0], draws[1])


def test_samples_of_a_frozen_model_in_another_precision_are_taken():
    model, inputs = network().requires_grad_(False), random_points(6, 3)
    samples = [{name: value.float().requires_grad_() for name, value in sample.items()} for sample in perturbed(model)]
    draws = local_hessians(model, inputs, WeightSamples(samples))
    assert np.allclose(draws, explained_copies(model, samples, inputs), rtol=1e-4, atol=1e-7)


def test_tied_weights_are_taken_under_both_of_their_names():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3).double(), nn.Linear(3, 3).double()
            self.second.weight = self.first.weight

        def forward(self, x):
            return torch.tanh(self.second(torch.tanh(self.first(x)))).sum(1)

    model, inputs = Tied(), random_points(6, 3)
    samples = [{name: value * (1 + 0.2 * k) for name, value in model.state_dict().items()} for k in range(3)]
    draws = local_hessians(model, inputs, WeightSamples(samples))
    assert np.allclose(draws, explained_copies(model, samples, inputs), rtol=1e-4, atol=1e-7)


def test_samples_without_spread_are_warned_of():
    model = network()
    samples = [model.state_dict()] * 3
    with pytest.warns(geh.GEHWarning, match=r"posterior=WeightSamples.*same scores.*no\s+width") as caught:
        explain_draws(model, random_points(20, 3), posterior=WeightSamples(samples), groups=2)
    assert len(caught) == 1


@pytest.mark.parametrize("posterior", [Ensemble, WeightSamples])
def test_one_sample_alone_is_not_called_a_posterior_without_spread(posterior):
    model = network()
    single = posterior([model]) if posterior is Ensemble else posterior([model.state_dict()])
    result = explain_draws(model, random_points(20, 3), posterior=single, groups=2)  # a warning would be an error
    assert np.array_equal(result.signed, explain_point(model, random_points(20, 3), groups=2).signed)


# Wrong samples


WRONG_SAMPLES = {
    "unknown name": ({"module.0.weight": torch.zeros(6, 3)}, r"sample 1.*module\.0\.weight.*Strip prefixes"),
    "wrong shape": ({"0.weight": torch.zeros(3, 6)}, r"0\.weight.*sample 1.*\(3, 6\).*\(6, 3\)"),
    "broadcastable shape": ({"0.weight": torch.zeros(1, 3)}, r"0\.weight.*sample 1.*\(1, 3\).*\(6, 3\)"),
    "not a tensor": ({"0.weight": np.zeros((6, 3))}, r"0\.weight.*sample 1.*ndarray"),
    "NaN": ({"0.bias": torch.full((6,), torch.nan)}, r"0\.bias.*sample 1.*NaN"),
    "infinite": ({"0.bias": torch.full((6,), torch.inf)}, r"0\.bias.*sample 1.*infinite"),
    "empty": ({}, "sample 1.*state dict"),
}


@pytest.mark.parametrize("wrong", WRONG_SAMPLES)
@pytest.mark.parametrize("as_callable", [False, True])
def test_a_wrong_sample_is_named(wrong, as_callable):
    sample, message = WRONG_SAMPLES[wrong]
    model = network()
    samples = [model.state_dict(), sample]
    posterior = WeightSamples((lambda k: samples[k]) if as_callable else samples)
    with pytest.raises(geh.GEHError, match=message):
        explain_draws(model, random_points(20, 3), posterior=posterior, groups=2)


def test_weights_that_overflow_in_the_models_precision_are_named():
    model = network().float()
    sample = {"0.bias": torch.full((6,), 1e300, dtype=torch.double)}
    with pytest.raises(geh.GEHError, match=r"0\.bias.*sample 0"):
        explain_draws(model, random_points(20, 3), posterior=WeightSamples([sample]), groups=2)


@pytest.mark.parametrize("samples", [[], {}, {"0.weight": torch.zeros(1)}, "weights", [1], 5, None], ids=repr)
def test_samples_are_a_list_of_state_dicts(samples):
    with pytest.raises(geh.GEHError, match=r"samples.*state dict"):
        WeightSamples(samples)


def test_a_callable_must_return_state_dicts():
    with pytest.raises(geh.GEHError, match=r"sample 0.*NoneType.*state dict"):
        explain_draws(network(), random_points(20, 3), posterior=WeightSamples(lambda k: None), groups=2)


# Samples of Pyro


@pytest.mark.filterwarnings("ignore")
def test_samples_of_pyro_are_explained():
    pyro = pytest.importorskip("pyro")
    from pyro.infer import MCMC, NUTS
    from pyro.nn import PyroSample
    from pyro.nn.module import to_pyro_module_

    _, x, y = trained(60)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    bayesian = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    to_pyro_module_(bayesian)
    for module in (bayesian[0], bayesian[2]):
        for name, value in list(module.named_parameters()):
            prior = pyro.distributions.Normal(0.0, 1.0).expand(value.shape).to_event(value.ndim)
            setattr(module, name, PyroSample(prior))

    def model(x, y):
        mean = bayesian(x)[:, 0]
        with pyro.plate("rows", len(x)):
            pyro.sample("y", pyro.distributions.Normal(mean, 0.3), obs=y[:, 0])

    pyro.set_rng_seed(0)
    sampler = MCMC(NUTS(model, max_tree_depth=3), num_samples=15, warmup_steps=15, disable_progbar=True)
    sampler.run(x, y)
    posterior = WeightSamples.from_pyro(sampler.get_samples())
    result = geh.GEHExplainer(net, posterior=posterior).explain(x, groups=1, progress=False)
    assert result.geh.draws.shape == (15, 3)
    with torch.no_grad():
        drawn = functional_call(net, posterior.samples[4], (x,))
    direct = hessian(lambda row: functional_call(net, posterior.samples[4], (row,))[0])
    expected = vmap(direct)(x).mean(0)[0, 1].abs()
    assert result.aeh.draws[4, 0] == pytest.approx(float(expected), rel=1e-3)
    assert torch.isfinite(drawn).all()


def test_samples_without_the_prefix_are_left_out_and_none_is_an_error():
    drawn = {"net.weight": torch.randn(5, 1, 3), "sigma": torch.rand(5)}
    assert [list(state) for state in WeightSamples.from_pyro(drawn, prefix="net.").samples] == [["weight"]] * 5
    with pytest.raises(geh.GEHError, match="prefix='model"):
        WeightSamples.from_pyro(drawn, prefix="model.")


def test_a_callable_that_runs_out_of_samples_is_refused():
    net = mlp(3, 16, 1, seed=1)
    samples = [net.state_dict()] * 5
    with pytest.raises(geh.GEHError, match=r"no sample for k=5.*fewer draws"):
        explain_draws(net, uniform_points(10, 3), posterior=geh.posterior.WeightSamples(lambda k: samples[k]), draws=9)
