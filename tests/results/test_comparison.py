"""The comparison of two results: known differences, the level of its test, and refusals that say what to do."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from compared_results import NAMES, cubic, known
from explaining import explain_draws, explain_point, random_points
from networks import mlp
from scipy import stats
from synthetic_results import random_result, result_of, without_draws
from torch import Tensor, nn

import geh_explain as geh

# Known differences.


def test_the_difference_is_the_weighted_sum_of_absolute_differences_of_group_means() -> None:
    one, other = known([[1.0, 2.0, 0.0], [4.0, -1.0, 0.0]]), known([[1.5, 2.0, 0.0], [1.0, 1.0, 0.0]])
    table = one.compare(other).table()
    assert table.columns.tolist() == [
        *("unit_i", "unit_j", "mean_a", "mean_b", "difference", "low", "high", "p_value", "different")
    ]
    assert table[["unit_i", "unit_j"]].values.tolist() == [["a", "b"], ["a", "c"], ["b", "c"]]
    # Weights 2/3 and 1/3: |1 - 1.5| 2/3 + |4 - 1| / 3, and |-1 - 1| / 3, a change of sign.
    np.testing.assert_allclose(table["difference"], [4 / 3, 2 / 3, 0], atol=1e-12)
    np.testing.assert_allclose(table["mean_a"], [2 / 3 + 4 / 3, 4 / 3 + 1 / 3, 0], atol=1e-12)
    np.testing.assert_allclose(table["mean_b"], [1 + 1 / 3, 4 / 3 + 1 / 3, 0], atol=1e-12)
    assert table["different"].tolist() == [True, True, False]
    assert table["p_value"][2] == 1
    assert ((table["low"] <= table["difference"]) & (table["difference"] <= table["high"])).all()


def test_regions_have_the_differences_of_one_pair() -> None:
    one, other = known([[1.0, 0, 0], [4.0, 0, 0]], (0, 0, 1, 1)), known([[1.5, 0, 0], [1.0, 0, 0]], (0, 0, 1, 1), 0.02)
    regions = one.compare(other, level=0.9).regions("b", "a")
    assert regions.index.tolist() == ["0", "1"]
    assert regions[["share", "mean_a", "mean_b", "difference"]].values.tolist() == [[0.5, 1, 1.5, -0.5], [0.5, 4, 1, 3]]
    # Welch: (v + w)^2 / (v^2 + w^2) degrees of freedom with one each.
    v, w = 0.01**2, 0.02**2
    half = stats.t.ppf(0.95, (v + w) ** 2 / (v**2 + w**2)) * np.sqrt(v + w)
    np.testing.assert_allclose(regions["high"] - regions["difference"], half)
    with pytest.raises(geh.GEHError, match="same unit"):
        one.compare(other).regions("a", "a")


def test_two_samples_of_points_are_compared_by_the_test_of_welch() -> None:
    explainer = geh.GEHExplainer(cubic, posterior=geh.posterior.PointEstimate())
    x, y = random_points(40, 3, seed=1), random_points(70, 3, seed=2) + 0.3
    one, other = (explainer.explain(points, groups=3, progress=False) for points in (x, y))
    comparison = one.compare(other)
    assert (comparison.measure, comparison.same_points, comparison.sources) == ("mean", False, ("points",))
    expected = stats.ttest_ind(2 * x[:, 1], 2 * y[:, 1], equal_var=False)
    np.testing.assert_allclose(comparison.p_value[0], expected.pvalue, rtol=1e-9)
    low, high = expected.confidence_interval(0.95)
    np.testing.assert_allclose([comparison.low[0], comparison.high[0]], [low, high], rtol=1e-9)
    np.testing.assert_allclose(comparison.difference, [2 * (x[:, 1].mean() - y[:, 1].mean()), 0, 0], atol=1e-12)
    backwards = other.compare(one)
    np.testing.assert_allclose(backwards.p_value, comparison.p_value)
    np.testing.assert_allclose(backwards.difference, -comparison.difference)


def test_labels_of_the_same_names_are_compared_group_by_group_at_different_points() -> None:
    explainer = geh.GEHExplainer(cubic, posterior=geh.posterior.PointEstimate())
    x, y = random_points(40, 3, seed=1), random_points(70, 3, seed=2)
    of_x, of_y = (np.where(points[:, 0] > 0, "right", "left") for points in (x, y))
    comparison = explainer.explain(x, groups=of_x, progress=False).compare(
        explainer.explain(y, groups=of_y, progress=False)
    )
    assert comparison.measure == "groups"
    p = [
        stats.ttest_ind(2 * x[of_x == group, 1], 2 * y[of_y == group, 1], equal_var=False).pvalue
        for group in ("left", "right")
    ]
    np.testing.assert_allclose(comparison.regions("x0", "x1")["p_value"], p, rtol=1e-8)
    np.testing.assert_allclose(comparison.p_value[0], min(2 * min(p), max(p)), rtol=1e-8)


def test_the_finer_of_nested_groups_is_merged_as_if_the_coarser_had_been_explained() -> None:
    x = random_points(60, 3)
    coarse, fine = (x[:, 0] > 0).long(), (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    network = lambda x: torch.sin(x.sum(1)) * x[:, 1]  # noqa: E731
    in_coarse, in_fine, other = (
        explain_point(model, x, groups=groups)
        for model, groups in ((network, coarse), (network, fine), (cubic, coarse))
    )
    merged, direct = (result.compare(other) for result in (in_fine, in_coarse))
    assert merged.groups is not None
    assert merged.groups.names == ["0", "1"]
    for name in ("mean_a", "mean_b", "difference", "low", "high", "p_value"):
        np.testing.assert_allclose(getattr(merged, name), getattr(direct, name), rtol=1e-6, atol=1e-12)


def test_a_result_does_not_differ_from_itself() -> None:
    result = explain_point(cubic, random_points(30, 3), groups=2)
    comparison = result.compare(result)
    assert comparison.difference.tolist() == [0, 0, 0]
    assert comparison.p_value.tolist() == [1, 1, 1]
    assert repr(comparison).startswith("None of 3 pairs differs between A and B (false discovery rate 5 %).")


def test_variances_of_draws_and_points_add_up() -> None:
    generator = np.random.default_rng(0)
    one, other = (
        result_of(generator.normal(0, 1, (draws, 1, 3)), NAMES, [0] * 9, np.full((1, 3), error), inputs="x")
        for draws, error in ((12, 0.3), (30, 0.2))
    )
    comparison = one.compare(other)
    variances = [one.signed[:, 0].var(axis=0, ddof=1) * (13 / 12), other.signed[:, 0].var(axis=0, ddof=1) * (31 / 30)]
    variances += [np.full(3, 0.09), np.full(3, 0.04)]
    freedom = np.sum(variances, axis=0) ** 2 / sum(v**2 / n for v, n in zip(variances, (11, 29, 8, 8), strict=True))
    expected = 2 * stats.t.sf(np.abs(comparison.difference) / np.sqrt(np.sum(variances, axis=0)), freedom)
    np.testing.assert_allclose(comparison.p_value, expected)
    assert comparison.sources == ("draws", "points")
    widths = [np.diff([c.low, c.high], axis=0) for c in (one.compare(other, source=s) for s in ("draws", "points"))]
    assert (np.maximum(*widths) < comparison.high - comparison.low).all()


def test_draws_of_the_same_functions_are_paired() -> None:
    network, x = mlp(3, 12, 2, dropout=0.3, seed=0), random_points(30, 3)
    one, other, reseeded = (
        geh.GEHExplainer(network).explain(points, 0, groups=1, draws=15, seed=seed, progress=False)
        for points, seed in ((x, 0), (x + 0.5, 0), (x + 0.5, 1))
    )
    compared = one.compare(other, source="draws")
    # One more draw: the standard deviation of the differences within draws, times sqrt(1 + 1 / K).
    within = one.signed[:, 0] - other.signed[:, 0]
    half = stats.t.ppf(0.975, 14) * within.std(axis=0, ddof=1) * np.sqrt(16 / 15)
    np.testing.assert_allclose([compared.low, compared.high], [within.mean(0) - half, within.mean(0) + half])
    assert "Draws of both results are of the same functions, and are paired." in compared.notes
    unpaired = one.compare(reseeded, source="draws")
    assert not any("paired" in note for note in unpaired.notes)
    itself = one.compare(one, source="draws")
    assert itself.p_value.tolist() == [1, 1, 1]
    # The masks are the same, the networks are not.
    with torch.no_grad():
        network[0].weight.mul_(1.1)
    changed = geh.GEHExplainer(network).explain(x, 0, groups=1, draws=15, progress=False)
    assert not any("paired" in note for note in one.compare(changed).notes)


def test_results_without_kept_draws_have_the_same_tests_and_wider_intervals_of_sums() -> None:
    one, other = random_result(draws=20, inputs="x"), random_result(draws=15, noise=0.7, inputs="x")
    kept = one.compare(other)
    lost = without_draws(one), without_draws(other)
    for result in lost:
        result.settings["inputs"] = "x"
    moments = lost[0].compare(lost[1])
    np.testing.assert_allclose(moments.p_value, kept.p_value)
    np.testing.assert_allclose(moments.difference, kept.difference)
    assert (moments.high >= kept.high - 1e-9).all()


def test_scores_are_compared_by_the_intervals_of_both() -> None:
    one, other = random_result(draws=30), random_result(draws=25, noise=1.0)
    for measure in ("aeh", "eah"):
        comparison = one.compare(other, measure=measure, level=0.9)
        tables = [result.decisions(measure, 0.9) for result in (one, other)]
        difference = tables[0].mean - tables[1].mean
        np.testing.assert_allclose(comparison.difference, difference)
        reach = np.hypot(tables[0].high - tables[0].mean, tables[1].high - tables[1].mean)
        np.testing.assert_allclose(comparison.high - difference, reach)
        np.testing.assert_array_equal(comparison.p_value < 0.1, (comparison.low > 0) | (comparison.high < 0))
    with pytest.raises(geh.GEHError, match="measure='aeh' compares scores"):
        one.compare(other, measure="aeh").regions(0, 1)


# The level and the power of the test.


def test_two_samples_of_one_population_differ_in_few_pairs() -> None:
    explainer = geh.GEHExplainer(mlp(5, 20, 1, seed=3, gain=2.0), posterior=geh.posterior.PointEstimate())
    p_values, of_groups = [], []
    for seed in range(40):
        x, y = random_points(60, 5, seed=2 * seed), random_points(60, 5, seed=2 * seed + 1)
        one, other = (explainer.explain(z, groups=(z[:, 0] > 0).long(), progress=False) for z in (x, y))
        p_values.append(one.compare(other, measure="mean").p_value)
        of_groups.append(one.compare(other).p_value)
    assert np.mean(np.array(p_values) < 0.05) < 0.09
    assert np.mean(np.array(of_groups) < 0.05) < 0.09
    assert np.mean(np.array(p_values) < 0.5) > 0.35  # and not because no pair could differ


def test_the_difference_is_the_score_of_the_difference_of_both_networks_whose_errors_are_paired() -> None:
    x = random_points(200, 3)
    one, other = (lambda x, c=c: torch.sin(x.sum(1)) * x[:, 0] + c * x[:, 0] * x[:, 1] for c in (0.0, 0.05))
    groups = (x[:, 1] > 0).long()
    compared = explain_point(one, x, groups=groups).compare(explain_point(other, x, groups=groups))
    paired = explain_point(lambda x: one(x) - other(x), x, groups=groups)
    np.testing.assert_allclose(compared.difference, paired.geh.pair_mean, rtol=1e-9, atol=1e-15)
    # Local interactions of the first pair differ by 0.05 at every point; independent errors are far larger.
    assert compared.p_value[0] > 0.5
    assert paired.sign_p_values()[0] < 1e-9


def test_two_runs_of_one_posterior_do_not_differ_and_a_planted_change_does() -> None:
    network = mlp(4, 20, 20, 1, dropout=0.2, seed=0)
    x = random_points(80, 4)

    class Changed(nn.Module):
        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Tensor) -> Tensor:
            return self.network(x) + 2 * (x[:, 0] * x[:, 2])[:, None]

    one, same, changed = (
        geh.GEHExplainer(model).explain(x, groups=2, draws=30, seed=seed, progress=False)
        for model, seed in ((network, 0), (network, 1), (Changed(network), 2))
    )
    assert (one.compare(same).p_value > 0.05).all()
    table = one.compare(changed).table()
    assert table[table["different"]][["unit_i", "unit_j"]].values.tolist() == [["x0", "x2"]]
    assert table["difference"][0] == pytest.approx(2, abs=0.3)


def test_without_any_known_error_there_is_no_decision() -> None:
    one, other = (random_result(3, draws=1, inputs="x", noise=noise) for noise in (0.1, 0.2))
    comparison = one.compare(other)
    assert comparison.different is None
    table = comparison.table()
    assert table["different"].isna().all()
    assert table[["low", "high", "p_value"]].isna().all().all()
    assert "no test is possible" in repr(comparison)
    axes = comparison.plot()
    assert len(axes.get_yticklabels()) == 3
    plt.close("all")


def test_clusters_of_points_count_as_such() -> None:
    x = random_points(30, 3).repeat_interleave(8, 0)
    y = random_points(30, 3, seed=5).repeat_interleave(8, 0)
    clusters = np.repeat(np.arange(30), 8)
    one, other = (explain_point(cubic, z, groups=1, clusters=clusters) for z in (x, y))
    expected = stats.ttest_ind(2 * x[::8, 1], 2 * y[::8, 1], equal_var=False)
    np.testing.assert_allclose(one.compare(other).p_value[0], expected.pvalue, rtol=0.02)
    in_groups = [explain_point(cubic, z, groups=(z[:, 0] > 0).long(), clusters=clusters) for z in (x, y)]
    comparison = in_groups[0].compare(in_groups[1])
    assert (
        comparison.p_value[0] > explain_point(cubic, x, groups=1).compare(explain_point(cubic, y, groups=1)).p_value[0]
    )


def test_saved_results_are_compared_as_before(tmp_path: Path) -> None:
    x = random_points(40, 3)
    one, other = (
        explain_draws(mlp(3, 20, 1, dropout=0.1), x, groups=3),
        explain_point(mlp(3, 20, 1, seed=1), x, groups=2),
    )
    loaded = [
        geh.Interactions.load(result.save(tmp_path / f"{place}.npz")) for place, result in enumerate((one, other))
    ]
    pd.testing.assert_frame_equal(loaded[0].compare(loaded[1]).table(), one.compare(other).table())


def test_the_plot_has_the_scores_of_the_pairs_that_differ_most() -> None:
    one, other = random_result(4, inputs="x"), random_result(4, noise=2.0, draws=9, inputs="x")
    comparison = one.compare(other, labels=("before", "after"))
    axes = comparison.plot(pairs=4)
    table = comparison.table().head(4)
    first, second = (axes.collections[place].get_offsets() for place in (1, 3))
    np.testing.assert_allclose(first[:, 0], table["mean_a"])
    np.testing.assert_allclose(second[:, 0], table["mean_b"])
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        f"{i} × {j}" for i, j in zip(table["unit_i"], table["unit_j"], strict=True)
    ]
    assert axes.texts[0].get_text().startswith(f"{table['difference'][0]:.3g}")
    plt.close("all")


def test_case_weights_count_as_repeated_points() -> None:
    x = random_points(30, 3)
    weights = np.arange(30) % 3  # a third of the points do not count
    repeated = x[np.repeat(np.arange(30), weights)]
    labels, of_repeated = (x[:, 0] > 0).long(), (repeated[:, 0] > 0).long()
    other = lambda x: torch.sin(x.sum(1)) * x[:, 1]  # noqa: E731
    weighted = [explain_point(model, x, groups=labels, sample_weight=weights) for model in (cubic, other)]
    plain = [explain_point(model, repeated, groups=of_repeated) for model in (cubic, other)]
    for measure in ("groups", "mean"):
        one, two = (pair[0].compare(pair[1], measure=measure) for pair in (weighted, plain))
        for name in ("mean_a", "mean_b", "difference"):
            np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-9, atol=1e-12)
        # Fewer distinct points than repeated ones: errors are larger.
        assert (one.p_value >= two.p_value).all()
