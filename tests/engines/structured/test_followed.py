"""Calls that the recorder cannot see or follow: the numbers are those of double backward, whatever the network does.

Each network has a term that the first rows, on which engines are tried, do not have.
"""

import warnings

import pytest
import torch
from network_modules import Cube
from torch import nn

import geh_explain as geh


@torch.jit.script
def scripted(x):
    return torch.sin(x) * x


def clipped(x):
    x = x.clone()
    x[x > 1] = 1
    return x


def written_by_index(x):
    out = torch.zeros_like(x)
    out[:, 0] = x[:, 0] ** 2 * x[:, 1]
    return out


def through_a_view(x):
    x = x.clone()
    part = x[:, :2]
    part.mul_(part.detach() + 1)
    return x


def no_gradient(x):
    with torch.no_grad():
        factor = torch.exp(x)
    return x * factor * x.sum(1, keepdim=True)


def scaled_without_gradient(x):
    x = x * 1.0
    with torch.no_grad():
        x.mul_(2)
    return x


def through_data(x):
    x = x * 1.0
    x.data.clamp_(max=0.5)
    return x


def doubled_gradient(x):
    x = x * 1.0
    if x.requires_grad:
        x.register_hook(lambda gradient: 2 * gradient)
    return x * x.sum(1, keepdim=True)


#: Functions (n, 4) -> (n, 4) that are part of a network.
FUNCTIONS = {
    "assignment to a part": clipped,
    "assignment of a part": written_by_index,
    "change through a view": through_a_view,
    "autograd.Function": Cube.apply,
    "autograd.Function beside its input": lambda x: x + Cube.apply(x),
    "TorchScript": scripted,
    "fft": lambda x: torch.fft.fft(x).abs() ** 2,
    "polar": lambda x: torch.polar(x.abs() + 1, x).real,
    "view_as_complex": lambda x: torch.view_as_complex(x.reshape(-1, 2, 2)).pow(2).real.repeat(1, 2),
    "vmap": lambda x: torch.func.vmap(lambda row: row * row.sum())(x),
    "grad": lambda x: torch.func.vmap(torch.func.grad(lambda row: (row**3).sum() * row[0]))(x),
    "no gradient": no_gradient,
    "scaled without gradient": scaled_without_gradient,
    "through data": through_data,
    "index_put": lambda x: x.index_put((torch.arange(len(x)), torch.zeros(len(x), dtype=torch.long)), x[:, 1] ** 2),
    "scatter": lambda x: x.scatter(1, torch.zeros(len(x), 1, dtype=torch.long), x[:, 1:2] ** 2),
    "masked_fill": lambda x: x.masked_fill(x > 0.5, 0.5),
    "copy": lambda x: torch.empty_like(x).copy_(x**2),
    "out of place sum with alpha": lambda x: torch.add(x, x**2, alpha=3.0),
    "sum with alpha by position": lambda x: torch.rsub(x**2, 0.3, 0.4),
    "hook": doubled_gradient,
}


class Network(nn.Module):
    """A network with one of the functions, behind a gate that is closed for rows whose first input is below 1."""

    def __init__(self, function, gated):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.mix, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        self.function, self.gated = function, gated

    def forward(self, x):
        hidden = torch.tanh(self.mix(self.first(x)))
        extra = self.function(hidden)
        if self.gated:
            extra = torch.where(x[:, :1] > 1, extra, torch.zeros_like(extra))
        return self.last(hidden + extra)


def explain(network, x, engine, layer=None):
    explainer = geh.GEHExplainer(network, layer, engine=engine, posterior=geh.posterior.PointEstimate())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return explainer.explain(x, groups=2, progress=False)


@pytest.mark.parametrize("layer", [None, "first"])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_are_those_of_double_backward(name, gated, layer):
    network = Network(FUNCTIONS[name], gated).double()
    x = torch.randn(60, 4, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    x[:8, 0] = -1.0  # the first rows
    found, expected = (explain(network, x, engine, layer) for engine in ("auto", "exact"))
    scale = expected.eah.pair_mean.max()
    assert scale > 1e-3
    for measure in ("geh", "eah"):
        difference = abs(found.scores(measure).pair_mean - expected.scores(measure).pair_mean).max()
        assert difference < 1e-8 * scale, found.settings["engine_reason"]


@pytest.mark.parametrize("layer", [None, "first"])
def test_networks_without_such_calls_are_still_followed(layer):
    network = Network(lambda x: torch.nn.functional.softplus(x) * x.mean(1, keepdim=True), True).double()
    x = torch.randn(60, 4, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    assert explain(network, x, "auto", layer).settings["engine"] == "structured"


def test_weights_that_are_computed_from_parameters_are_constants():
    """They have a graph of autograd, which does not lead to the units."""
    network = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 8)), nn.Tanh(), nn.Linear(8, 1))
    assert explain(network, torch.randn(20, 4), "auto").settings["engine"] == "structured"
