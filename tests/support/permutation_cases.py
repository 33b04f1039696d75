"""A small permutation test: data, a fit that needs no network, and the call."""

from functools import cache

import numpy as np

from geh_explain.inference import permutation_test

ROWS = 60


@cache
def features():
    """Return three independent features of 60 rows."""
    return np.random.default_rng(0).normal(size=(ROWS, 3))


@cache
def response():
    """Return x0 x1 + 0.1 x2."""
    return features()[:, 0] * features()[:, 1] + 0.1 * features()[:, 2]


def products(X, y):
    """Score a pair by the correlation of its product with the target."""
    X, y = np.asarray(X), np.asarray(y)
    return np.array([abs(np.corrcoef(X[:, i] * X[:, j], y)[0, 1]) for i, j in ((0, 1), (0, 2), (1, 2))])


def quiet(fit=products, permutations=19, **options):
    return permutation_test(fit, features(), response(), permutations, progress=False, **options)
