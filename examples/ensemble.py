"""
Several networks instead of one
===============================

The draws of one network tell how sure that network is of itself. Would another training have found the same pairs? An
ensemble knows. In Friedman's function only the first two of eight features act together; we ask one network with
dropout, then eight networks that were each trained on other rows, which pairs they believe in.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1

import geh_explain as geh

X, y = make_friedman1(n_samples=2000, n_features=8, noise=1.0, random_state=0)

# %%
# One network with learned dropout, and its draws.

one = geh.bnn.HybridNet(8, hidden=(50, 50))
geh.bnn.fit(one, X, y, batch_size=200, progress=False)
of_one = geh.GEHExplainer(one).explain(X, groups=2, progress=False)
print(of_one)

# %%
# ``fit_ensemble`` fits eight networks, each to rows drawn with replacement. A list of networks that you have trained
# yourself does as well: ``Ensemble`` takes any. Each member is one draw.

members = geh.bnn.fit_ensemble(
    lambda seed: geh.bnn.HybridNet(8, hidden=(50, 50), weights="point", seed=seed),
    *(X, y),
    members=8,
    batch_size=200,
    progress=False,
)
posterior = geh.posterior.Ensemble(members)
of_many = geh.GEHExplainer(members[0], posterior=posterior).explain(X, groups=2, progress=False)
print(of_many)

# %%
# Both put the true pair first, by far. They differ in what they make of the others, which do not act together at all.
# The sign rule asks of every pair whether its signed effects differ from 0; of 27 such pairs it may pass one or two at a
# level of 5 %. The one network believes in more, because all of its draws share what this training happened to fit. The
# members do not share it.

for name, result in (("one network", of_one), ("eight networks", of_many)):
    table = result.table(rule="sign")
    found = table[table.significant]
    print(f"{name}: {len(found)} of 28 pairs,", ", ".join(found.unit_i + "-" + found.unit_j))

# %%
# The strengths side by side. The dashed line is the true one of x0 and x1, from the second derivative of
# 10 sin(pi x0 x1). No interval reaches it: all of these networks are smoother than the function, and draws cannot know
# what they all lack. The ensemble comes closer, at the price of eight trainings. It tells about inputs only, since hidden
# units of different networks do not correspond.

angle = np.pi * X[:, 0] * X[:, 1]
local = 10 * np.pi * (np.cos(angle) - angle * np.sin(angle))
truth = np.abs(np.bincount(of_one.labels, weights=local)).sum() / len(X)
figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharex=True, layout="constrained")
for ax, result, title in zip(axes, (of_one, of_many), ("One network with dropout", "Eight networks"), strict=True):
    result.plot.intervals(pairs=8, ax=ax).set_title(title)
    ax.axvline(truth, color="black", linestyle="--", linewidth=1)
figure.savefig("ensemble.png", dpi=100)
