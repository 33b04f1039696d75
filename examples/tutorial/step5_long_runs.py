"""
5. Long runs and wide tables
============================

Large networks and tables take time. This step tells the cost before it is paid, survives an interruption, stays within
a memory budget, and finds the strongest of millions of pairs without computing all of them.
"""

import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import geh_explain as geh

# %%
# A wide table
# ------------
#
# A network of 3,000 inputs, which have 4.5 million pairs. In the data columns 10 and 20 interact, and columns 30 and
# 40. A penalty on whole columns of the first layer leaves the columns with main effects; the others are set to 0.

generator = torch.Generator().manual_seed(0)
x = torch.randn(4000, 3000, generator=generator)
y = (x[:, [10, 20, 30, 40]].sum(dim=1) + x[:, 10] * x[:, 20] - x[:, 30] * x[:, 40]).reshape(-1, 1)

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3000, 32), nn.Softplus(), nn.Dropout(0.05), nn.Linear(32, 1))
weight = net[0].weight
optimiser = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(45):
    if epoch == 5:
        kept = (weight != 0).any(dim=0)
    for batch in torch.randperm(3500, generator=generator).split(50):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(x[batch]), y[batch]).backward()
        optimiser.step()
        with torch.no_grad():
            weight.mul_((1 - 0.01 / weight.norm(dim=0).clamp(min=1e-12)).relu() if epoch < 5 else kept)
net = net.eval()
print(f"{int(kept.sum())} of 3,000 columns have an effect")

# %%
# What will it cost?
# ------------------

explainer = geh.GEHExplainer(net)
print(explainer.estimate(x[3500:], groups=2, draws=20))

# %%
# The strongest pairs, exactly
# ----------------------------
#
# All inputs enter through one linear layer. ``search`` finds the strongest of all pairs by bounds, without forming the
# others, and explains these. A warning would name the columns without any effect, which are as wanted here.

warnings.filterwarnings("ignore", "units: all derivatives", geh.GEHWarning)
found = explainer.search(x[3500:], top=20, groups=2, draws=20, progress=False)
print(found.top(4))

# %%
# Interrupted and resumed
# -----------------------
#
# With ``checkpoint`` finished draws are kept in a folder. The same call goes on after Ctrl-C, a kill or a power cut,
# and ends with the same numbers as a run that was not interrupted. ``memory`` is a budget in GB.

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
strongest = explainer.screen(x[3500:], keep=50, progress=False)
by_screen = geh.GEHExplainer(net, units=strongest)
options = {"groups": 2, "draws": 20, "memory": 1, "progress": False}
first = by_screen.explain(x[3500:], checkpoint=folder / "run", **options)
again = by_screen.explain(x[3500:], checkpoint=folder / "run", **options)  # nothing is left to compute
print("same draws:", np.array_equal(first.geh.draws, again.geh.draws))

# %%
# More rows than memory
# ---------------------
#
# A memory-mapped array is read block by block; Dask arrays, folders of Parquet files and DataLoaders work in the same
# way.

rows = np.lib.format.open_memmap(folder / "rows.npy", mode="w+", dtype=np.float32, shape=(20_000, 3000))
for start in range(0, len(rows), 5000):
    rows[start : start + 5000] = torch.randn(5000, 3000, generator=generator).numpy()
streamed = explainer.explain(rows, pairs=[(10, 20), (30, 40)], groups=2, draws=5, memory=1, progress=False)
print(streamed.table().round(3))

# %%
# A picture of the pairs that were found
# --------------------------------------

figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
found.plot.intervals(pairs=12, ax=ax)
figure.savefig("step5_long_runs.png", dpi=100)
temporary.cleanup()

# %%
# Go on
# -----
#
# This was the last step.
#
# - :doc:`Long runs </long_runs>`: several processes, rows without end, memory, and what is stored in a checkpoint.
# - :doc:`Can I trust it? </trust>` and :doc:`Gotchas </gotchas>` are worth reading before results are published.
# - The :doc:`examples </gallery/index>` explain other kinds of networks.
