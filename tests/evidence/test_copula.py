"""Conditional means under a Gaussian copula, compared with those of normal variables."""

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from geh_explain.evidence.copula import GaussianCopula
from geh_explain.evidence.covariates import Covariates
from geh_explain.evidence.nuisance import Nuisance, choose_with_covariates
from geh_explain.statistics.slopes import project_off

COVARIANCE = np.array([[1.0, 0.5, 0.8], [0.5, 1.0, 0.3], [0.8, 0.3, 1.0]])


@pytest.fixture
def normal():
    """Return 4,000 rows of three normal variables, and their copula."""
    values = np.random.default_rng(0).normal(size=(4000, 3)) @ np.linalg.cholesky(COVARIANCE).T
    # The quantiles are those of the normal distribution.
    values = norm.ppf((rankdata(values, axis=0) - 0.5) / 4000)
    return values, GaussianCopula(values[:, :2], values, np.linalg.inv(COVARIANCE))


def test_means_of_a_product_are_products_of_regressions(normal):
    values, copula = normal
    u, v, w = values.T
    means = copula.conditional_means(0, 1, np.multiply)
    first = np.linalg.solve(COVARIANCE[1:, 1:], COVARIANCE[1:, 0])
    second = np.linalg.solve(COVARIANCE[np.ix_([0, 2], [0, 2])], COVARIANCE[[0, 2], 1])
    expected = [
        (first[0] * v + first[1] * w) * v,
        (second[0] * u + second[1] * w) * u,
        0.8 * w * 0.3 * w + 0.5 - 0.8 * 0.3,  # product of the means given w, plus the covariance given w
    ]
    inner = np.abs(values).max(axis=1) < 2
    for mean, formula in zip(means.T, expected, strict=True):
        assert np.abs(mean - formula)[inner].max() < 0.05
        assert np.corrcoef(mean[inner], formula[inner])[0, 1] > 0.999


def test_the_mean_without_a_unit_does_not_depend_on_it(normal):
    values, _ = normal
    precision = np.linalg.inv(COVARIANCE)
    changed = values.copy()
    changed[7, 0] += 1.5
    before, after = (
        GaussianCopula(values[:, :2], scores, precision).conditional_means(0, 1, np.multiply)[7]
        for scores in (values, changed)
    )
    np.testing.assert_allclose(after[[0, 2]], before[[0, 2]], atol=1e-12)
    assert abs(after[1] - before[1]) > 0.01


def test_a_centred_unit_is_what_others_do_not_predict(normal):
    values, copula = normal
    centred = copula.centred(0, 1, values[:, 0])
    expected = values[:, 0] - 0.8 * values[:, 2]
    assert np.corrcoef(centred, expected)[0, 1] > 0.999


def test_functions_of_a_strong_covariate_are_projected_off():
    """A covariate explains 95 % of the first unit: polynomials alone leave more of E[h | x without i] than of h."""
    generator = np.random.default_rng(1)
    w, v = generator.normal(size=(2, 1000))
    values = np.column_stack([w + 0.22 * generator.normal(size=1000), 0.6 * w + 0.8 * v])
    covariates = Covariates(w[:, None], w[:, None][:, :0])
    degrees, count = choose_with_covariates(1000, 2, 1)
    assert count == 1
    nuisance = Nuisance(values, degrees, np.ones(1000), covariates)

    def interaction(first, second):
        return np.tanh(2 * first) * np.tanh(2 * second)

    means = nuisance.conditional_means(0, 1, interaction)
    without_i = np.mean([interaction(w + 0.22 * z, values[:, 1]) for z in norm.ppf((np.arange(99) + 0.5) / 99)], axis=0)
    with_means, without_means = (
        np.sum(project_off(without_i, nuisance.common, nuisance.pair(0, 1, columns)) ** 2)
        for columns in (means, means[:, :0])
    )
    assert with_means < without_means / 3
