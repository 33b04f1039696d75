"""
Models of scikit-learn, by differences
======================================

Forests and boosted trees have no derivatives. Differences between predictions take their place, and anything that
predicts will do. Here boosted trees learn Friedman's function of ten features, in which only the first two act
together, and bootstrap samples tell how sure the answer is.
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
# One model is fitted to the data, and ten to rows drawn with replacement. The explainer calls a function: it gets a
# tensor, and may return an array.

trees = HistGradientBoostingRegressor(random_state=0).fit(X_train, y_train)
print(f"R2 on rows that were not seen: {trees.score(X_test, y_test):.2f}")

refits = []
for seed in range(10):
    rows = resample(X_train, y_train, random_state=seed)
    refits.append(HistGradientBoostingRegressor(random_state=seed).fit(*rows))
members = [lambda x, refit=refit: refit.predict(x.numpy()) for refit in refits]

# %%
# Each of the ten is one draw of the posterior. ``engine="auto"`` would take differences too, where it finds no
# derivatives, and say so in a warning.

explainer = geh.GEHExplainer(
    lambda x: trees.predict(x.numpy()), engine="difference", posterior=geh.posterior.Ensemble(members)
)
result = explainer.explain(X_test, progress=False)
print(result)

# %%
# The right pair leads by far. Nearly all pairs are significant, though. A score is an absolute value, which noise alone
# moves away from 0, and trees fit a good deal of noise. The sign rule asks instead whether the models agree on the sign
# of a pair's effect in any region, and leaves the right pair only.

table = result.table(rule="sign")
print(table[table.significant])

# %%
# What the two features do together, without what each does alone. The picture in the middle is the mean of the ten
# models, the one on the right is the true function, each with a scale of its own. Dots are the data. The shape is
# right, and the corners are too flat.

one = geh.posterior.PointEstimate()
truth = geh.GEHExplainer(lambda x: 10 * torch.sin(torch.pi * x[:, 0] * x[:, 1]), posterior=one)

figure, axes = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
result.plot.intervals(pairs=8, ax=axes[0])
explainer.surface(X_test, pair=("x0", "x1"), progress=False).plot(ax=axes[1]).set_title("Boosted trees", size=10)
truth.surface(X_test, pair=("x0", "x1"), progress=False).plot(ax=axes[2]).set_title("Truth", size=10)
figure.savefig("sklearn_forest.png", dpi=100)
