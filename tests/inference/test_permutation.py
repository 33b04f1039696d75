"""Permutation tests: exact p-values, the same null for any number of workers, and no permutation lost."""

import numpy as np
import pandas as pd
import pytest
import torch
from permutation_cases import ROWS, features, products, quiet, response

import geh_explain as geh
from geh_explain.inference import PermutationTest, permutation_test
from geh_explain.scores.ranking import PairRanking


def network(X, y, seed):
    net = geh.bnn.HybridNet(3, hidden=(8,), seed=seed)
    geh.bnn.fit(net, X, y, epochs=3, seed=seed, progress=False)
    return net


def test_p_values_count_the_permutations_that_are_at_least_as_strong():
    test = PermutationTest(PairRanking("GEH", [3.0, 2.0, 0.5], ["a", "b", "c"]), np.array([1.0, 2.0, 2.5, 0.7]))
    assert test.p_values.tolist() == [1 / 5, 3 / 5, 1.0]
    table = test.table()
    assert table["p_value"].tolist() == [1 / 5, 3 / 5, 1.0]
    assert table["unit_j"].tolist() == ["b", "c", "c"]
    assert repr(test) == "PermutationTest(target permuted 4 times; strongest: a × b, score 3, p = 0.2)"


def test_a_pair_has_a_p_value_of_its_own_and_one_against_the_strongest():
    """Scores of permutations are larger for the first pair by nature: the second is significant on its own only."""
    ranking = PairRanking("GEH", [3.0, 1.0, 0.5], ["a", "b", "c"])
    scores = np.array([[4.0, 0.5, 0.5], [2.0, 0.2, 0.1], [5.0, 0.1, 0.6]], dtype=np.float32)
    test = PermutationTest(ranking, scores.max(axis=1), pair_null=scores)
    assert test.pair_p_values.tolist() == [3 / 4, 1 / 4, 3 / 4]
    assert test.p_values.tolist() == [3 / 4, 1.0, 1.0]
    table = test.table()
    assert list(table.columns) == ["unit_i", "unit_j", "score", "p_value", "pair_p_value"]
    assert table["pair_p_value"].tolist() == [3 / 4, 1 / 4, 3 / 4]
    swapped = PermutationTest(PairRanking("GEH", [1.0, 3.0, 0.5], ["a", "b", "c"]), scores.max(1), pair_null=scores)
    assert swapped.table()["pair_p_value"].tolist() == [1 / 4, 1.0, 3 / 4]


def test_only_the_strongest_score_is_kept_of_very_many_pairs(monkeypatch):
    monkeypatch.setattr("geh_explain.inference.refits.MAX_KEPT_PAIRS", 2)
    monkeypatch.setattr("geh_explain.inference.permutation.MAX_KEPT_PAIRS", 2)
    test = quiet(permutations=3)
    assert np.array_equal(test.null, quiet(permutations=3).null)
    assert test.pair_null is None
    assert "pair_p_value" not in test.table()
    with pytest.raises(geh.GEHError, match="there are 3, more than 2; use p_values"):
        _ = test.pair_p_values


def test_a_score_above_the_threshold_has_a_p_value_of_at_most_one_minus_the_level():
    rng = np.random.default_rng(1)
    for p_value in (0.05, 0.1, 0.3):
        null = rng.normal(size=199)
        test = PermutationTest(PairRanking("GEH", rng.normal(1.5, 1, size=190), [str(i) for i in range(20)]), null)
        assert ((test.observed.scores > test.threshold(1 - p_value)) == (test.p_values <= p_value)).all()
        assert 0 < (test.p_values <= p_value).mean() < 1
    assert test.threshold() == test.threshold(level=0.95) == np.sort(null)[-10]
    assert PermutationTest(test.observed, np.ones(10)).threshold(0.95) == np.inf
    with pytest.raises(geh.GEHError, match=r"level=95 must lie between 0 and 1, for instance 0.95"):
        test.threshold(95)


def test_the_null_holds_all_scores_of_each_permuted_target():
    test = quiet(seed=3, null="y")
    for number, (strongest, scores) in enumerate(zip(test.null, test.pair_null, strict=True), start=1):
        order = np.random.default_rng([3, number]).permutation(ROWS)
        expected = products(features(), response()[order])
        assert strongest == expected.max()
        np.testing.assert_array_equal(scores, expected.astype(np.float32))
    assert test.observed.scores.tolist() == products(features(), response()).tolist()
    assert test.table()["p_value"][0] == 1 / 20
    assert test.table()["p_value"][2] > 0.05


def covariances(X, y):
    """Score a pair by the covariance of its product with the residuals of linear main effects."""
    design = np.column_stack([np.ones(len(X)), X])
    residuals = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return np.array([abs((X[:, i] * X[:, j] * residuals).mean()) for i, j in ((0, 1), (0, 2), (1, 2))])


def alarm_rate(null, effects, tests):
    """Return the share of tests in which some pair is below 0.1, for data without interactions."""
    rng = np.random.default_rng(5)
    alarms = []
    for seed in range(tests):
        X = rng.normal(size=(ROWS, 3))
        y = effects(X) + rng.normal(size=ROWS)
        test = permutation_test(covariances, X, y, 19, null=null, seed=seed, progress=False)
        alarms.append(test.p_values.min() <= 0.1)
    return np.mean(alarms)


def test_the_error_rate_is_what_the_level_promises():
    margin = 3 * np.sqrt(0.1 * 0.9 / 120)
    assert abs(alarm_rate("y", lambda X: 0.0, 120) - 0.1) < margin
    assert abs(alarm_rate("main", lambda X: 5 * X[:, 0] - 5 * X[:, 1], 120) - 0.1) < margin
    # Permuted targets have the variance of the main effects as noise, which the observed scores do not have.
    assert alarm_rate("y", lambda X: 5 * X[:, 0] - 5 * X[:, 1], 30) == 0


def test_interactions_beside_strong_main_effects_are_found_by_permuted_residuals_only():
    X = features()
    y = X[:, 0] * X[:, 1] + 10 * X[:, 2]
    by_null = {null: permutation_test(covariances, X, y, 39, null=null, progress=False) for null in ("main", "y")}
    assert by_null["main"].p_values[0] <= 0.05 < by_null["y"].p_values[0]
    assert by_null["main"].resampled == "residuals permuted"
    assert (by_null["main"].pair_p_values <= by_null["main"].p_values).all()


def test_a_method_that_takes_main_effects_for_interactions_is_corrected_by_main_effects_in_the_null():
    """Lasso on positive features replaces two linear effects by their product, which costs less penalty."""
    X = np.random.default_rng(0).normal(size=(300, 3))
    y = 3 * X[:, 0] + 3 * X[:, 1] + np.random.default_rng(1).normal(size=300)
    by_null = {
        null: permutation_test(geh.baselines.lasso, X, y, 19, null=null, progress=False).p_values[0]
        for null in ("main", "y")
    }
    assert by_null["y"] == 0.05
    assert by_null["main"] > 0.2


@pytest.mark.parametrize("null", ["main", "y"])
def test_a_series_keeps_its_index_and_not_its_order(null):
    frame, target = pd.DataFrame(features(), columns=list("abc")), pd.Series(response())
    seen = []

    def joined(X, y):
        assert (y.index == X.index).all()
        seen.append(y.to_numpy())
        return products(X, y)

    test = permutation_test(joined, frame, target, 2, null=null, progress=False)
    assert np.array_equal(test.null, quiet(permutations=2, null=null).null)
    assert not np.array_equal(seen[1], response())


@pytest.mark.parametrize("null", ["main", "y"])
@pytest.mark.parametrize("kind", [torch.as_tensor, np.asarray, list])
def test_targets_of_any_kind(kind, null):
    test = permutation_test(products, features(), kind(response()), 5, null=null, progress=False)
    assert np.array_equal(test.null, quiet(permutations=5, null=null).null)


def test_networks_are_explained_with_the_groups_of_the_observed_one():
    seen = []

    def keep(result):
        seen.append(result.labels)
        return {"significant": int(result.table(rule="interval")["significant"].sum())}

    X32, y32 = features().astype(np.float32), response().astype(np.float32)
    test = permutation_test(
        network, X32, y32, 3, explain={"draws": 5, "groups": 4}, keep=keep, measure="aeh", progress=False
    )
    own = geh.GEHExplainer(network(X32, y32, seed=0)).explain(X32, groups=4, draws=5, progress=False)
    assert all(np.array_equal(labels, own.labels) for labels in seen)
    np.testing.assert_allclose(test.observed.scores, own.aeh.pair_mean, rtol=1e-5)
    assert [set(kept) for kept in test.kept] == 3 * [{"significant"}]


def test_scores_computed_elsewhere_can_be_tested():
    test = quiet(observed=np.array([0.9, 0.8, 0.0]))
    assert test.observed.scores.tolist() == [0.9, 0.8, 0.0]
    matrix = np.array([[0, 0.9, 0.8], [0.9, 0, 0.0], [0.8, 0.0, 0]])
    assert np.array_equal(quiet(observed=matrix).p_values, test.p_values)


def test_a_result_brings_its_groups():
    X32, y32 = features().astype(np.float32), response().astype(np.float32)
    net = network(X32, y32, seed=0)
    results = [geh.GEHExplainer(net).explain(some, groups=3, draws=3, progress=False) for some in (X32, X32[:40])]
    seen = []

    def keep(result):
        seen.append(result)
        return {}

    for result in results:
        permutation_test(network, X32, y32, 1, observed=result, explain={"draws": 3}, keep=keep, progress=False)
    assert np.array_equal(seen[0].labels, results[0].labels)
    assert len(seen[1].group_names) == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fit": 3}, "fit=3 is not callable"),
        ({"keep": 3}, "keep=3 is not callable"),
        ({"measure": "gh"}, "measure='gh' is unknown"),
        ({"permutations": 0}, "permutations=0 must be at least 1"),
        ({"fit": lambda X, y: "scores"}, "fit: it returned a str"),
        ({"fit": lambda X, y: np.zeros(4)}, r"fit: it returned an array of shape \(4,\)"),
        ({"fit": lambda X, y: np.full(3, np.nan)}, "fit: some of the scores it returned are NaN"),
        ({"fit": lambda X, y: 1 / 0}, "fit: it failed with y as it is: ZeroDivisionError"),
        ({"fit": lambda X, y: np.ones(3 if np.array_equal(y, response()) else 6)}, "it returned 6 scores"),
        ({"observed": np.ones(4)}, "of shape"),
        ({"null": "target"}, "null='target' is unknown; use 'main' or 'y'"),
    ],
)
def test_wrong_arguments_are_refused(options, words):
    with pytest.raises(geh.GEHError, match=words):
        quiet(**options)


def test_wrong_data_are_refused():
    with pytest.raises(geh.errors.GEHValueError, match="X has 60 rows and y 59"):
        permutation_test(products, features(), response()[1:], progress=False)
    with pytest.raises(geh.errors.GEHTypeError, match="y is a float"):
        permutation_test(products, features(), 1.0, progress=False)
    with pytest.raises(geh.errors.GEHRuntimeError, match="failed for all permutations"):
        permutation_test(
            lambda X, y: products(X, y) if np.array_equal(y, response()) else 1 / 0,
            features(),
            response(),
            3,
            progress=False,
        )


def test_the_null_is_drawn_with_the_strongest_pairs():
    names = ["a$b$", "a name that goes on and on and on and on", "c"]
    near = PermutationTest(PairRanking("GEH", [3.0, 2.0, 0.5], names), np.linspace(1, 2.5, 40))
    far = PermutationTest(PairRanking("GEH", [300.0, 2.0, 0.5], names), np.linspace(1, 2.5, 40))
    ax = near.plot(pairs=2)
    assert [line.get_xdata()[0] for line in ax.lines] == [3.0, 2.0]
    assert sum(bar.get_height() for bar in ax.patches) == 40
    assert ax.texts[0].get_text().startswith("a$b$ × …")
    assert (ax.get_xscale(), far.plot().get_xscale()) == ("linear", "log")
    ax.figure.canvas.draw()
    assert near.plot(ax=ax) is ax
    constant = PermutationTest(PairRanking("GEH", [300.0, 2.0, 0.5], names), np.ones(5))
    assert sum(bar.get_height() for bar in constant.plot().patches) == 5
