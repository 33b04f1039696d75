"""
Boosted trees of scikit-learn
=============================

Trees have no derivatives. For models without derivatives, geh_explain uses mixed differences of predictions, so that
any function that predicts can be explained. Here boosted trees are fitted to Friedman's function of ten features, in
which only the first two interact. The uncertainty comes from bootstrap samples.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.utils import resample

import geh_explain as geh

X, y = make_friedman1(n_samples=3000, noise=1.0, random_state=0)
X_train, X_test, y_train, y_test = X[:2500], X[2500:], y[:2500], y[2500:]

# %%
# Training
# --------
#
# One model is fitted to all training rows, and ten to bootstrap samples.

trees = HistGradientBoostingRegressor(random_state=0).fit(X_train, y_train)
print(f"R2 on test rows: {trees.score(X_test, y_test):.2f}")

refits = []
for seed in range(10):
    rows = resample(X_train, y_train, random_state=seed)
    refits.append(HistGradientBoostingRegressor(random_state=seed).fit(*rows))

# %%
# Explanation
# -----------
#
# Each of the ten models is one draw of the posterior. Estimators have no gradients, so that mixed differences of their
# predictions are taken.

explainer = geh.GEHExplainer(trees, posterior=geh.posterior.Ensemble(refits))
result = explainer.explain(X_test, progress=False)
print(result)

# %%
# The true pair has by far the largest score, and only this pair is stable: the sign of its effect holds over the ten
# models. The rule of the paper asks whether the interval of the score excludes 0. Nearly all pairs pass it, as a score
# is a mean of absolute values, which is positive also if the trees have only fitted noise.

table = result.table()
print(table[table.stable])
print(result.table(rule="interval").significant.sum(), "of 45 pairs pass the rule of the paper")

# %%
# Surface of the pair
# -------------------
#
# A surface is the joint effect of two features without their main effects. The plot in the middle is the mean over the
# ten models, the one on the right is computed from the true function; their colour scales differ. Dots are the data.
# The trees reproduce the shape, with flatter corners.

point = geh.posterior.PointEstimate()
truth = geh.GEHExplainer(lambda x: 10 * torch.sin(torch.pi * x[:, 0] * x[:, 1]), posterior=point)

figure, axes = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
result.plot.intervals(pairs=8, ax=axes[0])
explainer.surface(X_test, pair=("x0", "x1"), progress=False).plot(ax=axes[1]).set_title("Boosted trees", size=10)
truth.surface(X_test, pair=("x0", "x1"), progress=False).plot(ax=axes[2]).set_title("True function", size=10)
figure.savefig("sklearn_forest.png", dpi=100)
