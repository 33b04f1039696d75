"""Additive models: main effects of any shape are fitted, interactions are left, and noise keeps its variance."""

import numpy as np
import pandas as pd
import pytest
import torch

import geh_explain as geh
from geh_explain.inference.main_effects import additive_basis, additive_probabilities, additive_residuals, fit_blocks

N = 300
SHAPES = {
    "smooth": lambda X: 2 * X[:, 0] ** 2 + 3 * np.tanh(2 * X[:, 1]) + 2 * X[:, 2],
    "steps": lambda X: 4.0 * (X[:, 0] > 0.3) - 3.0 * (X[:, 1] < -0.5),
    "skewed": lambda X: 3 * np.log(X[:, 0]) + 2 * np.sqrt(X[:, 1]),
    "few values": lambda X: np.array([0, 3, -2, 1, 4.0])[X[:, 0].astype(int)] + 2 * X[:, 1],
    "none": lambda X: np.zeros(len(X)),
}


def sample(shape, seed, n=N, features=4):
    """Return features, the sum of their main effects, and noise of variance 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, features))
    if shape == "skewed":
        X = np.exp(1.2 * X)
    if shape == "few values":
        X = np.digitize(X, [-1, -0.3, 0.4, 1]).astype(float)
    return X, SHAPES[shape](X), rng.normal(size=n)


@pytest.mark.parametrize(
    ("shape", "largest_error"), [("smooth", 0.2), ("steps", 0.45), ("skewed", 0.2), ("few values", 0.1), ("none", 0.05)]
)
def test_main_effects_of_any_shape_are_fitted_and_residuals_have_the_variance_of_the_noise(shape, largest_error):
    errors, variances = [], []
    for seed in range(4):
        X, effects, noise = sample(shape, seed)
        fitted, residuals = additive_residuals(X, (effects + noise)[:, None])
        errors.append(((fitted[:, 0] - effects) ** 2).mean())
        variances.append(residuals.var() / noise.var())
    assert np.mean(errors) < largest_error
    # Fitted steps are at quantiles and not at the true place, which leaves about a quarter more.
    assert 0.93 < np.mean(variances) < (1.3 if shape == "steps" else 1.07)


def test_features_without_effect_cost_no_degrees_of_freedom():
    X, effects, noise = sample("smooth", 0, features=20)
    fit = fit_blocks(additive_basis(X), effects + noise)
    assert fit.freedom < 60
    assert (fit.variances[6:] == 0).mean() > 0.6
    assert ((fit.fitted - effects) ** 2).mean() < 0.3


def test_the_fit_is_the_ridge_regression_with_the_estimated_variances():
    X, effects, noise = sample("smooth", 1, n=80, features=3)
    y, blocks = effects + noise, additive_basis(X)
    fit = fit_blocks(blocks, y)
    kernel = sum(t * Z @ Z.T for t, Z in zip(fit.variances, blocks, strict=True))
    # Any noise variance gives another fit; the one of the model is where both agree.
    centred = y - y.mean()
    gaps = [
        np.abs(kernel @ np.linalg.solve(kernel + s * np.eye(80), centred) - (fit.fitted - y.mean())).max()
        for s in np.geomspace(0.1, 10, 2000)
    ]
    assert min(gaps) < 0.01


def test_interactions_are_left_in_the_residuals():
    X, effects, _ = sample("smooth", 2)
    _, residuals = additive_residuals(X, (effects + X[:, 0] * X[:, 3])[:, None])
    assert np.corrcoef(residuals[:, 0], X[:, 0] * X[:, 3])[0, 1] > 0.95


def test_a_noise_free_sum_of_main_effects_leaves_nothing():
    X, _, _ = sample("smooth", 3)
    _, residuals = additive_residuals(X, X[:, :1] - 2 * X[:, 1:2])
    assert np.abs(residuals).max() < 0.01


def test_a_constant_target_and_constant_features_have_no_effects():
    X = np.column_stack([np.ones(50), np.arange(50.0)])
    assert len(additive_basis(X)) == 2
    fitted, residuals = additive_residuals(X, np.full((50, 1), 3.0))
    assert (fitted == 3).all()
    assert (residuals == 0).all()
    assert additive_basis(X[:, :1]) == []


def test_columns_of_words_have_an_effect_per_word():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"town": rng.choice(["Aachen", "Bonn", "Köln"], N), "x": rng.normal(size=N)})
    effects = frame["town"].map({"Aachen": 0.0, "Bonn": 4.0, "Köln": -1.0}).to_numpy()
    fitted, _ = additive_residuals(frame, (effects + 0.1 * rng.normal(size=N))[:, None])
    assert np.abs(fitted[:, 0] - effects).max() < 0.1


def test_inputs_of_all_kinds_have_the_same_features():
    X = sample("smooth", 4)[0]
    y = X[:, :1] ** 2
    expected, _ = additive_residuals(X, y)
    for same in (torch.as_tensor(X), pd.DataFrame(X), (X[:, :1], X[:, 1:]), X.reshape(N, 2, 2)):
        np.testing.assert_array_equal(additive_residuals(same, y)[0], expected)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_of_classes_are_those_of_additive_log_odds(n_classes):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1000, 3))
    log_odds = np.column_stack([np.zeros(1000), 2 * X[:, 0], np.sin(2 * X[:, 1])])[:, :n_classes]
    truth = np.exp(log_odds) / np.exp(log_odds).sum(axis=1, keepdims=True)
    codes = (rng.random(1000)[:, None] > truth.cumsum(axis=1)[:, :-1]).sum(axis=1)
    fitted = additive_probabilities(X, codes)
    np.testing.assert_allclose(fitted.sum(axis=1), 1)
    assert np.abs(fitted - truth).mean() < 0.05


def test_classes_that_do_not_depend_on_the_inputs_have_their_shares():
    X = np.random.default_rng(2).normal(size=(400, 2))
    codes = np.random.default_rng(3).permutation(np.arange(400) % 4 // 3)
    np.testing.assert_allclose(additive_probabilities(X, codes)[:, 1], 0.25, atol=0.1)


def test_missing_values_and_too_many_features_are_refused():
    frame = pd.DataFrame({"a": [1.0, np.nan, 2.0], "b": [1.0, 2.0, 3.0]})
    with pytest.raises(geh.GEHError, match=r"X in column 'a' has missing or infinite values; .* null='y'"):
        additive_basis(frame)
    wide = np.random.default_rng(0).normal(size=(3, 3001))
    with pytest.raises(geh.GEHError, match="X has 3001 features; the main effects of at most 3000"):
        additive_basis(wide)


def test_many_features_have_fewer_columns_each():
    rng = np.random.default_rng(0)
    few, many, very_many = (additive_basis(rng.normal(size=(500, count))) for count in (10, 100, 300))
    assert [len(blocks) for blocks in (few, many, very_many)] == [20, 200, 300]
    assert sum(block.shape[1] for block in few) == 10 * (7 + 40)
    assert sum(block.shape[1] for block in many) == 100 * (7 + 8)
    assert sum(block.shape[1] for block in very_many) == 300
