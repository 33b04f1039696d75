"""One definition of decisions: the three rules, their intervals, and the supported score, against numbers by hand."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from synthetic_results import evidence_result, random_result, result_of, without_draws

import geh_explain as geh

SCORE = ["unit_i", "unit_j", "mean", "std", "low", "high"]


def by_hand(draws: int = 3, copies: int = 1, **options: np.ndarray) -> geh.Interactions:
    """Return three pairs in groups of 6 and 2 points, whose group means are 4, 2, 1 times (0.9, 1, 1.1) by draw.

    ``copies`` multiplies the sizes of the groups.
    """
    weights = np.array([0.9, 1.0, 1.1])[:draws] if draws > 1 else np.ones(1)
    signed = weights[:, None, None] * np.array([[4.0, 2.0, 1.0], [-4.0, 2.0, -1.0]])
    return result_of(signed, "abc", np.repeat([0, 1], [6 * copies, 2 * copies]), **options)


def evidence(slope: list[float], p_value: list[float]) -> geh.Evidence:
    slopes = np.array(slope)
    return geh.Evidence(slopes, np.where(np.isnan(slopes), np.nan, 0.1), np.array(p_value), 500)


# Evidence.


def test_labels_decide_where_there_are_labels() -> None:
    result = by_hand().with_evidence(evidence([0.25, 1.5, -0.5], [0.75, 0.001, 0.9]))
    table = result.table()
    assert table.columns.tolist() == [*SCORE, "supported", "slope", "slope_se", "p_value", "significant"]
    # Supported: means of normal distributions around the slopes, truncated to [0, 1], times the GEH 2, 4 and 1.
    shares = [stats.truncnorm.mean(-slope / 0.1, (1 - slope) / 0.1, slope, 0.1) for slope in (1.5, 0.25, -0.5)]
    assert table["supported"].tolist() == pytest.approx([2 * shares[0], 4 * shares[1], shares[2]])
    assert table["mean"].tolist() == pytest.approx([2.0, 4.0, 1.0])
    assert table["slope"].tolist() == [1.5, 0.25, -0.5]
    assert table["significant"].tolist() == [True, False, False]
    assert result.table(fdr=0.001)["significant"].tolist() == [False, False, False]
    assert result.table("geh")["mean"].tolist() == pytest.approx([4.0, 2.0, 1.0])
    assert result.table("geh").columns.tolist() == table.columns.tolist()
    # AEH of the first pair: 0.75 * 4 - 0.25 * 4.
    assert result.table("aeh").set_index("unit_j")["supported"]["b"] == pytest.approx(shares[1] * 2.0)


def test_half_of_what_was_not_tested_counts_and_is_not_significant() -> None:
    untested = by_hand().with_evidence(evidence([np.nan, np.nan, 0.9], [np.nan, 1.0, 1e-9]))
    table = untested.table()
    # GEH 4 times 1/2, GEH 1 times 0.9 - 0.1 phi(1) / Phi(1), and a pair without an interaction to test.
    assert table["unit_i"].str.cat(table["unit_j"]).tolist() == ["ab", "bc", "ac"]
    assert table["supported"].tolist() == pytest.approx([2.0, 0.8712, 0.0], abs=1e-4)
    assert table["p_value"].isna().tolist() == [True, False, False]
    assert table["significant"].tolist() == [False, True, False]
    # 0.04 is no discovery among two tests at 5 %, and would be one alone.
    two = by_hand().with_evidence(evidence([np.nan, 0.1, 0.1], [np.nan, 0.9, 0.04]))
    assert not two.table()["significant"].any()
    alone = by_hand().with_evidence(evidence([np.nan, np.nan, 0.1], [np.nan, np.nan, 0.04]))
    assert alone.table().set_index("unit_i")["significant"].to_dict() == {"a": False, "b": True}
    assert untested.ranking().top(3) == [("a", "b"), ("b", "c"), ("a", "c")]


def test_pairs_of_equal_supported_score_are_in_the_order_of_their_means() -> None:
    tied = by_hand().with_evidence(evidence([np.nan, np.nan, np.nan], [1.0, 1.0, 1.0]))
    assert tied.table()["mean"].tolist() == pytest.approx([4.0, 2.0, 1.0])
    assert not tied.table()["supported"].any()


def test_the_ranking_and_the_top_are_those_of_the_table() -> None:
    for result in (random_result(6), evidence_result(random_result(6), untested=3)):
        table = result.table()
        assert result.ranking().top(15) == list(zip(table["unit_i"], table["unit_j"], strict=True))
        pd.testing.assert_frame_equal(result.top(4), table.head(4))
    assert result.ranking().method == "supported GEH"
    assert result.ranking("eah").method == "EAH"
    assert result.ranking("geh").top(1) == random_result(6).ranking().top(1)


def test_other_rules_stay_available_beside_evidence() -> None:
    plain, tested = random_result(5), evidence_result(random_result(5))
    for rule in ("sign", "interval"):
        pd.testing.assert_frame_equal(tested.table(rule=rule), plain.table(rule=rule))
    ordered = tested.table("supported", rule="sign")
    assert ordered.columns.tolist() == [*SCORE, "supported", "stable"]
    assert ordered["supported"].is_monotonic_decreasing
    pd.testing.assert_frame_equal(tested.with_evidence(None).table(), plain.table())


def test_without_evidence_the_error_says_how_to_get_it() -> None:
    for options in ({"rule": "evidence"}, {"measure": "supported"}):
        with pytest.raises(geh.GEHError, match=r"explain\(..., evidence=\(X_held, y_held\)\) or explainer.test"):
            by_hand().table(**options)


def test_evidence_must_fit_the_pairs() -> None:
    with pytest.raises(geh.GEHError, match="this result has 3"):
        by_hand().with_evidence(evidence([1.0], [0.1]))
    with pytest.raises(geh.GEHError, match="evidence is a dict"):
        by_hand().with_evidence({})


# Intervals of the network's score.


def variance_over_points(means: list[float], errors: list[float], sizes: list[int]) -> float:
    """Return the variance of the mean of |h| with signs of groups: by the second moment of all points."""
    points = sum(sizes)
    squares = sum(n * (n - 1) * e**2 + n * m**2 for m, e, n in zip(means, errors, sizes, strict=True))
    mean = sum(n * abs(m) for m, n in zip(means, sizes, strict=True)) / points
    return (squares / points - mean**2) / (points - 1)


#: Half-width of an interval over three draws with standard deviation 1: 97.5 % quantile with 2 degrees of freedom.
THREE_DRAWS = 4.3027 * np.sqrt(4 / 3)


def test_intervals_count_draws_and_points() -> None:
    errors = np.array([[0.4, 0.0, 0.1], [0.8, 0.0, 0.1]])
    result = by_hand(copies=1000, point_errors=errors)
    table = result.table()
    # Root mean squares over draws of the group means; the sizes of the groups are random, too.
    rms = np.array([4.0, 2.0, 1.0]) * np.sqrt(1.01)
    of_points = np.sqrt([variance_over_points([m, m], errors[:, pair], [6000, 2000]) for pair, m in enumerate(rms)])
    assert of_points[0] == pytest.approx(np.hypot(0.75 * 0.4, 0.25 * 0.8), rel=1e-3)
    of_draws = THREE_DRAWS * np.array([0.4, 0.2, 0.1])
    mean = np.array([4.0, 2.0, 1.0])
    half = 1.96 * of_points
    assert table["std"].tolist() == pytest.approx([0.4, 0.2, 0.1])
    assert table["low"].tolist() == pytest.approx(mean - np.hypot(of_draws, half), rel=1e-3)
    assert table["high"].tolist() == pytest.approx(mean + np.hypot(of_draws, half + half**2 / (2 * mean)), rel=1e-3)
    for source, low in (("draws", mean - of_draws), ("points", mean - half)):
        assert result.table(source=source)["low"].tolist() == pytest.approx(low, rel=1e-3)
        assert result.decisions(source=source).sources == (source,)
        assert result.table(source=source)["stable"].tolist() == table["stable"].tolist()
    variance = result.variance()
    assert variance.columns.tolist() == ["unit_i", "unit_j", "mean", "draws", "points", "total", "share"]
    assert variance["draws"].tolist() == pytest.approx([0.16, 0.04, 0.01])
    assert variance["points"].tolist() == pytest.approx(of_points**2)
    assert variance["share"].tolist() == pytest.approx(of_points**2 / (of_points**2 + [0.16, 0.04, 0.01]))


def test_aeh_has_the_error_of_all_points() -> None:
    result = by_hand(1, copies=1000, point_errors=np.full((2, 3), 0.1))
    # Pair ac has the mean 2 in both groups; all points are one group for AEH.
    table = result.table("aeh").set_index(["unit_i", "unit_j"])
    half = 1.96 * np.sqrt(variance_over_points([2.0, 2.0], [0.1, 0.1], [6000, 2000]))
    assert table.loc[("a", "c"), "low"] == pytest.approx(2 - half, rel=1e-4)
    # Pair ab has the means 4 and -4, and the mean 2 over all points: its variance contains that between the groups.
    squares = sum(n * (n - 1) * 0.01 + n * 16 for n in (6000, 2000))
    half = 1.96 * np.sqrt((squares / 8000 - 4) / 7999)
    assert table.loc[("a", "b"), "low"] == pytest.approx(2 - half, rel=1e-3)


def test_the_source_of_intervals_is_checked() -> None:
    with pytest.raises(geh.GEHError, match="source='noise' is unknown; use 'both', 'draws' or 'points'"):
        by_hand().table(source="noise")
    with pytest.raises(geh.GEHError, match="source='points' does not go with rule='interval'"):
        by_hand().table(rule="interval", source="points")
    assert by_hand().table(source="points")[["low", "high"]].isna().all(axis=None)


def test_the_rule_of_the_paper_counts_draws_only() -> None:
    errors = np.ones((2, 3))
    pd.testing.assert_frame_equal(by_hand(point_errors=errors).table(rule="interval"), by_hand().table(rule="interval"))
    low, high = by_hand(point_errors=errors).geh.pair_interval()
    table = by_hand(point_errors=errors).table(rule="interval")
    assert table["low"].tolist() == low.tolist()
    assert table["high"].tolist() == high.tolist()


def test_with_one_draw_intervals_come_from_the_points_alone() -> None:
    result = by_hand(draws=1, point_errors=np.full((2, 3), 0.4))
    table = result.table()
    assert (table["low"] < table["mean"]).all()
    assert table["std"].isna().all()
    # p = 2 P(T_5 < -2.5) = 0.054 for the weakest pair.
    assert table["stable"].tolist() == [True, True, False]
    assert "over points like these" in repr(result)
    # Quantiles 2.571 and 12.706 of Student's distribution with 5 and 1 degrees of freedom.
    assert result.regions("a", "b")["low"].tolist() == pytest.approx([4 - 2.571 * 0.4, -4 - 12.706 * 0.4], rel=1e-3)
    variance = result.variance()
    assert variance["draws"].isna().all()
    assert variance["share"].tolist() == [1, 1, 1]


def test_eah_is_a_mean_over_points() -> None:
    """Local interactions 2, 4 and 6: variance 4 / 3 of their mean, also where a pair changes its sign."""
    x = torch.tensor([[0.0, 1.0], [0.0, -2.0], [0.0, 3.0]])
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] ** 2, posterior=geh.posterior.PointEstimate())
    result = explainer.explain(x, groups=1, progress=False)
    assert result.eah.pair_mean.tolist() == [4.0]
    assert result.variance("eah")["points"].tolist() == pytest.approx([4 / 3])


def test_the_square_of_a_group_of_one_point_is_known() -> None:
    errors = np.array([[0.5], [np.nan]])
    result = result_of(np.ones((1, 2, 1)), "ab", np.array([0, 0, 0, 0, 1]), point_errors=errors)
    assert result.variance()["points"].tolist() == pytest.approx([variance_over_points([1, 1], [0.5, 0.0], [4, 1])])
    unknown = result_of(np.ones((1, 2, 1)), "ab", np.array([0, 1]), point_errors=np.full((2, 1), np.nan))
    assert unknown.table()[["low", "high", "stable"]].isna().all(axis=None)
    assert unknown.variance()[["points", "total", "share"]].isna().all(axis=None)


def test_a_group_of_which_too_few_points_were_visited_has_the_variance_of_the_others() -> None:
    errors = np.array([[0.5], [np.nan]])
    result = result_of(np.ones((1, 2, 1)), "ab", np.array([0, 0, 0, 0, 1, 1]), point_errors=errors)
    # Variance 4 * 0.25 = 1 per point in the first group, and so in the second: its mean has the variance 1 / 2.
    expected = variance_over_points([1, 1], [0.5, np.sqrt(0.5)], [4, 2])
    assert result.variance()["points"].tolist() == pytest.approx([expected])


def test_stable_pairs_hold_over_draws_and_points() -> None:
    plain, noisy = by_hand(), by_hand(point_errors=np.full((2, 3), 1.5))
    p_values = noisy.sign_p_values()
    assert (p_values > plain.sign_p_values()).all()
    expected = stats.false_discovery_control(plain.sign_p_values()) <= 0.05
    assert plain.table()["stable"].tolist() == expected.tolist() == [True, True, True]
    assert not noisy.table()["stable"].any()
    assert plain.table(fdr=1e-4)["stable"].tolist() == [False, False, False]


# One unit, one definition.


def test_a_unit_has_its_own_pairs_with_the_same_decisions() -> None:
    result = evidence_result(random_result(6))
    for unit, name in (("unit 2", "unit 2"), (2, "unit 2"), (-1, "unit 5")):
        table, whole = result.table(unit=unit), result.table()
        expected = whole[(whole["unit_i"] == name) | (whole["unit_j"] == name)]
        pd.testing.assert_frame_equal(table, expected.reset_index(drop=True))
        assert len(table) == 5
    with pytest.raises(geh.GEHError, match="unit 'nobody'"):
        result.table(unit="nobody")


@pytest.mark.parametrize("rule", ["evidence", "sign", "interval"])
def test_decisions_are_those_of_the_table(rule: str) -> None:
    result = evidence_result(random_result(6), untested=2)
    decisions, table = result.decisions(rule=rule), result.table(rule=rule)
    assert decisions.accepted is not None
    assert decisions.accepted[decisions.order].tolist() == table.iloc[:, -1].tolist()
    assert decisions.column == table.columns[-1]
    assert 0 < decisions.unsure.sum() < 15


def test_moments_decide_as_draws_do() -> None:
    result = random_result(5)
    for rule in ("sign", "interval"):
        pd.testing.assert_frame_equal(without_draws(result).table(rule=rule), result.table(rule=rule))


@pytest.mark.parametrize(
    ("options", "label", "other"),
    [
        ({}, "significant, FDR 5 %", "not significant"),
        ({"fdr": 0.2}, "significant, FDR 20 %", "not significant"),
        ({"rule": "sign"}, "stable", "not stable"),
        ({"rule": "interval"}, "interval excludes 0 (paper's rule)", "interval contains 0"),
        ({"rule": "interval", "fdr": 0.1}, "interval excludes 0 (paper's rule), FDR 10 %", "not significant"),
    ],
)
def test_decisions_have_words(options: dict, label: str, other: str) -> None:
    decisions = evidence_result(random_result()).decisions(**options)
    assert (decisions.label, decisions.other_label) == (label, other)
