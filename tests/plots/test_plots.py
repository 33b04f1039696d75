"""Plots show the numbers of the result, take axes, return them, and leave the global style alone."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from drawn_marks import WORDS, in_rows, places, segments
from explaining import explain_point, uniform_points
from matplotlib.colors import to_hex
from synthetic_results import LONG_NAME, evidence_result, partial_result, random_result, result_of, without_draws

import geh_explain as geh
from geh_explain.analyses.surface import Surface
from geh_explain.groups.number import choose_group_number
from geh_explain.plots import palette
from geh_explain.plots.axes import wrap
from geh_explain.plots.calibration import draw_calibration
from geh_explain.plots.surface import draw_surface
from geh_explain.units import PairSet


@pytest.mark.parametrize("rule", WORDS)
def test_the_heatmap_shows_the_means_and_hatches_exactly_what_the_rule_does_not_accept(rule: str) -> None:
    result = evidence_result(random_result())
    axes = result.plot.heatmap("geh", rule=rule)
    shown = axes.images[0].get_array().filled(np.nan)
    off = ~np.eye(5, dtype=bool)
    assert shown[off] == pytest.approx(result.geh.mean[off])
    assert np.isnan(np.diag(shown)).all()
    middles = segments(axes.collections[0]).mean(axis=1)
    hatched = {(int(row), int(column)) for column, row in np.round(middles)}
    first, second = (ends[~in_rows(result, rule)].tolist() for ends in np.triu_indices(5, 1))
    unsure = {*zip(first, second, strict=True), *zip(second, first, strict=True)}
    assert hatched == unsure
    assert 0 < len(unsure) < 20
    assert f"hatched: {WORDS[rule][1]}" in axes.get_title().replace("\n", " ")
    assert [label.get_text() for label in axes.get_yticklabels()] == result.names


def test_the_heatmap_shows_what_labels_support_below_the_diagonal() -> None:
    result = evidence_result(random_result(), untested=1)
    axes = result.plot.heatmap()
    shown = axes.images[0].get_array().filled(np.nan)
    above, below = np.triu_indices(5, 1), np.triu_indices(5, 1)[::-1]
    assert shown[above] == pytest.approx(result.geh.pair_mean)
    assert shown[below] == pytest.approx(np.nan_to_num(result.decisions().supported))
    assert "below the diagonal: supported by the labels" in axes.get_title().replace("\n", " ")


def test_hatches_stay_inside_their_cells() -> None:
    for units in (4, 12, 40):
        lines = segments(random_result(units).plot.heatmap(level=0.9999, rule="interval").collections[0])
        cells = np.round(lines.mean(axis=1))[:, None]
        assert np.abs(lines - cells).max() <= 0.5 + 1e-9


def test_a_heatmap_of_many_units_keeps_the_strongest_and_says_so() -> None:
    result = random_result(60)
    axes = result.plot.heatmap(max_units=10)
    kept = {label.get_text() for label in axes.get_yticklabels()}
    best = result.top(1).iloc[0]
    assert len(kept) == 10
    assert {best.unit_i, best.unit_j} <= kept
    assert "50 weaker units not shown" in axes.get_title().replace("\n", " ")


def test_clustering_puts_units_that_interact_side_by_side() -> None:
    first, second = np.triu_indices(8, 1)
    strength = np.where(first % 2 == second % 2, 5.0, 0.5)  # even units interact, and odd ones
    noise = np.random.default_rng(0).normal(scale=0.1, size=(20, 1, len(first)))
    result = result_of(strength + noise, [str(i) for i in range(8)], np.zeros(4, dtype=int))
    given, clustered = result.plot.heatmap(), result.plot.heatmap(order="cluster")
    assert [label.get_text() for label in given.get_xticklabels()] == result.names
    order = [int(label.get_text()) for label in clustered.get_xticklabels()]
    assert sorted(order) == list(range(8))
    assert len({unit % 2 for unit in order[:4]}) == 1
    shown = clustered.images[0].get_array().filled(0)
    assert shown == pytest.approx(result.geh.mean[np.ix_(order, order)])


def test_the_intervals_are_those_of_the_table_with_half_the_posterior_in_the_thick_part() -> None:
    result = random_result()
    axes = result.plot.intervals(pairs=10)
    table = result.table()
    thin, thick, dots = axes.collections
    assert segments(thin)[:, :, 0] == pytest.approx(table[["low", "high"]].to_numpy())
    # The 75 % quantile of Student's distribution with 29 degrees of freedom, for one more draw beside 30.
    half = 0.683044 * np.sqrt(31 / 30) * table["std"].to_numpy()
    assert segments(thick)[:, 0, 0] == pytest.approx(table["mean"] - half, abs=1e-4)
    assert segments(thick)[:, 1, 0] == pytest.approx(table["mean"] + half, abs=1e-4)
    assert thick.get_linewidths()[0] > 2 * thin.get_linewidths()[0]
    assert places(dots)[:, 0] == pytest.approx(table["mean"])
    sure = [to_hex(colour) == palette.SURE.lower() for colour in thin.get_colors()]
    assert sure == table["stable"].tolist()
    assert set(sure) == {True, False}
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["stable", "not stable"]
    assert axes.get_yticklabels()[0].get_text() == f"{table.unit_i[0]} × {table.unit_j[0]}"


@pytest.mark.parametrize("rule", WORDS)
def test_intervals_have_the_colours_of_the_decisions(rule: str) -> None:
    result = evidence_result(random_result())
    axes = result.plot.intervals(rule=rule)
    table = result.table(rule=rule)
    sure = [to_hex(colour) == palette.SURE.lower() for colour in axes.collections[0].get_colors()]
    assert sure == table.iloc[:, -1].tolist()
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == [*WORDS[rule], *["supported by the labels"] * (rule == "evidence")]


def test_intervals_show_supported_scores_beside_the_means() -> None:
    result = evidence_result(random_result(), untested=2)
    axes = result.plot.intervals(pairs=10)
    table = result.table()
    *_, dots, diamonds = axes.collections
    assert places(dots)[:, 0] == pytest.approx(table["mean"])
    # Nothing is known about the support of pairs that were not tested.
    supported = table["supported"].where(table["p_value"].notna())
    assert supported.isna().sum() == 2
    assert places(diamonds)[:, 0] == pytest.approx(supported, nan_ok=True)
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        f"{i} × {j}" for i, j in zip(table["unit_i"], table["unit_j"], strict=True)
    ]


@pytest.mark.parametrize("rule", ["sign", "interval"])
@pytest.mark.parametrize("draws", [1, 20])
def test_pairs_that_were_not_tested_have_no_diamond_by_any_rule(rule: str, draws: int) -> None:
    result = evidence_result(random_result(draws=draws), untested=2)
    diamonds = result.plot.intervals("supported", rule=rule).collections[-1]
    tested = result.evidence.tested[result.decisions("supported", rule=rule).order]
    assert np.isnan(places(diamonds)[:, 0]).tolist() == (~tested).tolist()


def test_all_measures_stand_in_the_rows_of_the_pairs_that_geh_finds_strongest() -> None:
    result = random_result()
    axes = result.plot.intervals("all", pairs=6)
    order = np.argsort(-result.geh.pair_mean, kind="stable")[:6]
    for measure, dots in zip(("aeh", "geh", "eah"), axes.collections[2::3], strict=True):
        scores = result.scores(measure)
        assert places(dots)[:, 0] == pytest.approx(scores.pair_mean[order])
        assert np.round(places(dots)[:, 1]).tolist() == [5, 4, 3, 2, 1, 0]
        filled = [to_hex(face) != "#ffffff" for face in dots.get_facecolors()]
        assert filled == in_rows(result)[order].tolist()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["AEH", "GEH", "EAH", "not stable"]


def test_intervals_of_one_unit_are_those_of_its_pairs() -> None:
    result = random_result()
    name = result.names[2]
    axes = result.plot.intervals(unit=name)
    table = result.table(unit=name)
    assert places(axes.collections[-1])[:, 0].tolist() == pytest.approx(table["mean"].tolist())
    assert f"Strongest pairs of {name}" in axes.get_title(loc="left") + axes.get_title()
    with pytest.raises(geh.GEHError, match="did you mean"):
        result.plot.intervals(unit=f"{name}x")


def test_one_draw_is_drawn_without_intervals() -> None:
    result = random_result(draws=1)
    for axes, said in (
        (result.plot.intervals(), "no intervals"),
        (result.plot.intervals("all"), "no intervals"),
        (result.plot.regions(0, 1), "no intervals"),
        (result.plot.heatmap(), "no decisions"),
        (result.plot.network(), "no decisions"),
    ):
        assert said in axes.get_title()
    assert not result.plot.heatmap().collections
    dots = result.plot.intervals().collections
    assert len(dots) == 1
    assert sorted(places(dots[0])[:, 0]) == pytest.approx(sorted(result.geh.pair_mean))


def test_draws_that_were_not_kept_leave_the_other_pictures() -> None:
    kept, result = random_result(), without_draws(random_result())
    network = result.plot.network()
    colours = kept.plot.network().collections[0].get_edgecolors()
    assert network.collections[0].get_edgecolors() == pytest.approx(colours)
    for picture in (lambda plot: plot.heatmap(), lambda plot: plot.intervals("all"), lambda plot: plot.regions(0, 1)):
        lines = segments(picture(result.plot).collections[0])
        assert lines == pytest.approx(segments(picture(kept.plot).collections[0]))
    with pytest.raises(geh.GEHError, match="did not fit into memory"):
        result.plot.draws()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("order", lambda plot: plot.heatmap(order="random")),
        ("max_units", lambda plot: plot.heatmap(max_units=1)),
        ("level", lambda plot: plot.heatmap(level=95)),
        ("rule", lambda plot: plot.heatmap(rule="strict")),
        ("rule", lambda plot: plot.network(rule="evidence")),
        ("measure", lambda plot: plot.draws("supported")),
        ("measure", lambda plot: plot.heatmap("all")),
        ("pairs", lambda plot: plot.intervals(pairs=0)),
        ("level", lambda plot: plot.intervals(level=0)),
        ("measure", lambda plot: plot.intervals("GEH")),
        ("max_units", lambda plot: plot.network(max_units=2.5)),
        ("pairs", lambda plot: plot.network(pairs=-1)),
        ("level", lambda plot: plot.network(level="high")),
        ("main", lambda plot: plot.network(main=[1.0, 2.0])),
        ("main", lambda plot: plot.network(main=[1.0, 2.0, 3.0, 4.0, np.nan])),
        ("main", lambda plot: plot.network(main="large")),
        ("images", lambda plot: plot.network(images=[np.ones((3, 3))])),
        ("images", lambda plot: plot.network(images={"nobody": np.ones((3, 3))})),
        ("images", lambda plot: plot.network(images={"unit 0": np.ones((3, 5, 5))})),
        ("unit", lambda plot: plot.regions(0, "nobody")),
        ("level", lambda plot: plot.regions(0, 1, level=1)),
        ("pairs", lambda plot: plot.draws(pairs=0)),
        ("ax", lambda plot: plot.draws(ax=plt.subplots(2)[1])),
    ],
)
def test_wrong_arguments_are_named(name: str, wrong: object) -> None:
    with pytest.raises(geh.GEHError, match=f"^{name}"):
        wrong(random_result().plot)


def test_axes_are_used_and_returned_and_the_style_is_left_alone() -> None:
    before = dict(plt.rcParams)
    figure, grid = plt.subplots(2, 4)
    plot, given = random_result().plot, list(grid.flat)
    pictures = (
        plot.heatmap,
        lambda ax: plot.heatmap(order="cluster", ax=ax),
        lambda ax: plot.intervals("eah", ax=ax),
        lambda ax: plot.intervals("all", ax=ax),
        plot.network,
        lambda ax: plot.regions(0, 1, ax=ax),
        plot.draws,
    )
    for picture, ax in zip(pictures, given, strict=False):
        assert picture(ax=ax) is ax
    assert dict(plt.rcParams) == before
    assert plt.get_fignums() == [figure.number]


def test_dollars_in_names_are_no_formulas() -> None:
    signed = np.random.default_rng(0).normal(1, 0.1, size=(10, 1, 3))
    plot = result_of(signed, ["$a_$", "x^$", LONG_NAME], np.zeros(3, dtype=int)).plot
    for axes in (plot.heatmap(), plot.intervals(), plot.network(), plot.regions(0, 1), plot.draws()):
        axes.figure.canvas.draw()
        named = [text for text in (*axes.texts, axes.title, *axes.get_yticklabels()) if "$" in text.get_text()]
        assert named
        assert not any(text.get_parse_math() for text in named)


def test_long_names_are_broken_once_and_keep_their_end() -> None:
    assert wrap("age") == "age"
    assert wrap("annual income in $ and of $ all households") == "annual income in $\nand of $ all households"
    assert wrap(LONG_NAME) == "features.denseblock4.\ndenselayer16.conv2[1024]"
    assert wrap("x" * 30) == "x" * 15 + "\n" + "x" * 15
    first, second = wrap(10 * LONG_NAME).split("\n")
    assert first == "features.denseblock4."
    assert second.startswith("…")
    assert second.endswith("conv2[1024]")


def test_the_calibration_plot_shows_observed_against_nominal_shares() -> None:
    levels, covered = np.array([0.5, 0.9]), np.array([0.4, 0.95])
    axes = draw_calibration(levels, covered, xlabel="predicted")
    diagonal, shares = axes.lines
    assert diagonal.get_xydata().tolist() == [[0, 0], [1, 1]]
    assert shares.get_xydata() == pytest.approx(np.stack([levels, covered], axis=1))
    assert axes.get_xlabel() == "predicted"


def test_the_surface_plot_shows_the_values_on_the_grid() -> None:
    grid = np.linspace(-1, 1, 4)
    surface = Surface((0, 1), ("a", "b"), grid, grid, np.outer(grid, grid), np.zeros((4, 4)), np.zeros((5, 2)))
    shown = draw_surface(surface).collections[0].get_array()
    assert np.asarray(shown).reshape(4, 4) == pytest.approx(np.outer(grid, grid))


def test_a_result_has_no_plots_of_other_objects() -> None:
    plots = {name for name in dir(random_result().plot) if not name.startswith("_")}
    assert plots == {"heatmap", "intervals", "network", "regions", "draws"}


def test_the_curve_of_group_numbers_is_drawn_with_the_choice() -> None:
    choice = choose_group_number(np.abs(np.random.default_rng(0).normal(size=(12, 6))))
    axes = choice.plot()
    curve, chosen = axes.lines
    assert curve.get_xdata() == pytest.approx(np.arange(2, 13))
    assert curve.get_ydata() == pytest.approx(choice.delta)
    assert set(chosen.get_xdata()) == {choice.chosen}


def test_pictures_survive_dollars_and_long_names(tmp_path):
    names = ["a_$", "$_b", "x^$", "features.denseblock4.denselayer16.conv2[1024]"]
    result = explain_point(lambda x: x.prod(1), uniform_points(20, 4), names=names)
    for axes in (result.plot.heatmap(), result.plot.intervals()):
        axes.figure.savefig(tmp_path / "picture.png")
        bounds = axes.get_window_extent()
        assert bounds.width > 0.4 * axes.figure.bbox.width
    plt.close("all")


def test_cells_of_pairs_that_were_not_computed_are_grey():
    known = PairSet.touching([1], n_units=4)
    result = partial_result(known)
    ax = result.plot.heatmap()
    scores, unknown = (image.get_array() for image in ax.images)
    missing = np.isnan(known.matrix(np.ones(3)))
    np.testing.assert_array_equal(np.isnan(scores.filled(np.nan)), missing | np.eye(4, dtype=bool))
    np.testing.assert_array_equal(np.isnan(unknown.filled(np.nan)), ~missing)
    assert "grey: not computed; 3 of 6 pairs were computed" in ax.get_title().replace("\n", " ")


def test_plots_of_some_pairs_show_these_and_say_so():
    result = partial_result(PairSet.of([(0, 1), (0, 3)], n_units=6))
    for ax in (result.plot.intervals(), result.plot.network(), result.plot.draws(), result.plot.heatmap()):
        assert "2 of 15 pairs were computed" in ax.get_title().replace("\n", " ")
    assert "3 units without computed pairs not shown" in ax.get_title().replace("\n", " ")
    labels = [label.get_text() for label in result.plot.intervals().get_yticklabels()]
    assert sorted(labels) == ["unit 0 × unit 1", "unit 0 × unit 3"]


def test_units_that_were_not_compared_are_apart_in_the_order_of_clusters():
    result = partial_result(PairSet.of([(0, 5), (1, 4)], n_units=6))
    shown = [label.get_text() for label in result.plot.heatmap(order="cluster").get_xticklabels()]
    assert abs(shown.index("unit 0") - shown.index("unit 5")) == 1 == abs(shown.index("unit 1") - shown.index("unit 4"))
