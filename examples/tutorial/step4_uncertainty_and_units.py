"""
4. A posterior and units of your own
====================================

Intervals need draws of the network. Step 1 took them from dropout. This step takes them from an ensemble and from a
class of your own, and explains groups of columns instead of single ones.
"""

import contextlib

import matplotlib.pyplot as plt
import torch
from torch import nn

import geh_explain as geh

# %%
# Networks without dropout
# ------------------------
#
# Six features: two coordinates of a place, three measurements of a sensor, and a time. The place changes what the
# first measurement means.


def train(seed):
    """Train one network; the seed decides on initial weights and on the rows."""
    torch.manual_seed(seed)
    rows = torch.randint(2000, (2000,))
    net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(30):
        for batch in rows[torch.randperm(2000)].split(50):
            optimiser.zero_grad()
            nn.functional.mse_loss(net(x[batch]), y[batch]).backward()
            optimiser.step()
    return net.eval()


x = torch.randn(3000, 6, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] * x[:, 2] + x[:, 1] + torch.sin(x[:, 3] + x[:, 4]) + x[:, 5]).reshape(-1, 1)
y += 0.3 * torch.randn(3000, 1, generator=torch.Generator().manual_seed(1))
names = ["east", "north", "sensor 1", "sensor 2", "sensor 3", "time"]
networks = [train(seed) for seed in range(5)]

# %%
# An ensemble
# -----------
#
# Networks that were trained separately are draws of one another. Their spread contains the randomness of data, initial
# weights and training. There are as many draws as networks.

ensemble = geh.posterior.Ensemble(networks)
explainer = geh.GEHExplainer(networks[0], posterior=ensemble)
result = explainer.explain(x[2000:], names=names, evidence=(x[2000:], y[2000:]), progress=False)
print(result.table().head(4)[["unit_i", "unit_j", "mean", "std", "slope", "p_value", "significant"]].round(3))

# %%
# Groups of columns as units
# --------------------------
#
# A unit may be several columns that move together. ``FeatureGroups`` names them; ``units.Categorical`` does the same
# for one-hot columns, where a step leads from one level to another.

groups = geh.units.FeatureGroups({"place": [0, 1], "sensor": [2, 3, 4], "time": [5]})
by_group = geh.GEHExplainer(networks[0], units=groups, posterior=ensemble)
grouped = by_group.explain(x[2000:], progress=False)
print(grouped.table().round(2))

# %%
# A posterior of your own
# -----------------------
#
# A posterior is any object with a method ``draws(model, n, seed)``. It yields context managers, inside each of which
# the model is one fixed function. This one moves the weights of the first network towards those of the others.


class TowardsOthers:
    """Weights on the way from one network to another, which is drawn."""

    def __init__(self, others, largest=0.05):
        self.others = others
        self.largest = largest

    def draws(self, model, n, seed):
        """Yield n context managers."""
        generator = torch.Generator().manual_seed(seed)
        for _ in range(n):
            other = self.others[int(torch.randint(len(self.others), (1,), generator=generator))]
            share = self.largest * float(torch.rand(1, generator=generator))
            yield self.moved(model, other, share)

    @contextlib.contextmanager
    def moved(self, model, other, share):
        """Move the weights, and restore them."""
        original = [weight.data for weight in model.parameters()]
        for weight, target in zip(model.parameters(), other.parameters(), strict=True):
            weight.data = torch.lerp(weight.data, target.data, share)
        try:
            yield
        finally:
            for weight, data in zip(model.parameters(), original, strict=True):
                weight.data = data


own = geh.GEHExplainer(networks[0], posterior=TowardsOthers(networks[1:]))
by_own = own.explain(x[2000:], names=names, draws=50, progress=False)

# %%
# Does a posterior describe the errors of the network? ``diagnose`` compares draws with labels that training never used:
# predictive intervals of a nominal level should hold this share of them.

for name, each in (("ensemble", explainer), ("own posterior", own)):
    diagnosis = each.diagnose(x[2000:], y=y[2000:], draws=50, progress=False)
    print(f"{name}: error {diagnosis.error:.3f}; calibration:")
    print(diagnosis.calibration().round(2).to_string(index=False))

# %%
# Both posteriors, side by side. Draws around one network agree on its small errors too, so that all of these pairs are
# stable; the held-out labels of the left picture support two of them.

figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharex=True)
for ax, each, title in zip(axes, (result, by_own), ("ensemble", "own posterior"), strict=True):
    each.plot.intervals("geh", pairs=8, ax=ax)
    ax.set_title(title)
figure.savefig("step4_uncertainty_and_units.png", dpi=100)

# %%
# Go on
# -----
#
# - Next step: :doc:`5. Long runs and wide tables </gallery/tutorial/step5_long_runs>`.
# - :doc:`Bayesian networks </bayesian>`: Laplace approximations, SWAG, samples of weights, training with dropout rates.
# - :doc:`Extensions </own>`: unit sets and engines of your own. :doc:`Categories </categories>`: one-hot columns.
