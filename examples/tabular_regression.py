"""
A Bayesian network for a small table
====================================

The diabetes data of scikit-learn have ten measurements of 442 people, and a measure of disease progression one year
later. This example fits a Bayesian network, ranks the pairs of measurements, and checks the posterior on held-out
people. With so few rows the uncertainty matters as much as the ranking.
"""

import numpy as np
from sklearn.datasets import load_diabetes

import geh_explain as geh

people = load_diabetes(as_frame=True, scaled=False)
order = np.random.default_rng(0).permutation(len(people.data))
X, y = people.data.iloc[order], people.target.iloc[order]
X_train, y_train, X_test, y_test = X[:342], y[:342], X[342:], y[342:]

# %%
# Training
# --------
#
# ``HybridNet`` is the sum of linear main effects and an MLP for interactions. Its dropout rates are learned, one per
# node. It scales inputs and targets itself, so the table is passed as it is.

net = geh.bnn.HybridNet(10, hidden=(50, 50))
print(geh.bnn.fit(net, X_train, y_train, progress=False))

# %%
# Scores
# ------
#
# Each draw of the dropout masks is one network with its own scores. ``scale="std"`` multiplies each feature by its
# standard deviation: a score is then the change in the effect of one feature (per standard deviation) when the other
# one increases by a standard deviation, in units of the target.

explainer = geh.GEHExplainer(net)
result = explainer.explain(X, scale="std", progress=False)
print(result)

# %%
# Body mass index and blood pressure have the largest score. A pair is stable if the sign of its effect in some group
# holds over the draws, with a correction for the number of pairs; none is, with so few rows. The rule of the paper asks
# whether the interval of the score excludes 0. A score is a mean of absolute values, which is positive also where there
# is no interaction, so that some pairs pass.

paper = result.table(rule="interval")
print(result.table().stable.sum(), "pairs are stable,", paper.significant.sum(), "pass the rule of the paper")
print(result.regions("bmi", "bp").round(2))

# %%
# The effect is positive in both groups: in this network, the effect of blood pressure is larger for people with a
# higher body mass index.
#
# Check of the posterior
# ----------------------
#
# Intervals and decisions are only as good as the posterior. ``diagnose`` compares it with held-out targets. The error
# of a draw should be close to that of the network itself, and predictive intervals should contain the nominal share of
# the targets.

print(explainer.diagnose(X_test, y=y_test, progress=False))

# %%
# Both hold, within the accuracy that a hundred people allow. Even so, dropout masks underestimate the uncertainty of
# weak pairs, because all of them belong to one solution. Independent Gaussian weights have a wider posterior: single
# draws have larger errors, while the mean over draws predicts as well. With the same groups the same pair leads, and
# fewer pairs pass the rule of the paper.

gaussian = geh.bnn.HybridNet(10, hidden=(50, 50), weights="gaussian")
geh.bnn.fit(gaussian, X_train, y_train, progress=False)
gaussian_explainer = geh.GEHExplainer(gaussian)
print(gaussian_explainer.diagnose(X_test, y=y_test, progress=False))
gaussian_result = gaussian_explainer.explain(X, groups=result.labels, scale="std", progress=False)
print(gaussian_result.top(5).round(3))
for name, scores in (("dropout", result), ("Gaussian", gaussian_result)):
    passed = scores.table(rule="interval").significant.sum()
    print(name, "weights:", scores.table().stable.sum(), "of 45 pairs stable,", passed, "pass the rule of the paper")

# %%
# The plot shows the strongest pairs of the first network: thick lines are 50 % intervals, thin lines 95 % intervals.

figure = result.plot.intervals(pairs=10).figure
figure.savefig("tabular_regression.png", dpi=100)
