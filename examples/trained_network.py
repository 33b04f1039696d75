"""
A network that is already trained
=================================

You have a trained torch network, with ReLU and dropout as usual, and want to know which of its inputs act together. No
training again, no change of the code: three lines explain it. Here the network predicts how plants grow in simulated
fields, so that the right answer is known, and afterwards it is exactly what it was.
"""

import copy

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch import nn

import geh_explain as geh

# %%
# Take this part for your own. Light helps, but only with the right amount of water: too little and too much are both
# bad. Warmth, soil and wind act alone, and the slope of the field does nothing.

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
# The three lines. The dropout of the network serves as posterior, and its ReLUs are smoothed while it is explained, as
# their second derivative is zero almost everywhere. The names come from the table's columns.

explainer = geh.GEHExplainer(net)
result = explainer.explain(fields[2000:], progress=False)
print(result)

# %%
# Water and light lead by far. Most other pairs are significant as well, which says that the network uses them a
# little, as a fitted network does; the mean says how little.
#
# Where does the pair act, and in which direction? Regions are found by themselves, or are named by you: one label for
# each row.

ground = np.where(fields.water[2000:] < 0.5, "dry", "wet")
named = explainer.explain(fields[2000:], groups=ground, progress=False)
print(named.regions("water", "light").round(1))

# %%
# In dry fields more water makes light worth more, in wet ones less, as it was simulated; an average over all fields
# would have cancelled. The true means are about 8 and -8. A network that was trained with dropout is smoother than
# that, and the intervals are about the network, not about the fields.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=(1, 1.1), layout="constrained")
named.plot.heatmap(ax=left)
named.plot.regions("water", "light", ax=right)
figure.savefig("trained_network.png", dpi=100)

# %%
# The network was borrowed: weights and mode are what they were, and no hook has stayed behind.

print("same weights:", all(torch.equal(value, before[name]) for name, value in net.state_dict().items()))
print("still in eval mode:", not any(module.training for module in net.modules()))
print("hooks left:", sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in net.modules()))
