"""The result: its tables, effects by group, settings and repr."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hand_computed import POINTS, SIDES, Weighted, explain_weighted

import geh_explain as geh

COLUMNS = ["unit_i", "unit_j", "mean", "std", "low", "high"]


@pytest.fixture(scope="module")
def result() -> geh.Interactions:
    return explain_weighted()


# Tables.


def test_the_table_lists_every_pair_strongest_first(result: geh.Interactions) -> None:
    table = result.table()
    assert table.columns.tolist() == [*COLUMNS, "stable"]
    assert table.index.tolist() == [0, 1, 2]
    assert table["unit_i"].tolist() == ["rooms", "age", "rooms"]
    assert table["unit_j"].tolist() == ["age", "price", "price"]
    # (rooms, age): (2 |-1| + 2 |3|) / 4 = 2 times w0, that is 4, 5, 6; (age, price): w1, that is 2, 3, 4.
    np.testing.assert_allclose(table["mean"], [5.0, 3.0, 0.0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(table["std"], [1.0, 1.0, 0.0], rtol=0, atol=1e-12)
    # Points of (rooms, age): 2 and 4 in one group, 1 and -3 in the other, times w0, whose mean square is 77 / 12. The
    # squared deviations from the group means are 10 times that. The means are 3 and -1 times w0, whose squared mean
    # plus variance is 6.5. (age, price) is the same at all points. Three draws: 4.303 sqrt(4 / 3).
    of_draws = 4.302653 * np.sqrt(4 / 3)
    np.testing.assert_allclose(table["low"], [0.0, 0.0, 0.0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(table["high"][1:], [3 + of_draws, 0.0], rtol=1e-6, atol=1e-12)
    assert result.variance()["points"].tolist() == pytest.approx([((10 * 77 / 12 + 20 * 6.5) / 4 - 4 * 6.5) / 3, 0, 0])
    assert table["high"][0] > 5 + of_draws
    # t = 5 / sqrt(4 / 3) with 2 degrees of freedom: p = 0.049 in both groups of (rooms, age), no discovery of three.
    assert table["stable"].tolist() == [False, False, False]


def test_the_rule_of_the_paper_has_its_own_columns(result: geh.Interactions) -> None:
    table = result.table(rule="interval")
    assert table.columns.tolist() == [*COLUMNS, "p_value", "significant"]
    np.testing.assert_allclose(table["low"], [3.0, 1.0, 0.0], rtol=0, atol=1e-12)
    # Tails beyond 5 and 3 standard deviations, from any table of the Gaussian.
    np.testing.assert_allclose(table["p_value"], [2.8665e-7, 1.3499e-3, 1.0], rtol=1e-4)
    assert table["significant"].tolist() == [True, True, False]


def test_each_measure_has_its_own_table(result: geh.Interactions) -> None:
    # (rooms, age) is 2.5 on average times |1 - 3 + 2 + 4| / 4 = 1 if signs cancel, (1 + 3 + 2 + 4) / 4 = 2.5 if not.
    weakened = result.table("aeh")
    assert weakened["unit_i"].tolist() == ["age", "rooms", "rooms"]
    np.testing.assert_allclose(weakened["mean"], [3.0, 2.5, 0.0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.table("eah")["mean"], [6.25, 3.0, 0.0], rtol=0, atol=1e-12)
    with pytest.raises(geh.GEHError, match="measure"):
        result.table("shap")


def test_the_level_of_the_table_sets_its_intervals(result: geh.Interactions) -> None:
    table = result.table(level=0.5, rule="interval")
    np.testing.assert_allclose(table["high"] - table["mean"], 0.6744898 * table["std"], rtol=1e-6)
    np.testing.assert_allclose(table["mean"] - table["low"], 0.6744898 * table["std"], rtol=1e-6)


def test_the_table_tells_the_same_as_the_matrices(result: geh.Interactions) -> None:
    low, high = result.geh.interval()
    for _, row in result.table(rule="interval").iterrows():
        i, j = result.names.index(row["unit_i"]), result.names.index(row["unit_j"])
        assert (row["mean"], row["std"]) == (result.geh.mean[i, j], result.geh.std[j, i])
        assert (row["low"], row["high"]) == (low[j, i], high[i, j])


def test_the_top_is_the_head_of_the_table(result: geh.Interactions) -> None:
    pd.testing.assert_frame_equal(result.top(2), result.table().head(2))
    pd.testing.assert_frame_equal(result.top(), result.table())
    pd.testing.assert_frame_equal(result.top(1, measure="aeh"), result.table("aeh").head(1))
    expected = result.table(level=0.9, rule="interval", unit="price").head(2)
    pd.testing.assert_frame_equal(result.top(2, level=0.9, rule="interval", unit="price"), expected)


def test_one_draw_has_the_uncertainty_of_its_points() -> None:
    result = explain_weighted([(1.0, 4.0)])
    table = result.table()
    assert table.columns.tolist() == [*COLUMNS, "stable"]
    np.testing.assert_allclose(table["mean"], [4.0, 2.0, 0.0], rtol=0, atol=1e-12)
    assert table["std"].isna().all()
    # (rooms, age) is 2, 4 and 1, -3 in two groups, with means 3 and -1: variance (30 / 4 - 4) / 3; (age, price) is the
    # same at all points.
    assert table["high"].tolist()[::2] == pytest.approx([4.0, 0.0])
    assert result.variance()["points"].tolist() == pytest.approx([0.0, (30 / 4 - 4) / 3, 0.0])
    assert table["stable"].tolist() == [True, False, False]
    assert result.table(rule="interval")[["low", "p_value", "significant"]].isna().all(axis=None)
    assert np.isnan(result.geh.std[0, 1])
    assert result.regions(0, 1)["std"].isna().all()
    assert result.regions(0, 1)["mean"].tolist() == [3.0, -1.0]
    # Variances 1 and 4 of the group means, with one degree of freedom.
    np.testing.assert_allclose(result.regions(0, 1)["low"], [3 - 12.7062, -1 - 2 * 12.7062], rtol=1e-5)
    for kind in ("gaussian", "quantile"):
        with pytest.raises(geh.GEHError, match="draws"):
            result.geh.interval(kind=kind)
    assert "interval of the network's score over points" in repr(result)


# Effects by group.


def test_regions_give_the_signed_mean_of_each_group(result: geh.Interactions) -> None:
    regions = result.regions("rooms", "age")
    assert regions.columns.tolist() == ["size", "mean", "std", "low", "high", "description"]
    assert regions.index.tolist() == ["east", "west"]
    assert regions["size"].tolist() == [2, 2]
    # 3 in the east and -1 in the west, times w0 = 2, 2.5, 3.
    np.testing.assert_allclose(regions["mean"], [7.5, -2.5], rtol=0, atol=1e-12)
    np.testing.assert_allclose(regions["std"], [1.5, 0.5], rtol=0, atol=1e-12)
    # Over draws and points: the variances of the means over points are 77 / 12 and four times that.
    # Quantiles 4.303 of Student's distribution for three draws, 12.706 for two points.
    of_draws, of_points = 4.302653 * np.sqrt(4 / 3) * np.array([1.5, 0.5]), 12.706205 * np.sqrt([77 / 12, 4 * 77 / 12])
    mean, half_width = np.array([7.5, -2.5]), np.hypot(of_draws, of_points)
    np.testing.assert_allclose(regions["low"], mean - half_width, rtol=1e-6)
    np.testing.assert_allclose(regions["high"], mean + half_width, rtol=1e-6)
    np.testing.assert_allclose(result.regions("age", "price")["mean"], [3.0, 3.0], rtol=0, atol=1e-12)


def test_regions_know_units_by_name_and_by_number_in_any_order(result: geh.Interactions) -> None:
    expected = result.regions("rooms", "age")
    for i, j in (("age", "rooms"), (0, 1), (1, 0), ("rooms", 1), (np.int64(0), -2)):
        pd.testing.assert_frame_equal(result.regions(i, j), expected)


def test_regions_add_up_to_the_scores(result: geh.Interactions) -> None:
    for pair, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)]):
        signed = result.signed[:, :, pair]
        np.testing.assert_allclose(signed.mean(axis=0), result.regions(i, j)["mean"], rtol=0, atol=1e-12)
        share = result.regions(i, j)["size"].to_numpy() / 4
        np.testing.assert_allclose(result.geh.mean[i, j], (np.abs(signed) @ share).mean(), rtol=0, atol=1e-12)
        np.testing.assert_allclose(result.aeh.mean[i, j], np.abs(signed @ share).mean(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("i", "j"), [(0, 0), ("age", 1), ("room", "age"), (0, 3), (-4, 0), (0.5, 1), (True, 2)])
def test_units_that_are_not_there_are_refused(result: geh.Interactions, i: Any, j: Any) -> None:
    with pytest.raises(geh.GEHError):
        result.regions(i, j)


def test_labels_say_which_group_each_point_is_in(result: geh.Interactions) -> None:
    assert [result.group_names[label] for label in result.labels] == SIDES
    assert result.names == ["rooms", "age", "price"]


# Settings.


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"groups": 1, "scale": "std", "batch_size": 3, "seed": 7},
        {"groups": np.array([0, 1, 0, 1]), "scale": np.array([1.0, 2.0, 3.0])},
        {"groups": torch.tensor([0, 0, 1, 1]), "scale": torch.ones(3), "target": 0},
        {"groups": np.int64(2), "batch_size": np.int64(3), "seed": np.int64(1), "draws": np.int64(2)},
        {"groups": "auto", "draws": 2},
    ],
    ids=["labels", "words", "arrays", "tensors", "numpy numbers", "auto"],
)
def test_settings_can_be_written_as_json_and_saved(options: dict[str, Any], tmp_path: Path) -> None:
    result = explain_weighted(**options)
    assert json.loads(json.dumps(result.settings)) == result.settings
    assert geh.Interactions.load(result.save(tmp_path / "result.npz")).settings == result.settings


def test_settings_say_how_the_result_came_about() -> None:
    settings = explain_weighted(groups=2, batch_size=3, seed=5, scale="std").settings
    expected = {"points": 4, "groups": 2, "group_count": 2, "draws": 3, "batch_size": 3, "seed": 5, "scale": "std"}
    expected |= {"posterior": "WeightSamples(3)", "model": "Weighted", "dtype": "float64", "engine": "structured"}
    assert {key: settings[key] for key in expected} == expected


# Repr.


def test_the_summary_counts_what_there_is(result: geh.Interactions) -> None:
    words = repr(result)
    assert "3 units of the inputs: 3 pairs, 4 points in 2 groups, 3 draws of WeightSamples(3)" in words
    assert "\n0 of 3 pairs stable in this network; evidence=(X, y) tests whether the data support them\n" in words
    assert "\nlow, high: 95 % interval of the network's score over draws and points\n" in words
    assert [line.split() for line in words.splitlines()[3:]] == [
        ["unit_i", "unit_j", "mean", "std", "low", "high", "stable"],
        ["0", "rooms", "age", "5.00", "1.00", "0.00", f"{result.table()['high'][0]:.2f}", "no"],
        ["1", "age", "price", "3.00", "1.00", "0.00", "7.97", "no"],
        ["2", "rooms", "price", "0.00", "0.00", "0.00", "0.00", "no"],
    ]


def test_the_summary_says_on_how_many_rows_and_at_which_rate_pairs_were_tested(result: geh.Interactions) -> None:
    evidence = geh.Evidence(np.array([0.9, np.nan, -0.2]), np.array([0.1, np.nan, 0.3]), np.array([1e-6, 1, 0.7]), 800)
    words = repr(result.with_evidence(evidence))
    assert "\n1 of 3 pairs significant on 800 held-out rows (false discovery rate 5 %)\n" in words
    assert "\nlow, high in table(): 95 % interval of the network's score over draws and points\n" in words
    assert [line.split() for line in words.splitlines()[4:]] == [
        ["unit_i", "unit_j", "mean", "supported", "slope", "slope_se", "p_value", "significant"],
        ["0", "rooms", "age", "5.000", "4.356", "0.90", "0.10", "<0.001", "yes"],
        ["1", "age", "price", "3.000", "0.538", "-0.20", "0.30", "0.700", "no"],
        ["2", "rooms", "price", "0.000", "0.000", "1.000", "no"],  # no slope
    ]
    untested = geh.Evidence(*(np.where([True, True, False], values, np.nan) for values in vars_of(evidence)), 1)
    assert "\n1 of 2 tested pairs significant on 1 held-out rows" in repr(result.with_evidence(untested))


def vars_of(evidence: geh.Evidence) -> tuple[np.ndarray, ...]:
    return evidence.slope, evidence.slope_se, evidence.p_value


def test_names_cannot_smuggle_markup_into_a_notebook() -> None:
    result = explain_weighted(names=["<script>alert(1)</script>", "<b>", "c & d"])
    page = result._repr_html_()
    assert "<script" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "c &amp; d" in page
    assert "<script>alert(1)</script>" in repr(result)


def test_a_posterior_cannot_smuggle_markup_into_a_notebook() -> None:
    explainer = geh.GEHExplainer(Weighted(), posterior=geh.posterior.WeightSamples(lambda k: {"w": torch.rand(2)}))
    page = explainer.explain(POINTS, groups=SIDES, draws=2, progress=False)._repr_html_()
    assert "<lambda" not in page
    assert "&lt;lambda" in page
