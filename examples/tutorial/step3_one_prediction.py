"""
3. One prediction
=================

Steps 1 and 2 describe a network over many points. This step accounts for a single output: which features, and which
pairs of features, lead from a reference to this prediction?
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch import nn

import geh_explain as geh

# %%
# The network of step 1
# ---------------------

rng = np.random.default_rng(1)
columns = ["area", "insulation", "south windows", "shade", "age", "people", "floor", "distance"]
buildings = pd.DataFrame(rng.uniform(-1, 1, (4000, 8)), columns=columns)
demand = -2 * buildings["area"] * buildings["insulation"]
demand += buildings["south windows"] * np.maximum(buildings["shade"], 0)
demand += 2 * buildings["area"] - buildings["insulation"] + buildings["age"] ** 2 + buildings["people"]
demand += 0.5 * rng.standard_normal(4000)

torch.manual_seed(0)
net = nn.Sequential(
    *(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.1)), *(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1)), nn.Linear(64, 1)
)
x, y = (torch.tensor(table.to_numpy(), dtype=torch.float32) for table in (buildings, demand.to_frame()))
optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(60):
    for batch in torch.randperm(3000).split(64):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(x[batch]), y[batch]).backward()
        optimiser.step()
net = net.eval()

# %%
# A large, badly insulated building
# ---------------------------------
#
# The row is compared with the mean of the data. Main effects, pairs and a remainder sum to the prediction; intervals
# are over draws of dropout.

explainer = geh.GEHExplainer(net)
row = int(np.argmax((buildings["area"] - buildings["insulation"])[3000:])) + 3000
local = explainer.explain_row(buildings.iloc[row], data=buildings[3000:], draws=50, progress=False)
print(local)

# %%
# Area and insulation each raise the demand, and their pair raises it further: a large building needs more heat, and
# each square metre of this one loses more than usual.

figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
local.plot.waterfall(ax=ax)
figure.savefig("step3_one_prediction.png", dpi=100)

# %%
# Another question, another baseline
# ----------------------------------
#
# An account explains a difference. Compared with its well insulated neighbour instead of the mean, the same building
# has another account.

neighbour = buildings.iloc[row].copy()
neighbour["insulation"] = 1.0
against = explainer.explain_row(
    buildings.iloc[row], baseline=neighbour, data=buildings[3000:], draws=50, progress=False
)
print(against.table().head(3).round(2))

# %%
# Only insulation differs, so that it has the whole difference, as a main effect: a pair needs two features that
# change.
#
# Go on
# -----
#
# - Next step: :doc:`4. A posterior and units of your own </gallery/tutorial/step4_uncertainty_and_units>`.
# - :doc:`Explain one prediction </one_prediction>` has the formulas, all baselines, and black boxes.
