"""Additive fits predict rows that they were not fitted to."""

import numpy as np
import pytest

from geh_explain.statistics.additive import LADDER, AdditiveDegrees, additive_basis, cross_fitted


def test_predictions_are_those_of_ridge_regression_without_the_fold():
    generator = np.random.default_rng(0)
    values, target, folds = generator.normal(size=(200, 2)), generator.normal(size=(200, 3)), np.arange(200) % 4
    basis = additive_basis(values, AdditiveDegrees(2, 2))
    predicted = cross_fitted(basis, target, folds)
    for fold in range(4):
        own = folds == fold
        rest = basis[~own]
        coefficients = np.linalg.solve(rest.T @ rest + 1e-4 * np.eye(basis.shape[1]), rest.T @ target[~own])
        assert predicted[own] == pytest.approx(basis[own] @ coefficients)


def test_bins_follow_steps_that_polynomials_do_not():
    values = np.random.default_rng(0).uniform(size=(2000, 2))
    target = (values[:, [0]] > 0.5).astype(float)
    errors = [
        np.mean((target - cross_fitted(additive_basis(values, degrees), target, np.arange(2000) % 5)) ** 2)
        for degrees in LADDER[-2:]
    ]
    assert errors[1] < errors[0] / 2


def test_constant_units_and_few_values_are_no_problem():
    values = np.stack([np.ones(100), np.arange(100) % 2], axis=1)
    target = values[:, [1]] * 3
    for degrees in LADDER:
        predicted = cross_fitted(additive_basis(values, degrees), target, np.arange(100) // 20)
        assert predicted == pytest.approx(target, abs=1e-2)
