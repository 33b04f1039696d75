"""
Pairs of features with Captum
=============================

Captum attributes a prediction to single features. The classes of ``geh_explain.captum`` attribute it to pairs, with
Captum's interface: construct once, then call ``attribute``. In the simulated data of this example each of eight
features interacts with its neighbours.
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
# Single features
# ---------------
#
# Integrated gradients measure how much each feature changes the prediction, compared with that at the mean of the data.

baseline = x.mean(dim=0, keepdim=True)
gradients = IntegratedGradients(net).attribute(x, baselines=baseline, target=0)
importance = gradients.detach().abs().mean(dim=0)
print({name: round(float(value), 2) for name, value in zip(data.X, importance, strict=True)})

# %%
# Pairs at each example
# ---------------------
#
# Single-feature attributions do not show which features interact; x1 and x8 have small ones. ``InputHessian`` returns
# the matrix of second derivatives for each example. The kinks of ReLU are smoothed as far as the examples of
# ``data`` spread; without them each example is smoothed by itself, which takes longer. Like other methods of Captum
# it can be wrapped by ``NoiseTunnel``, which averages it over Gaussian noise.

hessian = InputHessian(net, data=x)
local = hessian.attribute(x, target=0)
averaged = NoiseTunnel(hessian).attribute(x, target=0, nt_type="smoothgrad", nt_samples=10, stdevs=0.1)
print(tuple(local.shape), tuple(averaged.shape))

# %%
# Pairs over all examples
# -----------------------
#
# ``GroupExpectedHessian`` returns the score of each pair over all examples and, with ``return_std``, its standard
# deviation over dropout masks. Its ``explain`` returns the same scores as an ``Interactions``.

method = GroupExpectedHessian(net)
mean, std = method.attribute(x, target=0, groups=11, draws=50, return_std=True)
print(f"x1 and x2: {mean[0, 1]:.1f} ± {std[0, 1]:.1f}")
result = method.explain(x, target=0, groups=11, draws=50, names=list(data.X))
print(result)

# %%
# The seven pairs of neighbours have the largest scores. The intervals of the other pairs exclude 0 too, with smaller
# scores: the network uses them a little.
#
# Hidden units
# ------------
#
# ``LayerHessian`` corresponds to Captum's layer attributions. These are the units of the first layer with the largest
# conductance, and those with the largest sum of absolute interactions.

conductance = LayerConductance(net, net[1]).attribute(x[:200], baselines=baseline, target=0)
hidden = LayerHessian(net, net[1], data=x).attribute(x[:200], target=0)
print("largest conductance:", conductance.abs().mean(dim=0).topk(5).indices.tolist())
print("largest interactions:", hidden.mean(dim=0).abs().sum(dim=0).topk(5).indices.tolist())

# %%
# Plots
# -----
#
# Left: the size of a node is the feature's integrated gradient, the width of an edge the score of the pair, and its
# colour the sign in most of the data. Neighbours are connected. Right: the strongest pair at each example. Its sign
# changes with x2. Near the ends of the data the network is flatter than the true function.

figure, (left, right) = plt.subplots(1, 2, figsize=(13, 6), layout="constrained")
result.plot.network(main=importance, ax=left)
right.scatter(x[:, 1], local[:, 1, 2], s=6, color="0.7", label="InputHessian")
right.scatter(x[:, 1], averaged[:, 1, 2], s=6, label="with NoiseTunnel")
right.plot([-0.5, 0.5], [-22, 22], "k--", label="true function")
right.set(xlabel="x2", ylabel="interaction of x2 and x3")
right.legend(frameon=False)
figure.savefig("captum_workflow.png", dpi=100)
