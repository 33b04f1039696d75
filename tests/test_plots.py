"""Pictures show the numbers of the result, take axes, return them, and leave the global style alone."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

import geh_explain as geh
from geh_explain.groups import choose
from geh_explain.interactions import Draws


def made_up(units: int = 5, draws: int = 30) -> geh.Interactions:
    rng = np.random.default_rng(0)
    pairs = units * (units - 1) // 2
    signed = rng.normal(np.linspace(0, 3, pairs), 0.5, size=(draws, 2, pairs))
    labels = np.array([0, 0, 0, 1, 1])
    return geh.Interactions(
        Draws(signed, np.abs(signed).mean(1)), labels, [f"unit {i}" for i in range(units)], ["0", "1"], {}
    )


@pytest.fixture(autouse=True)
def _close() -> object:
    yield
    plt.close("all")


def test_the_heatmap_shows_the_means_and_marks_significant_pairs() -> None:
    result = made_up()
    axes = result.plot.heatmap()
    shown = axes.images[0].get_array().filled(np.nan)
    off = ~np.eye(5, dtype=bool)
    assert shown[off] == pytest.approx(result.geh.mean[off])
    assert np.isnan(np.diag(shown)).all()
    dots = {tuple(point) for point in np.asarray(axes.collections[0].get_offsets(), dtype=int)}
    assert dots == set(zip(*np.nonzero(result.geh.interval()[0] > 0), strict=True))
    assert [label.get_text() for label in axes.get_yticklabels()] == result.names


def test_a_heatmap_of_many_units_keeps_the_strongest_and_says_so() -> None:
    result = made_up(60)
    axes = result.plot.heatmap(most=10)
    kept = {label.get_text() for label in axes.get_yticklabels()}
    best = result.top(1).iloc[0]
    assert len(kept) == 10
    assert {best.unit_i, best.unit_j} <= kept
    assert "50 weaker units not shown" in axes.get_title()


def test_the_intervals_are_those_of_the_table() -> None:
    result = made_up()
    axes = result.plot.intervals(pairs=10)
    table = result.table()
    ends = {
        (round(float(segment[0, 0]), 6), round(float(segment[1, 0]), 6))
        for container in axes.containers
        for segment in container.lines[2][0].get_segments()
    }
    assert ends == {(round(low, 6), round(high, 6)) for low, high in zip(table.low, table.high, strict=True)}
    assert axes.get_yticklabels()[0].get_text() == f"{table.unit_i[0]} × {table.unit_j[0]}"


def test_one_draw_is_drawn_without_intervals() -> None:
    result = made_up(draws=1)
    assert "no intervals" in result.plot.intervals().get_title()
    assert "no significance" in result.plot.heatmap().get_title()


def test_axes_are_used_and_returned_and_the_style_is_left_alone() -> None:
    before = dict(plt.rcParams)
    figure, (left, right) = plt.subplots(1, 2)
    assert made_up().plot.heatmap(ax=left) is left
    assert made_up().plot.intervals("eah", ax=right) is right
    assert dict(plt.rcParams) == before
    assert plt.get_fignums() == [figure.number]


def test_the_curve_of_group_numbers_is_drawn_with_the_choice() -> None:
    choice = choose(np.abs(np.random.default_rng(0).normal(size=(12, 6))))
    axes = choice.plot()
    curve, chosen = axes.lines
    assert curve.get_xdata() == pytest.approx(np.arange(2, 13))
    assert curve.get_ydata() == pytest.approx(choice.delta)
    assert set(chosen.get_xdata()) == {choice.chosen}
