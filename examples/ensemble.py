"""
An ensemble as posterior
========================

The draws of a single network do not show what another training would have found. An ensemble does. In Friedman's
function only the first two of eight features interact. This example compares one network with dropout and an ensemble
of eight networks, each trained on its own bootstrap sample of the rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1

import geh_explain as geh

X, y = make_friedman1(n_samples=2000, n_features=8, noise=1.0, random_state=0)

# %%
# One network
# -----------
#
# A network with learned dropout rates; its draws are dropout masks.

net = geh.bnn.HybridNet(8, hidden=(50, 50))
geh.bnn.fit(net, X, y, batch_size=200, progress=False)
single = geh.GEHExplainer(net).explain(X, groups=2, progress=False)
print(single)

# %%
# Eight networks
# --------------
#
# ``fit_ensemble`` fits eight networks to bootstrap samples. ``Ensemble`` also accepts a list of networks that were
# trained in another way. Each member is one draw.

members = geh.bnn.fit_ensemble(
    lambda seed: geh.bnn.HybridNet(8, hidden=(50, 50), weights="point", seed=seed),
    *(X, y),
    members=8,
    batch_size=200,
    progress=False,
)
posterior = geh.posterior.Ensemble(members)
ensemble = geh.GEHExplainer(members[0], posterior=posterior).explain(X, groups=2, progress=False)
print(ensemble)

# %%
# Comparison
# ----------
#
# The true pair has by far the largest score in both. A pair is stable if the sign of its effect in some group holds
# over the draws, with a correction for the number of pairs. In the ensemble only the true pair is stable. The masks
# of the single network move the group means of the true pair more than the training does, and its p-value is as small
# as that of a pair that does not exist: all draws share what this training has fitted to noise. Stable pairs belong to
# the network; whether the data support them is another question, which labels that training never used can answer
# (``explain(..., evidence=(X, y))``).

results = {"one network": single, "eight networks": ensemble}
for name, result in results.items():
    table = result.table()
    p_values = np.sort(result.sign_p_values())[:3].round(4)
    print(f"{name}: {table.stable.sum()} of 28 pairs stable, smallest p-values {p_values}")

# %%
# The plot shows the signed effects in both groups, for the two strongest pairs of the single network. Only the first
# one exists. On the second one all draws of the single network agree, while the members of the ensemble differ.

figure, axes = plt.subplots(2, 2, figsize=(10, 4.5), sharex="col", layout="constrained")
for row, (name, result) in zip(axes, results.items(), strict=True):
    for ax, (i, j) in zip(row, single.ranking().top(2), strict=True):
        result.plot.regions(i, j, ax=ax).set_title(f"{i} and {j}, {name}")
figure.savefig("ensemble.png", dpi=100)

# %%
# No posterior includes an error that all its draws share. The true score of x0 and x1 follows from the second
# derivative of 10 sin(pi x0 x1). Both results are below it, as the networks are smoother than the function; the
# ensemble is closer, at the cost of eight trainings. Ensembles explain inputs only, because hidden units of different
# networks do not correspond.

angle = np.pi * X[:, 0] * X[:, 1]
local = 10 * np.pi * (np.cos(angle) - angle * np.sin(angle))
print(f"true score: {np.abs(np.bincount(single.labels, weights=local)).sum() / len(X):.1f}")
