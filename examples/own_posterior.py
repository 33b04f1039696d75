"""
A posterior of your own: the Bayesian last layer
================================================

A posterior is one small class with a method ``draws``. Here it is one that costs nothing and is exact as far as it goes:
the last layer of a network is a linear regression on hidden features, and a Bayesian linear regression has a posterior in
closed form. We write it, check it, and see how sure it is of each pair.
"""

import contextlib

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.linear_model import BayesianRidge
from torch import nn

import geh_explain as geh

# %%
# A made-up function of six features: x0 and x1 act together, x2 and x3 do so less, and the others act alone. The strength
# of the first pair is 2 everywhere, that of the second a half.

torch.manual_seed(0)
x = 2 * torch.rand(2200, 6) - 1
y = 2 * x[:, 0] * x[:, 1] + 0.5 * x[:, 2] * x[:, 3] + torch.sin(2 * x[:, 4]) + x[:, 5] + 0.3 * torch.randn(2200)
test = slice(1600, 2200)

net = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(50):
    for batch in torch.randperm(600).split(50):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(x[batch])[:, 0], y[batch]).backward()
        optimiser.step()

# %%
# The class.


class LastLayer:
    """The last layer of ``net`` as a Bayesian linear regression of ``y`` on what enters it."""

    def __init__(self, net, x, y):
        with torch.no_grad():
            features = net[:-1](x).double().numpy()
        self.regression = BayesianRidge().fit(features, y.numpy())
        self.centre = features.mean(axis=0), float(y.mean())

    def draws(self, model, n, seed):
        """Yield n context managers."""
        rng = np.random.default_rng(seed)
        for weight in rng.multivariate_normal(self.regression.coef_, self.regression.sigma_, n):
            yield self.drawn(model[-1], weight)

    @contextlib.contextmanager
    def drawn(self, layer, weight):
        """Give the layer other weights for a while."""
        features, target = self.centre
        before = layer.weight.data, layer.bias.data
        layer.weight.data = torch.tensor(weight[None], dtype=torch.float32)
        layer.bias.data = torch.tensor([target - features @ weight], dtype=torch.float32)
        try:
            yield
        finally:
            layer.weight.data, layer.bias.data = before  # the very same tensors

    def __repr__(self):
        return "LastLayer()"


# %%
# T
refits = {rows: LastLayer(net, x[600 : 600 + rows], y[600 : 600 + rows]) for rows in (100, 1000)}
results = {}
for rows, posterior in refits.items():
    explainer = geh.GEHExplainer(net, posterior=posterior)
    print(rows, explainer.diagnose(x[test], y[test], progress=False))
    results[rows] = explainer.explain(x[test], groups=1, progress=False)
    print(results[rows].top(5))
figure, axes = plt.subplots(1, 2, figsize=(12, 3.6), sharex=True, layout="constrained")
for ax, rows in zip(axes, results):
    results[rows].plot.draws(pairs=4, ax=ax)
    ax.set_title(rows)
    ax.axvline(2,ls="--")
figure.savefig("own_posterior.png", dpi=100)
