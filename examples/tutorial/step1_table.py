"""
1. A network for a table
========================

You have a trained network for tabular data, and labelled rows that its training never used. This step finds the pairs
of features that interact in the network, tests which of them the labels support, and shows where in the data they act.

The data are simulated, so that the answer is known: the yearly heating demand of buildings.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch import nn

import geh_explain as geh

# %%
# A trained network
# -----------------
#
# Area and insulation interact, as more area loses more heat where it is badly insulated. South windows and shade
# interact, as south windows lose heat in the shade only; elsewhere the sun makes up for it. All other effects are
# sums.
#
# To use this page for a network of your own, replace this part. Any ``nn.Module`` will do. Here it has dropout, from
# which the uncertainty of its scores is taken. The last 1,000 rows are kept from training.

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
# Explain and test
# ----------------
#
# ``evidence`` takes rows and labels that training never used. Names of columns become names of units. A network with
# several outputs also needs ``target``, such as ``explain(x, target=1)``, as in Captum. One without dropout is
# explained as a point estimate, with a warning; step 4 has other posteriors.

explainer = geh.GEHExplainer(net)
held_out = buildings[3000:]
result = explainer.explain(held_out, evidence=(held_out, demand[3000:]), progress=False)
print(result)

# %%
# How to read the table:
#
# - ``mean`` is the score of a pair in the network: by how much the effect of one feature changes when the other one
#   increases by 1.
# - ``slope`` says how much of it the labels contain: 1 all of it, 0 nothing.
# - ``significant`` pairs are supported by the labels, at a false discovery rate of 5 %.
#
# Both simulated interactions are found, and no other pair. The slope of south windows and shade is above 1: the labels
# contain more of this interaction than the network has learned.
#
# Where and with which sign
# -------------------------
#
# A score has no sign, as the sign may differ between parts of the data. ``regions`` has the signed effect of a pair in
# each group of points. By default points are grouped by clustering; ``groups="pairwise"`` halves the data at the
# medians of the pair's own features.

halves = explainer.explain(held_out, groups="pairwise", progress=False)
print(halves.regions("area", "insulation")[["size", "mean", "low", "high"]].round(2))

# %%
# Groups of your own are labels, one per row. South windows have the stronger effect in the shade. The true values are
# 1 in the shade and 0 elsewhere: a network with dropout is smoother than the function, and the score is that of the
# network.

shade = np.where(held_out["shade"] > 0, "shade", "sun")
by_shade = explainer.explain(held_out, groups=shade, progress=False)
print(by_shade.regions("south windows", "shade")[["size", "mean", "low", "high"]].round(2))

# %%
# Pictures and a page
# -------------------

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
result.plot.intervals(pairs=10, ax=left)
by_shade.plot.regions("south windows", "shade", ax=right)
figure.savefig("step1_table.png", dpi=100)

# %%
# The page is one HTML file. It works offline and has all pairs, with their intervals, groups and evidence.

print(result.report("buildings.html"))

# %%
# A result is saved to one file, which ``geh.Interactions.load`` reads.

print(result.save("buildings.npz"))

# %%
# Go on
# -----
#
# - Next step: :doc:`2. Hidden units of a vision network </gallery/tutorial/step2_vision>`.
# - :doc:`Read a result </reading>` describes all columns, measures and rules.
# - :doc:`Choose the settings </choosing>`: other posteriors, units, groups and scales.
