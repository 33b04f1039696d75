"""Targets without interactions: of the same kind as the original, the same for equal numbers, and what they promise."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier

import geh_explain as geh
from geh_explain.inference.null_targets import class_codes, describe_main, holds_classes, make_null

N = 120


def inputs(n=N):
    return np.random.default_rng(0).normal(size=(n, 3))


def numbers(n=N):
    X = inputs(n)
    return 3 * X[:, 0] + X[:, 1] * X[:, 2] + 1


def classes():
    return (numbers() > 1).astype(int)


def test_permuted_residuals_are_fitted_values_plus_residuals_in_another_order():
    X, y = inputs(), numbers()
    null = make_null("main", LinearRegression(), X, y, seed=4)
    fitted = LinearRegression().fit(X, y).predict(X)
    order = np.random.default_rng([4, 7]).permutation(N)
    np.testing.assert_allclose(null(7), fitted + (y - fitted)[order])
    assert null.words == "residuals permuted"
    # The estimator of the user is not fitted.
    estimator = LinearRegression()
    make_null("main", estimator, X, y, seed=4)
    assert not hasattr(estimator, "coef_")


def test_main_effects_stay_and_interactions_go():
    X, y = inputs(600), numbers(600)
    null = make_null("main", None, X, y, seed=0)
    design = np.column_stack([X[:, 0], X[:, 1] * X[:, 2], np.ones(600)])
    effects = [np.linalg.lstsq(design, null(number), rcond=None)[0] for number in range(1, 60)]
    main, interaction, _ = np.mean(effects, axis=0)
    assert abs(main - 3) < 0.1
    # Spurious main effects of x1 and x2 have a part of the product in these rows; in the target it is 1.
    assert abs(interaction) < 0.15


@pytest.mark.parametrize("null", ["main", "y"])
@pytest.mark.parametrize(
    "kind",
    [
        lambda y: y,
        lambda y: y.astype(np.float32)[:, None],
        lambda y: (100 * y).astype(np.int16),
        lambda y: torch.as_tensor(y, dtype=torch.float32),
        lambda y: torch.as_tensor(y, dtype=torch.float16)[:, None],
        lambda y: torch.as_tensor(100 * y).long(),
        lambda y: pd.Series(y, index=np.arange(N)[::-1], name="price", dtype="float32"),
        lambda y: pd.Series(100 * y).round().astype("Int64"),
        lambda y: pd.DataFrame({"price": y, "size": -y}),
        lambda y: np.column_stack([y, y**2]),
        lambda y: y.tolist(),
        lambda y: torch.as_tensor(y > 0),
        lambda y: np.where(y > 0, "yes", "no"),
        lambda y: pd.Series(np.where(y > 0, "yes", "no"), dtype="category"),
        lambda y: torch.as_tensor(y > 0).float()[:, None],
        lambda y: np.digitize(y, [0, 2]).tolist(),
    ],
    ids=[
        *("array", "float32 column", "int16", "tensor", "float16 column", "long tensor", "series", "nullable", "frame"),
        *("two columns", "list", "bool tensor", "words", "categories", "float classes", "list of classes"),
    ],
)
def test_targets_keep_their_kind(kind, null):
    y = kind(numbers())
    new = make_null(null, None, inputs(), y, seed=0)
    first, again, other = new(1), new(1), new(2)
    assert type(first) is type(y)
    assert np.shape(first) == np.shape(y)
    assert str(getattr(first, "dtype", "")) == str(getattr(y, "dtype", ""))
    if hasattr(y, "iloc"):
        assert (first.index == y.index).all()
        assert str(getattr(first, "name", "")) == str(getattr(y, "name", ""))
    assert np.array_equal(np.asarray(first), np.asarray(again))
    assert not np.array_equal(np.asarray(first), np.asarray(other))


def test_two_targets_keep_their_residuals_together():
    X, y = inputs(), np.column_stack([numbers(), 2 * numbers()])
    null = make_null("main", LinearRegression(), X, y, seed=0)
    np.testing.assert_allclose(null(1)[:, 1], 2 * null(1)[:, 0])


def test_classes_are_drawn_with_the_probabilities_of_the_main_effects():
    X, y = inputs(), classes()
    null = make_null("main", LogisticRegression(), X, y, seed=0)
    assert null.words == "classes drawn"
    expected = LogisticRegression().fit(X, y).predict_proba(X)[:, 1]
    shares = np.mean([null(number) for number in range(1, 401)], axis=0)
    # Six standard errors of a share of 400 draws.
    assert (np.abs(shares - expected) < 6 * np.sqrt(expected * (1 - expected) / 400) + 1e-3).all()


def test_drawn_words_are_those_of_the_target():
    y = np.array(["low", "middle", "top"])[np.digitize(numbers(), [0, 2])]
    new = make_null("main", None, inputs(), y, seed=0)(1)
    assert set(new) == {"low", "middle", "top"}
    # Main effects are strong, so most classes stay.
    assert 0.5 < (new == y).mean() < 1


def test_every_draw_has_every_class():
    y = np.zeros(N, dtype=int)
    y[:2] = 1
    null = make_null("main", None, inputs(), y, seed=0)
    assert all(len(np.unique(null(number))) == 2 for number in range(1, 50))


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (np.arange(100) % 20, True),
        (np.arange(100) % 21, False),
        (np.arange(100) % 2 * 1.0, True),
        (np.arange(100) % 3 * 1.0, False),
        (torch.arange(100)[:, None] % 4, True),
        (["a", "b"], True),
        (pd.Series([0.5, 1.5, 2.5], dtype="category"), True),
        (pd.Series([1.5, None, 2.5, 3.5], dtype="Float64").fillna(0.0), False),
        (np.array([True, False]), True),
        (np.zeros((4, 2)), False),
    ],
)
def test_what_is_a_class(y, expected):
    assert holds_classes(y) is expected


def test_codes_of_classes():
    codes, examples = class_codes(torch.tensor([[7], [3], [7], [5]]))
    assert codes.tolist() == [2, 0, 2, 1]
    assert examples.tolist() == [1, 3, 0]


@pytest.mark.parametrize(
    ("null", "main", "y", "words"),
    [
        ("y", LinearRegression(), numbers, "is not used with null='y'"),
        ("main", "lasso", numbers, r"main='lasso' has no fit\(\) and predict\(\)"),
        ("main", None, lambda: np.full(N, 2.0), "y has a single value in all rows"),
        ("main", None, lambda: np.where(numbers() > 0, np.nan, numbers()), "y has missing or infinite values"),
        ("main", None, lambda: np.eye(2)[classes()], "give classes as one column of labels"),
        (
            "main",
            RidgeClassifier(),
            lambda: np.where(classes() > 0, "yes", "no"),
            r"a classifier with predict_proba\(\)",
        ),
        ("main", None, lambda: np.arange(N).astype("datetime64[D]"), "give numbers or classes"),
        ("main", LinearRegression(n_jobs="many"), numbers, "the main-effect model failed with"),
    ],
)
def test_what_cannot_be_used_is_refused(null, main, y, words):
    with pytest.raises(geh.GEHError, match=words):
        make_null(null, main, inputs(), y(), 0)


def test_the_settings_of_a_main_effect_model_identify_it():
    assert describe_main(LogisticRegression(C=2.0)) == describe_main(LogisticRegression(C=2.0))
    assert describe_main(LogisticRegression(C=2.0)) != describe_main(LogisticRegression(C=3.0))
    assert describe_main(None) == ""
