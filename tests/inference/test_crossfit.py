"""Cross-fitted tests: every row is held out once, folds are combined by the Cauchy combination, and all are needed."""

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

import geh_explain as geh
from geh_explain.explainer import GEHExplainer
from geh_explain.inference import CrossfitTest, cauchy_combination, crossfit_test
from geh_explain.scores.evidence import Evidence

ROWS = 100
PAIRS = ((0, 1), (0, 2), (1, 2))


def features():
    return np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)


def response():
    X = features()
    return X[:, 0] * X[:, 1] + 0.5 * np.random.default_rng(1).normal(size=ROWS).astype(np.float32)


class Products(torch.nn.Module):
    """Main effects and products of all pairs, with fixed coefficients."""

    def __init__(self, coefficients):
        super().__init__()
        self.coefficients = torch.nn.Parameter(torch.as_tensor(coefficients))

    def forward(self, x):
        pairs = torch.stack([x[:, i] * x[:, j] for i, j in PAIRS], dim=1)
        return torch.cat([torch.ones_like(x[:, :1]), x, pairs], dim=1) @ self.coefficients


def design(X):
    X = np.asarray(X, dtype=float)
    return np.column_stack([np.ones(len(X)), X, *(X[:, i] * X[:, j] for i, j in PAIRS)])


def regression(X, y):
    """Fit main effects and products by least squares."""
    return Products(np.linalg.lstsq(design(X), np.asarray(y, dtype=float), rcond=None)[0])


def failing(X, y, seed):
    if len(X) == ROWS - 19:
        raise ArithmeticError("no fit")
    return regression(X, y)


def seen_rows(X, y, seed):
    model = regression(X, y)
    model.rows, model.seed = np.asarray(y), seed
    return model


def product_test(explainer, X, y, target=None, *, seed=0, progress=True, factor=1.0):
    """Stand-in for the held-out test: t-tests of the products in a regression on the held-out rows."""
    Z, y = design(X), np.asarray(y, dtype=float)
    inverse = np.linalg.inv(Z.T @ Z)
    coefficients = inverse @ Z.T @ y
    residuals = y - Z @ coefficients
    errors = np.sqrt(np.diag(inverse) * (residuals @ residuals) / (len(y) - Z.shape[1]))
    learned = explainer.model.coefficients.detach().numpy()[4:]
    slope, slope_se = coefficients[4:] / learned, errors[4:] / np.abs(learned)
    names = tuple(getattr(X, "columns", ["x0", "x1", "x2"]))
    return Evidence(factor * slope, slope_se, norm.sf(slope / slope_se), len(y), names=names)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr(GEHExplainer, "test_pairs", product_test, raising=False)
    monkeypatch.setattr("geh_explain.inference.crossfit.rows_needed", lambda units: 0)


def quiet(fit=regression, X=None, y=None, **options):
    options = {"progress": False, "workers": 1, **options}
    return crossfit_test(fit, features() if X is None else X, response() if y is None else y, **options)


def test_each_fold_is_tested_by_a_network_that_was_fitted_to_the_others():
    X, y = features(), response()
    folds = np.arange(ROWS) % 4
    test = quiet(folds=folds)
    for fold, evidence in enumerate(test.folds):
        model = regression(X[folds != fold], y[folds != fold])
        expected = product_test(GEHExplainer(model), X[folds == fold], y[folds == fold])
        np.testing.assert_array_equal(evidence.p_value, expected.p_value)
        np.testing.assert_array_equal(evidence.slope, expected.slope)
        assert evidence.n_rows == 25


def test_folds_are_combined():
    test = quiet()
    p, slope, se = (np.stack([getattr(fold, key) for fold in test.folds]) for key in ("p_value", "slope", "slope_se"))
    assert p.shape == (5, 3)
    np.testing.assert_array_equal(test.p_value, cauchy_combination(p))
    np.testing.assert_allclose(test.slope, slope.mean(axis=0))
    np.testing.assert_allclose(test.slope_se, np.sqrt((se**2).sum(axis=0)) / 5)
    assert test.significant.tolist() == [True, False, False]
    assert test.evidence.n_rows == ROWS
    assert test.evidence.link == "identity"
    np.testing.assert_array_equal(test.evidence.p_value, test.p_value)


def test_every_row_is_held_out_once_in_folds_of_equal_size(monkeypatch):
    held = []

    def record(explainer, X, y, target=None, **options):
        assert not np.isin(y, explainer.model.rows).any()
        held.append((np.asarray(y), explainer.model.seed, target, options))
        return product_test(explainer, X, y)

    monkeypatch.setattr(GEHExplainer, "test_pairs", record)
    quiet(seen_rows, folds=3, target=0, seed=4, test={"factor": 2.0})
    assert sorted(len(y) for y, *_ in held) == [33, 33, 34]
    np.testing.assert_array_equal(np.sort(np.concatenate([y for y, *_ in held])), np.sort(response()))
    assert len({seed for _, seed, *_ in held}) == 3
    assert [rest for *_, rest in held] == 3 * [{"seed": 4, "progress": False, "factor": 2.0}]
    assert [target for _, _, target, _ in held] == [0, 0, 0]


def test_the_same_result_whatever_the_workers_and_another_for_another_seed():
    one, two = quiet(workers=1), quiet(workers=1)
    assert np.array_equal(one.p_value, two.p_value)
    # Threads see the stand-in; processes would import the package anew.
    with joblib.parallel_config(backend="threading"):
        assert np.array_equal(quiet(workers=2).p_value, one.p_value)
    assert not np.array_equal(quiet(seed=1).p_value, one.p_value)


@pytest.mark.parametrize(
    ("inputs", "target"),
    [
        (torch.as_tensor, torch.as_tensor),
        (lambda X: pd.DataFrame(X, index=np.arange(ROWS) + 5), lambda y: pd.Series(y, index=np.arange(ROWS) + 5)),
        (np.asarray, lambda y: y.tolist()),
    ],
    ids=["tensors", "frames", "list"],
)
def test_data_of_any_kind(inputs, target):
    test = quiet(X=inputs(features()), y=target(response()))
    np.testing.assert_allclose(test.p_value, quiet().p_value, rtol=1e-6)


def test_folds_of_classes_have_equal_shares_of_each():
    y = np.repeat([0, 1], [85, 15])
    shares = []

    def labels(X, y):
        shares.append(np.bincount(y).tolist())
        return regression(X, y)

    quiet(labels, y=y)
    assert shares == 5 * [[68, 12]]


def test_a_class_that_no_network_can_learn_is_an_error():
    y = np.zeros(ROWS, dtype=int)
    y[3] = 1
    with pytest.raises(geh.GEHError, match=r"y: all 1 row\(s\) of a class, the 2. in sorted order, are in fold \d"):
        quiet(y=y)
    y[:50] = 1
    with pytest.raises(geh.GEHError, match=r"all 50 .* are in fold 1"):
        quiet(y=y, folds=np.repeat(["a", "b"], 50))


def test_a_failed_fold_is_an_error_and_the_others_are_kept(tmp_path):
    folds = np.repeat([0, 1, 2, 3], [27, 27, 19, 27])
    with pytest.raises(geh.GEHError, match=r"fold 3 of 4 failed twice \(ArithmeticError: no fit\)"):
        quiet(failing, folds=folds, checkpoint=tmp_path)
    lines = (tmp_path / "folds.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 3


def test_a_checkpoint_resumes_and_is_refused_by_another_test(tmp_path):
    calls = []

    def counted(X, y):
        calls.append(len(X))
        return regression(X, y)

    first = quiet(counted, checkpoint=tmp_path)
    path = tmp_path / "folds.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:4]) + "\n" + lines[4][:30])
    again = quiet(counted, checkpoint=tmp_path)
    assert len(calls) == 5 + 2
    assert np.array_equal(again.p_value, first.p_value)
    assert np.array_equal(again.slope_se, first.slope_se)
    with pytest.raises(geh.GEHError, match="belongs to another test: folds "):
        quiet(counted, checkpoint=tmp_path, folds=4)
    with pytest.raises(geh.GEHError, match=r"another test: test \( there, factor=2.0 here\)"):
        quiet(counted, checkpoint=tmp_path, test={"factor": 2.0})


def test_pairs_that_some_networks_do_not_have():
    """NaN slopes are left out of the mean; a pair that no fold tested has no p-value and is never significant."""
    nan = np.nan
    folds = [
        Evidence(np.array([1.0, nan, nan]), np.array([0.1, nan, nan]), np.array([1e-9, 1.0, nan]), 10),
        Evidence(np.array([0.5, 0.4, nan]), np.array([0.1, 0.2, nan]), np.array([1e-8, 0.02, nan]), 12, "logit"),
    ]
    test = CrossfitTest(folds, ["a", "b", "c"])
    np.testing.assert_allclose(test.slope, [0.75, 0.4, nan])
    np.testing.assert_allclose(test.slope_se, [np.sqrt(0.02) / 2, 0.2, nan])
    np.testing.assert_array_equal(test.significant, [True, False, False])
    assert np.isnan(test.p_value[2])
    assert test.evidence.tested.tolist() == [True, True, False]
    assert test.evidence.n_rows == 22


def test_the_table_and_the_words():
    test = quiet(X=pd.DataFrame(features(), columns=["age", "bmi", "sex"]))
    table = test.table()
    assert list(table.columns) == ["unit_i", "unit_j", "slope", "slope_se", "p_value", "significant"]
    assert table.iloc[0][["unit_i", "unit_j", "significant"]].tolist() == ["age", "bmi", True]
    assert table["p_value"].is_monotonic_increasing
    assert test.table(fdr=0.9999)["significant"].all()
    assert repr(test).startswith("CrossfitTest(5 folds; 1 of 3 pairs significant at FDR 0.05; first: age × bmi, slope ")
    assert quiet(fdr=0.9999).significant.all()


def test_the_words_count_tested_pairs_and_have_no_missing_numbers():
    nan = np.nan
    some = Evidence([0.9, nan, nan], [0.1, nan, nan], [1e-6, 1, nan], 50)
    none = Evidence([nan] * 3, [nan] * 3, [nan] * 3, 50)
    words = repr(CrossfitTest([some, some], ["a", "b", "c"]))
    assert (
        words
        == "CrossfitTest(2 folds; 1 of 2 tested pairs significant at FDR 0.05; first: a × b, slope 0.90, p = 1e-06)"
    )
    words = repr(CrossfitTest([none, none], ["a", "b", "c"]))
    assert words == "CrossfitTest(2 folds; 0 of 0 tested pairs significant at FDR 0.05)"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fit": 3}, "fit=3 is not callable"),
        ({"folds": 1}, "folds=1 must be at least 2"),
        ({"folds": 101}, "folds=101 is more than the 100 rows"),
        ({"folds": np.zeros(ROWS)}, "all rows are in fold"),
        ({"folds": np.arange(5)}, r"folds has shape \(5,\); give a number, or the fold of each of 100 rows"),
        ({"fdr": 5}, "fdr=5 must lie between 0 and 1"),
        ({"explainer": {"layer": "fc1"}}, "hidden units of different networks do not correspond"),
        ({"y": np.zeros(99)}, "X has 100 rows and y 99"),
        ({"fit": lambda X, y: "network"}, r"fold 1 of 5 failed twice \(GEHTypeError"),
    ],
)
def test_wrong_arguments_are_refused(options, words):
    with pytest.raises(geh.GEHError, match=words):
        quiet(**options)


def test_folds_must_not_be_pooled_as_if_they_were_independent():
    """Networks of different folds share training rows: their z-scores correlate where nothing interacts.

    The folds' networks are products with a fitted coefficient, and labels are noise, so that the true level is known.
    """
    repetitions, folds, rows = 3000, 5, 100
    generator = np.random.default_rng(0)
    x = generator.normal(size=(repetitions, folds, rows))  # the product of two features
    noise = generator.normal(size=x.shape)
    moments = (x * noise).sum(axis=2)
    coefficients = moments.sum(axis=1, keepdims=True) - moments  # of a fit to all folds but one, up to a factor > 0
    z = np.sign(coefficients) * moments / np.sqrt((x**2).sum(axis=2))
    pooled = norm.sf(z.sum(axis=1) / np.sqrt(folds))
    combined = cauchy_combination(norm.sf(z).T)
    assert np.mean(pooled < 0.05) > 0.065
    assert 0.035 < np.mean(combined < 0.05) < 0.062


def test_the_held_out_test_of_each_fold_is_that_of_the_explainer():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(900, 3)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + generator.normal(size=900)
    point = {"posterior": geh.posterior.PointEstimate()}
    test = crossfit_test(regression, X, y, folds=3, explainer=point, seed=1, progress=False)
    assert test.p_value[0] < 1e-6
    fold_of = np.empty(900, dtype=int)
    fold_of[np.random.default_rng(1).permutation(900)] = np.arange(900) % 3
    network = regression(X[fold_of != 0], y[fold_of != 0])
    explainer = GEHExplainer(network, posterior=geh.posterior.PointEstimate())
    first = explainer.test_pairs(X[fold_of == 0], y[fold_of == 0], seed=1, progress=False)
    assert test.folds[0].p_value == pytest.approx(first.p_value)
