"""Networks with and without dropout, and the Hessians of single rows in each draw of a posterior."""

import numpy as np
import torch
from explaining import explain_draws, random_points
from networks import mlp
from torch import nn


def network(features=3, hidden=6):
    """Return a tanh network without dropout, with weights from the global generator."""
    return mlp(features, hidden, hidden, 1, seed=None)


def dropping(p=0.5, hidden=6):
    """Return a tanh network of three inputs with one dropout layer, with weights from the global generator."""
    return mlp(3, hidden, 4, 1, dropout=p, seed=None)


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


def with_twins(shape=(3,)):
    """Return four rows, of which the first equals the last and the second equals the third."""
    first, other = random_points(2, *shape)
    return torch.stack([first, other, other, first])


def local_hessians(model, inputs, posterior=None, layer=None, draws=6, **options):
    """Return the Hessians (draws, rows, pairs): every row is a group of its own."""
    groups = range(len(inputs))
    result = explain_draws(model, inputs, posterior=posterior, layer=layer, groups=groups, draws=draws, **options)
    return result.signed


def same(one, other, rtol=1e-10):
    """Return whether two arrays agree up to rounding."""
    return np.allclose(one, other, rtol=rtol, atol=1e-14)
