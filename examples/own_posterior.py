"""
A posterior of your own: the Bayesian last layer
================================================

A posterior is a small class with one method, ``draws``. Here is one that costs next to nothing: the last layer of a
network is a linear regression on hidden features, and a Bayesian linear regression has a posterior in closed form. We
write it, check it, and see how much surer it gets with more data.
"""

import contextlib

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.linear_model import BayesianRidge
from torch import nn

import geh_explain as geh

# %%
# A made-up function of six features. x0 and x1 act together with a strength of 2 everywhere, x2 and x3 with a half, and
# the other two act alone. The network learns it from 600 rows, without dropout: it has no draws of its own.

torch.manual_seed(0)
x = torch.randn(2200, 6)
y = 2 * x[:, 0] * x[:, 1] + 0.5 * x[:, 2] * x[:, 3] + torch.sin(2 * x[:, 4]) + x[:, 5] + 0.3 * torch.randn(2200)

net = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(100):
    for batch in torch.randperm(600).split(50):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(x[batch])[:, 0], y[batch]).backward()
        optimiser.step()

# %%
# The class. ``draws`` yields context managers, inside each of which the network has other weights in its last layer.
# The same seed gives the same draws, and whatever happens, the network has its own weights back afterwards.


class LastLayer:
    """The last layer of ``net`` as a Bayesian linear regression of ``y`` on what enters it."""

    def __init__(self, net, x, y):
        with torch.no_grad():
            features = net[:-1](x).double().numpy()
        self.regression = BayesianRidge().fit(features, y.numpy())
        self.centre = features.mean(axis=0), float(y.mean())

    def draws(self, model, n, seed):
        """Yield n draws."""
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
# The regression is fitted to rows that the network was not trained with, once to 100 of them and once to 1000. Do the
# draws fit the last 600 rows, which nobody has seen, and do predictions fall within their intervals as often as they
# should?

x_new, y_new, results = x[1600:], y[1600:], {}
for rows in (100, 1000):
    posterior = LastLayer(net, x[600 : 600 + rows], y[600 : 600 + rows])
    explainer = geh.GEHExplainer(net, posterior=posterior)
    print(f"{rows} rows:", explainer.diagnose(x_new, y=y_new, progress=False))
    results[rows] = explainer.explain(x_new, groups=1, progress=False)
print(results[1000])

# %%
# With 1000 rows the draws fit a little better than the network itself, with 100 somewhat worse, and both are calibrated
# well enough. With more rows the intervals are two to four times narrower, and the two true pairs come nearer to their
# true strengths, the dashed lines. The hidden features are taken for given: what another training would have made of
# them this posterior cannot know, so its intervals are too narrow rather than too wide.

figure, axes = plt.subplots(1, 2, figsize=(12, 3.6), sharex=True, layout="constrained")
for ax, (rows, result) in zip(axes, results.items(), strict=True):
    result.plot.draws(pairs=5, ax=ax).set_title(f"Last layer fitted to {rows} rows", size=10)
    ax.vlines([2, 0.5], [4, 3], [5, 4], colors="black", linestyles="--", linewidth=1)
figure.savefig("own_posterior.png", dpi=100)
