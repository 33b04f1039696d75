"""
A small table, and how sure one can be
======================================

Ten measurements of 442 people predict how far their diabetes has gone a year later. Which of them act together? The
table is small, so the second question matters as much: how sure are we? A Bayesian neural network is fitted in two
lines and explained; then the answer is checked in three ways.
"""

import numpy as np
from sklearn.datasets import load_diabetes

import geh_explain as geh

people = load_diabetes(as_frame=True, scaled=False)
order = np.random.default_rng(0).permutation(len(people.data))
X, y = people.data.iloc[order], people.target.iloc[order]
X_train, y_train, X_test, y_test = X[:342], y[:342], X[342:], y[342:]

# %%
# ``HybridNet`` is a sum of linear main effects and a network for what features do together. It learns for each of its
# nodes how often to drop it, and scales the columns itself, so that the table can stay as it is.

net = geh.bnn.HybridNet(10, hidden=(50, 50))
print(geh.bnn.fit(net, X_train, y_train, progress=False))

# %%
# Every draw of the dropout masks is one network, and has its own scores. ``scale="std"`` multiplies each feature by
# its standard deviation: a score tells by how much the effect of one feature changes when the other one moves by its
# usual spread, both in units of the target.

explainer = geh.GEHExplainer(net)
result = explainer.explain(X, scale="std", progress=False)
print(result)

# %%
# Body mass and blood pressure lead. The columns low and high are the 95 % credible interval of the strength, and a
# pair is called significant if it excludes 0. But a strength is an absolute value, which chance alone moves away from
# 0. The sign rule asks instead whether the *signed* effects differ from 0, region by region.

print(result.table(rule="sign").head(5).round(3))
print(result.regions("bmi", "bp").round(2))

# %%
# The effect is positive in both regions: for the network, high blood pressure is worse news for those who are heavy.
#
# All of this is only as good as the posterior. ``diagnose`` looks at people whom the network has not seen. Each draw
# should err about as much as the network itself, and the intervals should hold the share of targets that they promise.

print(explainer.diagnose(X_test, y=y_test, progress=False))

# %%
# Both hold, as far as a hundred people can tell. Still, dropout masks know little of other solutions that would fit as
# well, and are too sure of weak pairs. Gaussian weights are more careful: their draws differ more, and only the mean
# of the draws predicts as well. In the same regions body mass and blood pressure lead there too, and fewer pairs pass.

gaussian = geh.bnn.HybridNet(10, hidden=(50, 50), weights="gaussian")
geh.bnn.fit(gaussian, X_train, y_train, progress=False)
careful = geh.GEHExplainer(gaussian)
print(careful.diagnose(X_test, y=y_test, progress=False))
second = careful.explain(X, groups=result.labels, scale="std", progress=False)
print(second.table(rule="sign").head(5).round(3))
for name, answer in (("dropout", result), ("Gaussian", second)):
    print(name, "weights:", answer.table(rule="sign").significant.sum(), "of 45 pairs pass the sign rule")

# %%
# The picture shows the strongest pairs of the first network: thick lines are 50 % intervals, thin ones 95 %.

figure = result.plot.intervals(pairs=10).figure
figure.savefig("tabular_regression.png", dpi=100)
