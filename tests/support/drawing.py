"""Small networks, and short ways to explain them with a posterior."""

import numpy as np
import torch
from torch import nn

import geh_explain as geh


def network(features=3, hidden=6):
    """Return a tanh network without dropout."""
    layers = nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
    return nn.Sequential(*layers).double()


def dropping(p=0.5, hidden=6):
    """Return a tanh network of three inputs with one dropout layer."""
    layers = nn.Linear(3, hidden), nn.Tanh(), nn.Dropout(p), nn.Linear(hidden, 4), nn.Tanh(), nn.Linear(4, 1)
    return nn.Sequential(*layers).double()


def trained(rows=150):
    """Return a network trained on y = 3 x0 x1 + x2 + noise, and the data x (rows, 3) and y (rows, 1)."""
    x = torch.rand(rows, 3) * 2 - 1
    y = (3 * x[:, 0] * x[:, 1] + x[:, 2])[:, None] + 0.1 * torch.randn(rows, 1)
    net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
    optimiser = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(500):
        loss = (net(x) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return net, x, y


def points(rows=6, shape=(3,)):
    """Return random rows in double precision."""
    return torch.randn(rows, *shape, dtype=torch.double)


def with_twins(shape=(3,)):
    """Return four rows, of which the first equals the last and the second equals the third."""
    first, other = points(2, shape)
    return torch.stack([first, other, other, first])


def local_hessians(model, inputs, posterior=None, layer=None, draws=6, **options):
    """Return the Hessians (draws, rows, pairs): every row is a group of its own."""
    explainer = geh.GEHExplainer(model, layer, posterior=posterior)
    return explainer.explain(inputs, groups=range(len(inputs)), draws=draws, progress=False, **options).signed


def explain(model, posterior, inputs=None, layer=None, **options):
    """Return the result for 20 random rows, 2 groups and 4 draws, unless the options say otherwise."""
    options = {"groups": 2, "draws": 4, "progress": False, **options}
    inputs = points(20) if inputs is None else inputs
    return geh.GEHExplainer(model, layer, posterior=posterior).explain(inputs, **options)


def same(one, other, rtol=1e-10):
    """Return whether two arrays agree up to rounding."""
    return np.allclose(one, other, rtol=rtol, atol=1e-14)
