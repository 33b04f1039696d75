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
    assert found.table(rule="sign")["stable"].tolist() == [True, False, False]
    assert found.table(rule="interval")["significant"].tolist() == [True, False, False]
    with pytest.raises(geh.GEHError, match="rule='signs'"):
        found.table(rule="signs")


def test_one_draw_has_no_sign_rule():
    assert np.isnan(result(1).sign_p_values()).all()
    assert np.isnan(inference.sign_p_value(np.ones((2, 1)), np.full((2, 1), np.nan), 1)).all()


def test_the_sign_rule_counts_draws_and_points():
    mean, std, errors = np.array([[3.0]]), np.array([[1.0]]), np.array([[0.8]])
    # One group: t = 3 / sqrt(1 (1 + 1/20) + 0.64); degrees of freedom by Welch and Satterthwaite.
    of_draws, of_points = 1.05, 0.64
    freedom = (of_draws + of_points) ** 2 / (of_draws**2 / 19 + of_points**2 / 49)
    expected = 2 * stats.t.sf(3 / (of_draws + of_points) ** 0.5, freedom)
    found = inference.sign_p_value(mean, std, 20, errors, np.array([50]))
    assert found == pytest.approx([expected])
    # Errors of the points make a pair less certain, and with one draw only they count.
    assert found > inference.sign_p_value(mean, std, 20)
    one_draw = inference.sign_p_value(mean, np.full((1, 1), np.nan), 1, errors, np.array([50]))
    assert one_draw == pytest.approx([2 * stats.t.sf(3 / 0.8, 49)])
    assert inference.sign_p_value(mean, std * 0, 1, errors) == pytest.approx([2 * stats.norm.sf(3 / 0.8)])


def test_a_group_of_unknown_error_is_no_evidence():
    mean, std = np.array([[9.0], [2.0]]), np.full((2, 1), np.nan)
    found = inference.sign_p_value(mean, std, 1, np.array([[np.nan], [1.0]]), np.array([1, 10]))
    assert found == pytest.approx([2 * 2 * stats.t.sf(2, 9)])


@pytest.mark.parametrize("draws", [1, 20])
def test_the_sign_rule_keeps_its_level_over_draws_and_points(draws):
    rng = np.random.default_rng(7)
    points, pairs = 12, 4000
    # Three groups of 12 points; the local interactions of a group have mean 0 over the population.
    local = rng.normal(size=(3, points, pairs))
    shift = rng.normal(size=(draws + 1, 3, pairs)) * (0.3 if draws > 1 else 0)
    samples = local.mean(1) + shift[0] + shift[1:]
    errors = local.std(axis=1, ddof=1) / points**0.5
    std = samples.std(0, ddof=1) if draws > 1 else np.full((3, pairs), np.nan)
    p = inference.sign_p_value(samples.mean(0), std, draws, errors, np.full(3, points))
    false_positives = int((p < 0.05).sum())
    assert 0.03 * pairs < false_positives <= stats.binom.ppf(0.999, pairs, 0.05)


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
