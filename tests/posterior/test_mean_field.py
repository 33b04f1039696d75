"""MeanField: weights sampled from the Gaussians that the layers of a model have learned."""

import numpy as np
import pytest
import torch
from explaining import random_points
from posterior_cases import network
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout, MeanField, PointEstimate
from geh_explain.posterior.default import default_posterior
from geh_explain.posterior.mean_field import GaussianLayer, gaussian_layers, is_gaussian_layer

pytestmark = pytest.mark.usefixtures("seeded")


def gaussian(std=0.3):
    return geh.bnn.MeanField(nn.Linear(3, 5), std=std)


class Autoencoder(nn.Module):
    """Has ``sample`` and ``kl``, and learns no weights as a distribution."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(3, 3)
        self.log_std = nn.Parameter(torch.zeros(3))

    def sample(self, n):
        return torch.randn(n, 3)

    def kl(self):
        return torch.zeros(())

    def forward(self, x):
        return self.encode(x)


class SamplesOnly(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.log_std = nn.Parameter(torch.zeros(3))

    def sample(self, generator):
        return {}

    def forward(self, x):
        return self.layer(x)


class Forwarding(nn.Module):
    """Forwards attribute access to the module it wraps, as compiled modules do."""

    def __init__(self, wrapped):
        super().__init__()
        self.wrapped = wrapped

    def __getattr__(self, name):
        return super().__getattr__(name) if name == "wrapped" else getattr(self.wrapped, name)

    def forward(self, x):
        return self.wrapped(x)


def test_the_layer_of_bnn_is_a_gaussian_layer():
    assert isinstance(gaussian(), GaussianLayer)
    for layer in (gaussian(), geh.bnn.MeanField(nn.Conv2d(1, 2, 3, bias=False))):
        assert is_gaussian_layer(layer)


@pytest.mark.parametrize(
    "make",
    [
        Autoencoder,
        SamplesOnly,
        lambda: nn.Linear(3, 1),
        lambda: geh.bnn.ConcreteDropout(nn.Linear(3, 3)),
        lambda: Forwarding(gaussian()),
    ],
    ids=["Autoencoder", "SamplesOnly", "Linear", "ConcreteDropout", "Forwarding"],
)
def test_modules_with_some_of_the_same_methods_are_not(make):
    assert not is_gaussian_layer(make())


def test_gaussian_layers_are_named_as_in_the_model():
    model = nn.Sequential(gaussian(), nn.Tanh(), Forwarding(nn.Sequential(nn.Linear(5, 3), gaussian())), Autoencoder())
    assert list(gaussian_layers(model)) == ["0", "2.wrapped.1"]
    assert list(gaussian_layers(gaussian())) == [""]


def test_the_default_posterior_is_that_of_the_gaussian_layers():
    x = torch.randn(1, 3)
    for model, kind in (
        (nn.Sequential(gaussian(), nn.Dropout(0.5)), MeanField),
        (nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)), MCDropout),
        (nn.Sequential(Autoencoder(), nn.Tanh()), PointEstimate),
    ):
        assert type(default_posterior(model.eval(), *2 * [lambda model=model: model(x)])) is kind


@pytest.mark.parametrize("nested", [False, True], ids=["the model itself", "inside a model"])
def test_draws_have_the_learned_means_and_standard_deviations(nested):
    layer = gaussian(std=0.3)
    model = nn.Sequential(nn.Tanh(), layer).eval() if nested else layer.eval()
    mean = layer.layer.weight.detach().clone()
    samples = []
    for draw in MeanField().draws(model, 2000, seed=0):
        with draw:
            samples.append(layer.layer.weight.detach().clone())
    samples = torch.stack(samples)
    torch.testing.assert_close(samples.mean(0), mean, atol=4.5 * 0.3 / 2000**0.5, rtol=0)
    torch.testing.assert_close(samples.std(0), torch.full_like(mean, 0.3), atol=0, rtol=0.08)
    assert torch.equal(layer.layer.weight, mean)


def test_a_draw_depends_on_its_number_and_the_seed():
    net = nn.Sequential(gaussian(), nn.Tanh(), nn.Linear(5, 1))
    x = torch.randn(20, 3)
    explainer = geh.GEHExplainer(net, posterior=MeanField())
    few, more, other = (
        explainer.explain(x, groups=1, draws=draws, seed=seed, progress=False).signed
        for draws, seed in ((3, 0), (6, 0), (3, 1))
    )
    assert np.array_equal(few, more[:3])
    assert not np.allclose(few, other)


def test_a_model_without_gaussian_layers_is_refused():
    with pytest.raises(geh.GEHError, match=r"MeanField\(\): the model has no geh_explain.bnn.MeanField layer"):
        geh.GEHExplainer(network(), posterior=MeanField()).explain(random_points(9, 3), progress=False)
