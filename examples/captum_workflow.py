"""
Pairs beside Captum
===================

Captum tells how much each input matters. Which inputs matter together is the next question, and the classes of
``geh_explain.captum`` answer it in Captum's own manner: construct once, then call ``attribute``. In the simulated data
below each of eight features acts together with its neighbours, and in the last picture both kinds of answer meet.
"""

import matplotlib.pyplot as plt
import torch
from captum.attr import IntegratedGradients, LayerConductance, NoiseTunnel
from torch import nn

import geh_explain as geh
from geh_explain.captum import GroupExpectedHessian, InputHessian, LayerHessian

data = geh.datasets.simulated(10_000, signal_to_noise=10)
torch.manual_seed(0)
net = nn.Sequential(
    *(nn.Linear(8, 200), nn.ReLU(), nn.Dropout(0.05)),
    *(nn.Linear(200, 200), nn.ReLU(), nn.Dropout(0.05)),
    nn.Linear(200, 1),
)
geh.bnn.fit(net, data.X[:9000], data.y[:9000], progress=False)
x = torch.tensor(data.X[9000:].to_numpy(), dtype=torch.float32)

# %%
# Integrated gradients first: how much does each feature move the prediction, away from that at the mean of the data?

baseline = x.mean(dim=0, keepdim=True)
gradients = IntegratedGradients(net).attribute(x, baselines=baseline, target=0)
importance = gradients.detach().abs().mean(dim=0)
print({name: round(float(value), 2) for name, value in zip(data.X, importance, strict=True)})

# %%
# x1 and x8 seem to matter little, and with whom the others act remains open. ``InputHessian`` is called alike, and
# gives a matrix for every point: how the effect of one feature changes with another. Like any method of Captum it can
# be put into a ``NoiseTunnel``, which averages it over a little noise.

local = InputHessian(net).attribute(x, target=0)
calmer = NoiseTunnel(InputHessian(net)).attribute(x, target=0, nt_type="smoothgrad", nt_samples=10, stdevs=0.1)
print(tuple(local.shape), tuple(calmer.shape))

# %%
# Over all points, ``GroupExpectedHessian`` gives the strength of each pair and its spread, here over dropout masks. Its
# ``explain`` returns the same numbers with everything around them.

method = GroupExpectedHessian(net)
mean, std = method.attribute(x, target=0, groups=11, draws=50, return_std=True)
print(f"x1 and x2: {mean[0, 1]:.1f} ± {std[0, 1]:.1f}")
result = method.explain(x, target=0, groups=11, draws=50, names=list(data.X))
print(result)

# %%
# All seven pairs of neighbours lead. The network uses the others a little, too, which is why they are significant.
#
# Hidden units are asked in the same way: which units of the first layer conduct most, and which act most with others?

conductance = LayerConductance(net, net[1]).attribute(x[:200], baselines=baseline, target=0)
hidden = LayerHessian(net, net[1]).attribute(x[:200], target=0)
print("conduct most:", conductance.abs().mean(dim=0).topk(5).indices.tolist())
print("act most with others:", hidden.mean(dim=0).abs().sum(dim=0).topk(5).indices.tolist())

# %%
# On the left, Captum's attributions are the sizes of the features, and the lines between them are the interactions:
# a ring of neighbours, open between x8 and x1. On the right is the strongest pair, point by point. Its sign changes
# with x2, so that the colour of its line holds for the larger part of the data only. Near the ends of the data the
# network bends less than the function does.

figure, (left, right) = plt.subplots(1, 2, figsize=(13, 6), layout="constrained")
result.plot.network(main=importance, ax=left)
right.scatter(x[:, 1], local[:, 1, 2], s=6, color="0.7", label="InputHessian")
right.scatter(x[:, 1], calmer[:, 1, 2], s=6, label="with NoiseTunnel")
right.plot([-0.5, 0.5], [-22, 22], "k--", label="truth")
right.set(xlabel="x2", ylabel="interaction of x2 and x3")
right.legend(frameon=False)
figure.savefig("captum_workflow.png", dpi=100)
