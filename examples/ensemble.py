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
# That their strength is above 0 tells little, as a strength is never below. The sign rule asks whether the signed
# effects of a pair differ from 0; of 27 pairs without interaction it may pass one or two, at a level of 5 %. The one
# network believes in more, because all of its draws share what this training happened to fit. The members do not share
# it.

for name, result in (("one network", of_one), ("eight networks", of_many)):
    table = result.table(rule="sign")
    found = table[table.significant]
    print(f"{name}: {len(found)} of 28 pairs,", ", ".join(found.unit_i + "-" + found.unit_j))

# %%
# The picture shows the signed effects of the two pairs that the one network finds strongest, in each of the two
# regions. The first is there. The second is not: all draws of the one network agree on it, the members differ.

figure, axes = plt.subplots(2, 2, figsize=(10, 4.5), sharex="col", layout="constrained")
for row, (name, result) in zip(axes, (("one network", of_one), ("eight networks", of_many)), strict=True):
    for ax, (i, j) in zip(row, of_one.ranking().top(2), strict=True):
        result.plot.regions(i, j, ax=ax).set_title(f"{i} and {j}, {name}")
figure.savefig("ensemble.png", dpi=100)

# %%
# No posterior knows what all of its draws lack. The true strength of x0 and x1 follows from the second derivative of
# 10 sin(pi x0 x1), and both answers stay below it, as the networks are smoother than the function. The ensemble comes
# closer, at the price of eight trainings. It tells about inputs only, since hidden units of different networks do not
# correspond.

angle = np.pi * X[:, 0] * X[:, 1]
local = 10 * np.pi * (np.cos(angle) - angle * np.sin(angle))
print(f"true strength: {np.abs(np.bincount(of_one.labels, weights=local)).sum() / len(X):.1f}")
