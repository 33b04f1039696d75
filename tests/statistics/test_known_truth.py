"""Error rates, ROC curves, coverage, and the level of the sign rule."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score
from synthetic_results import result_of, without_draws

import geh_explain as geh
from geh_explain import inference
from geh_explain.statistics.reliability import split_half_reliability


def test_the_area_is_that_of_scikit_learn_also_with_ties():
    rng = np.random.default_rng(0)
    for digits in (3, 1, 0):
        scores, truth = rng.normal(size=60).round(digits), rng.random(60) < 0.3
        assert inference.auc(scores + truth, truth) == pytest.approx(roc_auc_score(truth, scores + truth))


def test_rates_and_coverage_count_pairs():
    truth = np.array([True, True, True, False, False])
    assert inference.error_rates(np.array([1, 0, 1, 1, 0]), truth) == (0.5, pytest.approx(1 / 3))
    assert np.isnan(inference.error_rates(np.array([True]), np.array([True]))[0])
    assert inference.coverage(np.zeros(4), np.ones(4), np.array([0, 0.5, 1, 2.0])) == 0.75


def drawn_from(truth, spread, draws, rng, correlation=0.0):
    """Draws (K, M, P) of a posterior that is calibrated: its centre is as far from the truth as its draws spread."""
    groups, pairs = truth.shape
    shared = np.sqrt(correlation)

    def noise(*shape):
        common = rng.normal(size=(*shape[:-2], 1, pairs))
        return spread * (shared * common + np.sqrt(1 - correlation) * rng.normal(size=shape))

    return truth + noise(groups, pairs) + noise(draws, groups, pairs)


@pytest.mark.parametrize("correlation", [0.0, 0.6])
@pytest.mark.parametrize("draws", [8, 100])
def test_the_sign_rule_keeps_its_level_under_a_calibrated_posterior(draws, correlation):
    rng = np.random.default_rng(1)
    samples = drawn_from(np.zeros((11, 4000)), 1.0, draws, rng, correlation)
    p = inference.sign_p_value(samples.mean(0), samples.std(0, ddof=1), draws)
    false_positives = int((p < 0.05).sum())
    # At most what 4,000 tests of level 0.05 give in 99.9 of 100 cases.
    assert false_positives <= stats.binom.ppf(0.999, 4000, 0.05)
    assert correlation > 0 or false_positives > 0.03 * 4000


def test_the_interval_of_an_absolute_value_does_not_keep_its_level():
    rng = np.random.default_rng(2)
    samples = drawn_from(np.zeros((11, 500)), 1.0, 100, rng)
    scores = np.abs(samples).mean(axis=1)
    low, _ = inference.gaussian_interval(scores.mean(0), scores.std(0, ddof=1), 0.95)
    assert (low > 0).mean() > 0.9


def test_the_sign_rule_finds_interactions_that_cancel_between_groups():
    truth = np.zeros((4, 200))
    truth[:, :100] = np.array([5, -5, 5, -5])[:, None]
    samples = drawn_from(truth, 1.0, 50, np.random.default_rng(3))
    p = inference.sign_p_value(samples.mean(0), samples.std(0, ddof=1), 50)
    assert (p[:100] < 0.05).mean() > 0.99
    assert (p[100:] < 0.05).mean() < 0.12


def test_simes_rule_is_the_smallest_of_the_scaled_sorted_p_values():
    ratios = np.array([[0.5], [2.2], [1.9]])
    each = np.sort(2 * stats.t.sf(ratios[:, 0] / (1 + 1 / 30) ** 0.5, 29))
    expected = min(3 * each[0], 3 * each[1] / 2, each[2])
    assert inference.sign_p_value(ratios, np.ones((3, 1)), 30) == pytest.approx([expected])
    assert inference.sign_p_value(np.zeros((2, 1)), np.zeros((2, 1)), 30).tolist() == [1.0]


def result(draws, moments=False):
    rng = np.random.default_rng(4)
    signed = np.zeros((2, 3)) + rng.normal(size=(draws, 2, 3))
    signed[:, :, 0] += 6
    kept = result_of(signed, "abc", np.repeat([0, 1], 5))
    return without_draws(kept) if moments else kept


@pytest.mark.parametrize("moments", [False, True], ids=["draws", "moments"])
def test_the_table_decides_by_either_rule(moments):
    found = result(60, moments)
    sign = found.table(rule="sign")
    assert sign["significant"].tolist() == [True, False, False]
    assert found.table(rule="sign", fdr=0.05)["significant"].tolist() == [True, False, False]
    with pytest.raises(geh.GEHError, match="rule='signs'"):
        found.table(rule="signs")


def test_one_draw_has_no_sign_rule():
    with pytest.raises(geh.GEHError, match="at least 2 posterior draws"):
        result(1).sign_p_values()


def test_standard_errors_say_how_well_draws_settle_a_mean():
    rng = np.random.default_rng(5)
    means, stds = [], []
    for _ in range(400):
        draws = rng.normal(3, 2, (50, 1, 1))
        means.append(draws.mean())
        stds.append(draws.std(ddof=1))
    table = result_of(draws, "ab", np.zeros(4, int)).monte_carlo("eah")
    assert table["mean_error"][0] == pytest.approx(table["std"][0] / 50**0.5)
    assert np.std(means) == pytest.approx(2 / 50**0.5, rel=0.15)
    assert np.std(stds) == pytest.approx(2 / 98**0.5, rel=0.15)


def test_reliability_is_the_correlation_with_as_many_other_draws():
    rng = np.random.default_rng(6)
    truth = rng.normal(size=300)
    first, second = (truth + 3 * rng.normal(size=(40, 300)) for _ in range(2))
    expected = stats.spearmanr(first.mean(0), second.mean(0)).statistic
    assert split_half_reliability(first) == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: inference.auc(np.ones(3), np.ones(3, bool)), "some pairs that interact and some that do not"),
        (lambda: inference.roc(np.ones(3), np.ones(2, bool)), "one entry per pair"),
        (lambda: inference.auc(np.array([1.0, np.nan]), np.array([True, False])), "NaN"),
        (lambda: inference.error_rates(np.ones(3), np.ones(2)), "over the same pairs"),
        (lambda: geh.PairRanking("x", [1.0], ["a", "b", "c"]), "3 names have 3 pairs"),
    ],
)
def test_wrong_shapes_are_refused(call, message):
    with pytest.raises(geh.GEHError, match=message):
        call()
