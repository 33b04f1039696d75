"""Intervals, p-values and false discovery rates, against numbers worked out by hand."""

import math
from functools import cache

import numpy as np
import pytest
from synthetic_results import result_of

import geh_explain as geh
from geh_explain import inference
from geh_explain.statistics.p_values import discoveries


def scores(draws: np.ndarray, names: list[str]) -> geh.Interactions:
    """A result whose scores have these draws (K, P): one group of two points."""
    return result_of(draws[:, None, :], names, [0, 0])


@pytest.fixture(scope="module")
def result() -> geh.Interactions:
    return scores(gamma_draws(), ["a", "b", "c"])


@cache
def gamma_draws():
    """Return 50 positive draws of three pairs."""
    return np.random.default_rng(0).gamma(4.0, 0.3, size=(50, 3))


PAIRS = np.triu_indices(3, 1)


# p-values.


@pytest.mark.parametrize(
    ("mean", "low", "high", "printed"),
    [
        (0.901, 0.241, 1.561, 0.003),
        (0.531, 0.065, 0.997, 0.011),
        (1.223, 0.689, 1.757, 0.000),
        (0.938, 0.539, 1.336, 0.001),
        (0.699, 0.384, 1.013, 0.000),
    ],
)
def test_the_bayesian_p_value_reproduces_the_table_of_the_paper(
    mean: float, low: float, high: float, printed: float
) -> None:
    assert inference.bayesian_p_value(np.array([mean]), np.array([(high - low) / 4]))[0] == pytest.approx(
        printed, abs=0.001
    )


def test_the_first_row_of_the_table_is_off_its_own_interval() -> None:
    # The paper prints 1.532 (0.030, 3.034) with p = 0.026; a tail of 1.532 / 0.751 = 2.04 deviations is 0.0207.
    (p_value,) = inference.bayesian_p_value(np.array([1.532]), np.array([(3.034 - 0.030) / 4]))
    assert p_value == pytest.approx(0.0207, abs=0.0001)


def test_the_bayesian_p_value_is_a_gaussian_tail() -> None:
    deviations = np.array([0.0, 0.5, 1.0, 2.0, 5.0])
    by_hand = [0.5 * math.erfc(z / math.sqrt(2)) for z in deviations]
    np.testing.assert_allclose(inference.bayesian_p_value(3 * deviations, np.full(5, 3.0)), by_hand, rtol=1e-12)


def test_a_score_that_is_always_zero_is_no_evidence_and_one_that_never_varies_is_certain() -> None:
    found = inference.bayesian_p_value(np.array([0.0, 2.0]), np.array([0.0, 0.0]))
    np.testing.assert_array_equal(found, [1.0, 0.0])


def test_the_table_has_the_p_values_of_its_means_and_standard_deviations(result: geh.Interactions) -> None:
    table = result.table(rule="interval")
    by_hand = [0.5 * math.erfc(m / s / math.sqrt(2)) for m, s in zip(table["mean"], table["std"], strict=True)]
    np.testing.assert_allclose(table["p_value"], by_hand, rtol=1e-12)


# Intervals.


def test_the_gaussian_interval_of_95_percent_is_exactly_two_standard_deviations(result: geh.Interactions) -> None:
    low, high = result.geh.interval()
    mean = gamma_draws().sum(axis=0) / 50
    std = np.sqrt(((gamma_draws() - mean) ** 2).sum(axis=0) / 49)
    np.testing.assert_allclose(low[PAIRS], mean - 2 * std, rtol=1e-13)
    np.testing.assert_allclose(high[PAIRS], mean + 2 * std, rtol=1e-13)
    np.testing.assert_allclose(result.geh.std[PAIRS], std, rtol=1e-13)


@pytest.mark.parametrize(("level", "deviations"), [(0.5, 0.674490), (0.9, 1.644854), (0.99, 2.575829)])
def test_other_levels_take_the_quantiles_of_the_gaussian(
    result: geh.Interactions, level: float, deviations: float
) -> None:
    low, high = result.geh.interval(level)
    mean, std = gamma_draws().mean(axis=0), gamma_draws().std(axis=0, ddof=1)
    np.testing.assert_allclose(low[PAIRS], mean - deviations * std, rtol=1e-5)
    np.testing.assert_allclose(high[PAIRS], mean + deviations * std, rtol=1e-5)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_the_quantile_interval_holds_the_middle_of_the_draws(result: geh.Interactions, level: float) -> None:
    low, high = result.geh.interval(level, kind="quantile")
    np.testing.assert_allclose(low[PAIRS], np.quantile(gamma_draws(), (1 - level) / 2, axis=0), rtol=1e-13)
    np.testing.assert_allclose(high[PAIRS], np.quantile(gamma_draws(), 1 - (1 - level) / 2, axis=0), rtol=1e-13)
    for pair, (i, j) in enumerate(zip(*PAIRS, strict=True)):
        held = [low[i, j] <= draw <= high[i, j] for draw in gamma_draws()[:, pair]]
        assert sum(held) / 50 == pytest.approx(level, abs=0.04)


def test_a_quantile_interval_of_five_draws_by_hand() -> None:
    draws = np.array([[4.0], [1.0], [3.0], [5.0], [2.0]])
    low, high = scores(draws, ["a", "b"]).geh.interval(0.5, kind="quantile")
    assert (low[0, 1], high[0, 1]) == (2.0, 4.0)


def test_a_pair_is_significant_if_its_interval_excludes_zero() -> None:
    # Means 1, standard deviations 0.1, 0.45 and 0.6 by construction: the intervals end at 0.8, 0.1 and -0.2.
    shape = np.array([-1.0, 1.0, -1.0, 1.0]) * math.sqrt(3 / 4)
    draws = 1 + np.outer(shape, [0.1, 0.45, 0.6])
    table = scores(draws, ["a", "b", "c"]).table(rule="interval").sort_values("std")
    np.testing.assert_allclose(table["low"], [0.8, 0.1, -0.2], atol=1e-12)
    assert table["significant"].tolist() == [True, True, False]
    stricter = scores(draws, ["a", "b", "c"]).table(level=0.99, rule="interval").sort_values("std")
    assert stricter["significant"].tolist() == [True, False, False]


# Error rates.


def test_benjamini_and_hochberg_by_hand() -> None:
    # Their own example (1995): of these 15 p-values the 4 smallest are rejected at 5 %, as 0.0095 <= 4/15 * 0.05.
    p_values = np.array(
        [1e-4, 4e-4, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.324, 0.4262, 0.5719, 0.6528, 0.759, 1.0]
    )
    expected = np.arange(15) < 4
    np.testing.assert_array_equal(inference.benjamini_hochberg(p_values, 0.05), expected)
    order = np.random.default_rng(0).permutation(15)
    np.testing.assert_array_equal(inference.benjamini_hochberg(p_values[order], 0.05), expected[order])


def test_a_later_p_value_carries_the_earlier_ones_with_it() -> None:
    # 0.03 > 1/3 * 0.05 and 0.032 <= 2/3 * 0.05, so that both are rejected; 0.2 > 0.05 is not.
    assert inference.benjamini_hochberg(np.array([0.2, 0.03, 0.032]), 0.05).tolist() == [False, True, True]


def test_pairs_without_a_test_are_no_tests_and_no_discoveries() -> None:
    found = discoveries(np.array([0.03, np.nan, 0.5, np.nan]), 0.1)
    assert found.tolist() == [True, False, False, False]
    # Of four tests 0.03 > 0.1 / 4 would be none.
    assert not discoveries(np.array([0.03, 1.0, 0.5, 1.0]), 0.1).any()
    assert discoveries(np.full(3, np.nan), 0.1).tolist() == [False, False, False]


def test_the_interval_rule_controls_the_false_discovery_rate_on_request_and_gets_stricter_by_it() -> None:
    shape = np.array([-1.0, 1.0, -1.0, 1.0]) * math.sqrt(3 / 4)
    # p = Phi(-1 / std): 0.0062, 0.0228 and 0.1587; at 10 % the thresholds are 0.033, 0.067 and 0.1.
    by_hand = scores(1 + np.outer(shape, [0.4, 0.5001, 1.0]), ["a", "b", "c"])

    def significant(**options: float) -> list[bool]:
        return by_hand.table(rule="interval", **options).sort_values("std")["significant"].tolist()

    assert significant() == [True, False, False]  # 1 - 2 * 0.5001 < 0
    assert significant(fdr=0.1) == [True, False, False]  # two discoveries, of which one interval contains 0
    assert significant(level=0.9) == [True, True, False]
    assert significant(level=0.9, fdr=0.05) == [True, True, False]
    assert significant(level=0.9, fdr=0.01) == [False, False, False]


# Wrong use.


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, 95, float("nan")])
def test_a_level_outside_zero_and_one_is_refused(result: geh.Interactions, level: float) -> None:
    for use in (result.geh.interval, result.table):
        with pytest.raises(geh.GEHError, match="level"):
            use(level=level)
    with pytest.raises(geh.GEHError, match="level"):
        result.geh.interval(level, kind="quantile")
    with pytest.raises(geh.GEHError, match="level"):
        result.regions(0, 1, level=level)


@pytest.mark.parametrize("rate", [0, 1, -0.1, 1.5, float("nan")])
def test_a_false_discovery_rate_outside_zero_and_one_is_refused(result: geh.Interactions, rate: float) -> None:
    with pytest.raises(geh.GEHError, match="fdr"):
        result.table(fdr=rate)
    with pytest.raises(ValueError, match="fdr"):
        inference.benjamini_hochberg(np.array([0.1, 0.2]), rate)


def test_a_false_discovery_rate_is_checked_for_a_single_draw_too() -> None:
    with pytest.raises(geh.GEHError, match="fdr"):
        scores(gamma_draws()[:1], ["a", "b", "c"]).table(fdr=2)


@pytest.mark.parametrize("wrong", ["0.95", None, [0.95]])
def test_a_level_or_rate_that_is_no_number_is_refused_in_words(result: geh.Interactions, wrong: object) -> None:
    with pytest.raises(geh.GEHError, match="level"):
        result.table(level=wrong)  # type: ignore[arg-type]
    if wrong is not None:
        with pytest.raises(geh.GEHError, match="fdr"):
            result.table(fdr=wrong)  # type: ignore[arg-type]


def test_an_unknown_kind_of_interval_is_refused(result: geh.Interactions) -> None:
    with pytest.raises(geh.GEHError, match="kind"):
        result.geh.interval(kind="bootstrap")
