"""Small networks explained with a posterior: draws to look at, and rows that are twins."""

import numpy as np
import torch
from torch import nn

import geh_explain as geh


def network(features=3, hidden=6):
    layers = nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
    return nn.Sequential(*layers).double()


def dropping(p=0.5, hidden=6):
    layers = nn.Linear(3, hidden), nn.Tanh(), nn.Dropout(p), nn.Linear(hidden, 4), nn.Tanh(), nn.Linear(4, 1)
    return nn.Sequential(*layers).double()


def points(rows=6, shape=(3,)):
    return torch.randn(rows, *shape, dtype=torch.double)


def with_twins(shape=(3,)):
    """Return rows of which the first and the last are equal, and another one in between."""
    first, other = points(2, shape)
    return torch.stack([first, other, other, first])


def local_hessians(model, inputs, posterior=None, layer=None, draws=6, **options):
    """Return the Hessians (draws, rows, pairs): every row is a group of its own."""
    explainer = geh.GEHExplainer(model, layer, posterior=posterior)
    return explainer.explain(inputs, groups=range(len(inputs)), draws=draws, progress=False, **options).signed


def explain(model, posterior, inputs=None, layer=None, **options):
    options = {"groups": 2, "draws": 4, "progress": False, **options}
    inputs = points(20) if inputs is None else inputs
    return geh.GEHExplainer(model, layer, posterior=posterior).explain(inputs, **options)


def same(one, other, rtol=1e-10):
    return np.allclose(one, other, rtol=rtol, atol=1e-14)
