"""Plots of the signed effects of a pair: regions, and densities of draws."""

from itertools import pairwise

import numpy as np
import pytest
from drawn_marks import WORDS, in_rows, places, segments
from matplotlib.colors import to_hex, to_rgba
from synthetic_results import evidence_result, random_result, result_of

import geh_explain as geh
from geh_explain.plots import palette


def test_the_regions_are_those_of_the_table() -> None:
    result = random_result(5, groups=4)
    axes = result.plot.regions("unit 0", 1, level=0.9)
    table = result.regions(0, 1, 0.9)
    lines, dots = axes.collections
    assert segments(lines)[:, :, 0] == pytest.approx(table[["low", "high"]].to_numpy())
    assert places(dots)[:, 0] == pytest.approx(table["mean"])
    expected = np.where(table["mean"] > 0, palette.POSITIVE, palette.NEGATIVE)
    assert [to_rgba(colour) for colour in expected] == [tuple(colour) for colour in dots.get_facecolors()]
    assert len(set(expected)) == 2
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0 (5)", "1 (5)", "2 (5)", "3 (5)"]
    assert np.diff(places(dots)[:, 1]).tolist() == [-1, -1, -1]


def test_the_title_of_regions_has_the_decision_about_the_pair() -> None:
    result = evidence_result(random_result())
    for rule, (accepted, other) in WORDS.items():
        decided = in_rows(result, rule)
        for pair in (int(np.argmax(decided)), int(np.argmin(decided))):
            i, j = (int(ends[pair]) for ends in np.triu_indices(5, 1))
            title = result.plot.regions(i, j, rule=rule).get_title().replace("\n", " ")
            assert title.endswith(f"({accepted if decided[pair] else other})")


def test_densities_of_pairs_that_are_not_accepted_are_grey() -> None:
    result = evidence_result(random_result())
    for rule, (_, other) in WORDS.items():
        axes = result.plot.draws(pairs=10, rule=rule)
        ridges = [line for line in axes.lines if len(line.get_xdata()) > 100]
        grey = [to_hex(ridge.get_color()) == palette.UNSURE for ridge in ridges]
        assert grey == (~result.table(rule=rule).iloc[:, -1].astype(bool)).tolist()
        assert f"grey: {other}" in axes.get_title()


@pytest.mark.parametrize("groups", [3, 60])
def test_the_names_of_few_and_many_regions_do_not_touch(groups: int) -> None:
    axes = random_result(3, groups=groups, points=5 * groups).plot.regions(0, 1)
    axes.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(upper.y0 >= lower.y1 - 1 for upper, lower in pairwise(boxes))


def test_ridges_peak_near_the_means() -> None:
    result = random_result(5, draws=400)
    axes = result.plot.draws(pairs=4)
    means = np.sort(result.geh.pair_mean)[::-1][:4]
    ridges = [line for line in axes.lines if len(line.get_xdata()) > 100]
    for ridge, mean in zip(ridges, means, strict=True):
        assert ridge.get_xdata()[np.argmax(ridge.get_ydata())] == pytest.approx(mean, abs=0.2)
    marked = [segments(collection)[0, 0, 0] for collection in axes.collections if hasattr(collection, "get_segments")]
    assert marked == pytest.approx(means)


def test_ridges_end_at_zero_and_keep_all_of_the_posterior() -> None:
    signed = np.abs(np.random.default_rng(0).normal(size=(2000, 1, 1)))
    axes = result_of(signed, ["a", "b"], np.zeros(3, dtype=int)).plot.draws()
    ridge = next(line for line in axes.lines if len(line.get_xdata()) > 100)
    assert ridge.get_xdata().min() == 0
    assert ridge.get_ydata()[0] == pytest.approx(0.85, abs=0.08)  # half a Gaussian is highest at 0


def test_ridges_survive_constant_and_few_draws() -> None:
    for draws in (2, 3, 30):
        signed = np.random.default_rng(0).normal(2, 1, size=(draws, 1, 3))
        signed[:, :, 1] = 5.0
        signed[:, :, 2] = 0.0
        axes = result_of(signed, list("abc"), np.zeros(3, dtype=int)).plot.draws()
        axes.figure.canvas.draw()
        marked = [segments(lines)[0, 0, 0] for lines in axes.collections if hasattr(lines, "get_segments")]
        assert marked == pytest.approx([5.0, np.abs(signed[:, 0, 0]).mean(), 0.0])


def test_one_draw_has_no_density() -> None:
    with pytest.raises(geh.GEHError, match="at least 2 posterior draws"):
        random_result(draws=1).plot.draws()
