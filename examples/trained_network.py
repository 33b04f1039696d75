"""
Inputs of a trained network
===========================

This example explains a trained torch network with ReLU and dropout: which of its inputs interact? The network is not
retrained and not changed. It predicts the growth of plants in simulated fields, so that the true interactions are
known.
"""

import copy

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch import nn

import geh_explain as geh

# %%
# Data and network
# ----------------
#
# Replace this part by your own network and data. Growth depends on the product of light and a function of water that
# has its maximum at 0.5, so that the interaction of the two is positive in dry fields and negative in wet ones. Warmth,
# soil and wind have main effects only, and slope has no effect.

rng = np.random.default_rng(0)
fields = pd.DataFrame(rng.uniform(size=(3000, 6)), columns=["water", "light", "warmth", "soil", "wind", "slope"])
growth = 4 * np.sin(np.pi * fields.water) * fields.light + 2 * fields.warmth + 3 * fields.soil**2 - fields.wind
growth += 0.2 * rng.standard_normal(3000)

torch.manual_seed(0)
net = nn.Sequential(
    *(nn.Linear(6, 64), nn.ReLU(), nn.Dropout(0.1)), *(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1)), nn.Linear(64, 1)
)
x, y = (torch.tensor(table.to_numpy(), dtype=torch.float32) for table in (fields, growth.to_frame()))
optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(100):
    for batch in torch.randperm(2000).split(64):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(x[batch]), y[batch]).backward()
        optimiser.step()
net.eval()
before = copy.deepcopy(net.state_dict())

# %%
# Explanation
# -----------
#
# The posterior is MC dropout, as the network has dropout. ReLU has a second derivative of 0 almost everywhere, so it is
# replaced by a smooth function during the explanation. The units have the names of the table's columns.

explainer = geh.GEHExplainer(net)
result = explainer.explain(fields[2000:], progress=False)
print(result)

# %%
# Water and light have by far the largest score. A pair of small score is stable as well: the sign of its effect holds
# over the draws, as a fitted network uses nearly all pairs a little. This does not say whether the data support the
# pair; the column ``mean`` shows that its score is small.
#
# Sign by group
# -------------
#
# By default points are grouped by clustering. Labels, one per row, define groups of your own.

moisture = np.where(fields.water[2000:] < 0.5, "dry", "wet")
by_moisture = explainer.explain(fields[2000:], groups=moisture, progress=False)
print(by_moisture.regions("water", "light").round(1))

# %%
# The interaction is positive in dry fields and negative in wet ones, as simulated. The true means are about 8 and -8; a
# network trained with dropout is smoother than the function, and the intervals describe the network, not the function.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=(1, 1.1), layout="constrained")
by_moisture.plot.heatmap(ax=left)
by_moisture.plot.regions("water", "light", ax=right)
figure.savefig("trained_network.png", dpi=100)

# %%
# The network after the explanation
# ---------------------------------
#
# Weights and mode are unchanged, and no hooks remain.

print("same weights:", all(torch.equal(value, before[name]) for name, value in net.state_dict().items()))
print("in eval mode:", not any(module.training for module in net.modules()))
print("hooks:", sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in net.modules()))
