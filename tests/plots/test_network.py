"""The network shows the strongest pairs: their strength, sign and certainty, and units as large as their effects."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.offsetbox import AnnotationBbox
from synthetic_results import LONG_NAME, evidence_result, random_result, result_of

from geh_explain.plots import palette


def drawn_edges(axes: plt.Axes, names: list[str]) -> list[tuple[str, str]]:
    """Return the names at both ends of each edge of a network, the strongest first."""
    directions = np.array([text.get_position() for text in axes.texts])
    near = [
        [names[np.argmax(directions @ path.vertices[end])] for end in (0, -1)]
        for path in axes.collections[0].get_paths()
    ]
    return [tuple(ends) for ends in near[::-1]]


def test_the_network_draws_the_strongest_pairs_as_wide_as_they_are_strong() -> None:
    result = random_result(6)
    axes = result.plot.network(pairs=7)
    top = result.top(7)
    assert drawn_edges(axes, result.names) == list(zip(top.unit_i, top.unit_j, strict=True))
    widths = axes.collections[0].get_linewidths()[::-1]
    assert widths / widths[0] == pytest.approx(top["mean"] / top["mean"][0])


def test_edges_have_the_sign_of_most_points() -> None:
    # Groups of 5, 3 and 2 points, and the three pairs of three units.
    signed = np.array([[3.0, 0.1, 5.0], [-1.0, -4.0, -1.0], [-1.0, -4.0, 0.0]])
    noise = 0.01 * np.random.default_rng(0).normal(size=(20, 3, 3)) * (signed != 0)
    labels = np.repeat([0, 1, 2], [5, 3, 2])
    axes = result_of(signed + noise, list("abc"), labels).plot.network()
    colours = dict(zip(drawn_edges(axes, list("abc")), axes.collections[0].get_edgecolors()[::-1], strict=True))
    ties = result_of(signed + noise, list("abc"), np.repeat([0, 1, 2], [4, 4, 4])).plot.network()
    assert {pair: to_hex(colour) for pair, colour in colours.items()} == {
        ("a", "b"): palette.NEUTRAL,  # 5 points against 3 + 2
        ("a", "c"): palette.NEUTRAL,
        ("b", "c"): palette.POSITIVE.lower(),
    }
    colours = dict(zip(drawn_edges(ties, list("abc")), ties.collections[0].get_edgecolors()[::-1], strict=True))
    assert {pair: to_hex(colour) for pair, colour in colours.items()} == {
        ("a", "b"): palette.NEGATIVE.lower(),
        ("a", "c"): palette.NEGATIVE.lower(),
        ("b", "c"): palette.NEUTRAL,
    }
    legend = [text.get_text() for text in ties.get_legend().get_texts()]
    assert "negative in most groups" in legend
    assert "positive in most groups" not in legend


@pytest.mark.parametrize("rule", ["evidence", "sign", "interval"])
def test_edges_are_dashed_and_pale_if_the_rule_does_not_accept_them(rule: str) -> None:
    result = evidence_result(random_result(6))
    accepted = result.table("geh", rule=rule).iloc[:, -1].astype(bool)
    axes = result.plot.network("geh", rule=rule)
    collection = axes.collections[0]
    opacity = collection.get_edgecolors()[::-1, 3]
    assert opacity == pytest.approx(np.where(accepted, 1, 0.45))
    dashed = [dashes is not None for _, dashes in collection.get_linestyles()[::-1]]
    assert dashed == (~accepted).tolist()
    assert set(dashed) == {True, False}
    assert result.decisions(rule=rule).other_label in [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_score_is_a_band_behind_the_supported_score() -> None:
    result = evidence_result(random_result(6), untested=2)
    table = result.table()
    behind, front = result.plot.network().collections[:2]
    largest = table["mean"].max()
    assert behind.get_linewidths()[::-1] == pytest.approx(6 * table["mean"] / largest)
    assert front.get_linewidths()[::-1] == pytest.approx(6 * table["supported"].fillna(0) / largest)
    assert behind.get_edgecolors()[:, 3].max() < 0.2
    assert all(dashes is None for _, dashes in behind.get_linestyles())


def test_units_are_as_large_as_their_main_effects_or_their_interactions() -> None:
    result = random_result(4)
    axes = result.plot.network(main=[1.0, -4.0, 2.0, 3.0])
    areas = axes.collections[1].get_sizes()
    assert areas / areas[1] == pytest.approx([0.25, 1, 0.5, 0.75])
    assert "main effect" in axes.get_legend().get_title().get_text()
    axes = result.plot.network()
    areas, sums = axes.collections[1].get_sizes(), result.geh.mean.sum(axis=0)
    assert areas / areas.max() == pytest.approx(sums / sums.max())
    assert "summed GEH" in axes.get_legend().get_title().get_text()


def test_a_network_of_many_units_keeps_those_with_the_strongest_pairs_and_says_so() -> None:
    result = random_result(50)
    axes = result.plot.network(max_units=12, pairs=5)
    kept = [text.get_text() for text in axes.texts]
    strongest = np.argsort(-result.geh.mean.max(axis=0), kind="stable")[:12]
    assert kept == [result.names[i] for i in sorted(strongest)]
    assert "5 strongest pairs; 38 weaker units not shown" in axes.get_title()


def test_images_stand_next_to_their_units() -> None:
    result = random_result(5)
    shades = np.linspace(0, 255, 12).reshape(3, 4)
    axes = result.plot.network(images={"unit 1": shades, "unit 4": np.dstack([shades] * 3)})
    boxes = [box for box in axes.get_children() if isinstance(box, AnnotationBbox)]
    assert boxes[0].offsetbox.get_data() == pytest.approx(shades / 255)
    directions = np.array([text.get_position() for text in axes.texts])
    for box, unit in zip(boxes, (1, 4), strict=True):
        assert np.argmax(directions @ box.xy) == unit
        assert 1 < np.hypot(*box.xy) < np.hypot(*directions[unit])


@pytest.mark.parametrize(("units", "name"), [(6, "x"), (6, LONG_NAME), (30, "x"), (30, LONG_NAME)])
def test_names_around_the_circle_have_room(units: int, name: str) -> None:
    axes = random_result(units, names=[f"{name} {i}" for i in range(units)]).plot.network()
    axes.figure.canvas.draw()
    radius = axes.transData.transform((1, 0))[0] - axes.transData.transform((0, 0))[0]
    start = radius * np.hypot(*axes.texts[0].get_position())
    half = min(axes.bbox.width, axes.bbox.height) / 2
    assert radius > 0.34 * half
    for text in axes.texts:
        text.set_rotation(0)
        box = text.get_window_extent()
        assert box.height <= 2 * start * np.sin(np.pi / units)
        assert start + box.width <= 1.03 * half
