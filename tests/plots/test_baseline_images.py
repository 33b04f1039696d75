"""Plots look like their baseline images, which were inspected by eye.

Baselines are in the folder ``images``; GEH_EXPLAIN_BASELINES=1 writes them anew, to be inspected again.
"""

import os
from collections.abc import Callable
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.testing.compare import compare_images
from matplotlib.text import Text
from synthetic_results import evidence_result, result_of

import geh_explain as geh
from geh_explain.analyses.share import InteractionShare, ShareEstimate
from geh_explain.analyses.surface import Surface
from geh_explain.groups.number import choose_group_number
from geh_explain.inference import PermutationTest
from geh_explain.interpret.ascent.maximisation import Maximised
from geh_explain.interpret.exemplar_search import Exemplars
from geh_explain.interpret.gallery import Gallery, PairView
from geh_explain.local.account import Contributions
from geh_explain.scores.ranking import PairRanking

BASELINES = Path(__file__).parent / "images"
#: Root mean square of the difference, of 255, that is let through; edges between images may be off by a pixel.
TOLERANCE, LOOSE = 2.5, {"exemplars": 10.0, "gallery": 4.0}
WIDTH, HEIGHT, DPI = 320, 256, 64
#: Places for axes: squares of a heatmap, beside its colours, are 20 pixels wide; long names need room on their left.
SQUARES, RIGHT, WIDE = (110, 100, 150, 120), (140, 50, 170, 180), (15, 40, 290, 190)
NAMES = ["age", "income in $", "blood_pressure", "features.denseblock4.denselayer16.conv2[1024]", "x4", "x5"]


def result(groups: int = 3, names: list[str] = NAMES) -> geh.Interactions:
    """Return 15 pairs of 6 units from fixed numbers, a third of which are not stable."""
    pair, draw, group = np.arange(15), np.arange(24)[:, None, None], np.arange(groups)[:, None]
    strength = 0.2 + 3 * (pair * 7 % 15) / 15
    spread = np.where(pair % 3 == 1, 0.8, 0.2)
    signed = strength * np.where((pair + group) % 4 < 2, -1, 1) * (1 + spread * np.sin(draw * 2.4 + pair))
    return result_of(signed, names, np.repeat(np.arange(groups), np.arange(2, groups + 2)))


def with_evidence(names: list[str] = NAMES) -> geh.Interactions:
    """Return the same pairs with evidence: a third of them is confirmed."""
    return evidence_result(result(names=names), untested=1)


def on_axes(draw: Callable[..., object], area: tuple[int, int, int, int] = (100, 50, 210, 180)) -> Callable[[], Figure]:
    """Return a function that draws into axes at some pixels (left, bottom, width, height), whatever letters need."""

    def drawn() -> Figure:
        figure = plt.figure(figsize=(WIDTH / DPI, HEIGHT / DPI))
        draw(figure.add_axes(tuple(np.divide(area, (WIDTH, HEIGHT, WIDTH, HEIGHT)))))
        return figure

    return drawn


def shades(*shape: int) -> torch.Tensor:
    """Return images that change slowly, as versions of matplotlib differ in which pixel is the last of a square."""
    return torch.linspace(0, 1, int(np.prod(shape))).reshape(shape)


def exemplars(names: list[str], k: int = 1) -> Exemplars:
    units = len(names)
    order = np.arange(k * units).reshape(units, k)
    places = np.stack([order % 3, order % 2], axis=2)
    return Exemplars(order, order * 0.5, shades(units, k, 1, 6, 6), names, 40, places, (3, 3), np.zeros(units, bool))


def maximised() -> Maximised:
    return Maximised(
        shades(3, 1, 6, 6), np.array([1.0, 2.0, 3.0]), [(1.0,)] * 3, ["a", "b", "a & b"], np.zeros(3, bool)
    )


def gallery() -> Gallery:
    both = exemplars(["both"])
    pair = PairView(("a", "b"), (0, 1), 2.0, 1.0, 3.0, result().regions(0, 1), exemplars(["a", "b"]), both, maximised())
    return Gallery([pair], "geh")


def surface() -> Surface:
    grid, turn = np.linspace(-1, 1, 9), np.arange(40) * 2.4
    points = np.stack([np.cos(turn), np.sin(turn)], axis=1) * np.sqrt(np.arange(40) / 40)[:, None]
    labels, effects = (points[:, 0] > 0).astype(int), np.array([-1.0, 1.0])
    joint = np.outer(grid, grid)
    return Surface((0, 1), ("a", "income in $"), grid, grid, joint, 0 * joint, points, labels, effects)


def shares() -> InteractionShare:
    """Return shares of all interactions, two pairs and three units from fixed numbers."""

    def estimate(*means: float) -> ShareEstimate:
        return ShareEstimate(np.array([means]), 0.1 * np.array(means), freedom=19)

    parts = estimate(0.4), estimate(0.3, 0.06), estimate(0.3, 0.36, 0.1), estimate(0.3, 0.1, 0.2), estimate(0.0)
    return InteractionShare(NAMES[:3], [("age", "income in $"), ("age", "blood_pressure")], "permuted", *parts, 100, 1)


def account() -> geh.LocalExplanation:
    """Return the account of a prediction from fixed numbers; some pairs have intervals that hold 0."""
    main, pairs = (
        Contributions(2 * np.sin(np.arange(n) * 2.4 + 1), 0.3 + 0.2 * np.cos(np.arange(n)), None, 30, 1)
        for n in (5, 10)
    )
    prediction = 1 + main.mean.sum() + pairs.mean.sum() + 0.2
    ends = {"prediction": prediction, "reference": 1.0, "remainder": 0.2, "steps": 16, "error": 0.0}
    words = {"method": "integrated Hessians", "baseline": "zeros", "place": "the inputs"}
    return geh.LocalExplanation(list("abcde"), **ends, main_effects=main, pair_effects=pairs, **words,
                                row_values=np.ones(5), baseline_values=np.zeros(5))  # fmt: skip


PICTURES: dict[str, Callable[[], Figure]] = {
    "heatmap": on_axes(lambda ax: result().plot.heatmap(ax=ax), SQUARES),
    "heatmap_cluster": on_axes(lambda ax: result().plot.heatmap(order="cluster", ax=ax), SQUARES),
    "heatmap_tested": on_axes(lambda ax: with_evidence().plot.heatmap(ax=ax), SQUARES),
    "intervals_tested": on_axes(lambda ax: with_evidence().plot.intervals(pairs=8, ax=ax), RIGHT),
    "network_tested": on_axes(lambda ax: with_evidence(list("abcdef")).plot.network(ax=ax), WIDE),
    "intervals": on_axes(lambda ax: result().plot.intervals(pairs=8, ax=ax), RIGHT),
    "intervals_all": on_axes(lambda ax: result().plot.intervals("all", pairs=5, ax=ax), RIGHT),
    "network": on_axes(
        lambda ax: result(names=list("abcdef")).plot.network(pairs=9, main=[3, 1, -2, 1, 2, 1], ax=ax), WIDE
    ),
    "network_images": on_axes(
        lambda ax: result(names=list("abcdef")).plot.network(images={"b": shades(5, 5), "f": shades(4, 6, 3)}, ax=ax),
        WIDE,
    ),
    "regions": on_axes(lambda ax: result(6).plot.regions("age", "x4", ax=ax)),
    "comparison": on_axes(lambda ax: result().compare(result(6)).plot(pairs=8, ax=ax), RIGHT),
    "draws": on_axes(lambda ax: result().plot.draws(pairs=5, ax=ax), RIGHT),
    "delta": on_axes(lambda ax: choose_group_number(np.abs(np.sin(np.arange(60.0).reshape(10, 6)))).plot(ax=ax)),
    "null": on_axes(
        lambda ax: PermutationTest(PairRanking("GEH", [2.0, 1.0, 0.5], list("abc")), np.sin(np.arange(50.0)) ** 2).plot(
            ax=ax
        )
    ),
    "surface": on_axes(lambda ax: surface().plot(ax=ax)),
    "shares": on_axes(lambda ax: shares().plot(ax=ax), RIGHT),
    "waterfall": on_axes(lambda ax: account().plot.waterfall(contributions=6, ax=ax), (70, 50, 240, 150)),
    "local_network": on_axes(lambda ax: account().plot.network(ax=ax), WIDE),
    "gallery": lambda: gallery().plot(),
    "exemplars": lambda: exemplars(["a", "b", "c"], k=4).plot(),
    "maximised": lambda: maximised().plot(),
}


def lose_collection(number: int) -> Callable[[Figure], None]:
    return lambda figure: figure.axes[0].collections[number].remove()


def lose_line(number: int) -> Callable[[Figure], None]:
    return lambda figure: figure.axes[0].lines[number].remove()


def lose_interval(number: int) -> Callable[[Figure], None]:
    """Take one interval of middling length away from a collection."""

    def lose(figure: Figure) -> None:
        lines = figure.axes[0].collections[number]
        shown = sorted(lines.get_segments(), key=lambda line: np.ptp(line[:, 0]))
        lines.set_segments(shown[: len(shown) // 2] + shown[len(shown) // 2 + 1 :])

    return lose


def lose_edge(figure: Figure) -> None:
    edges = figure.axes[0].collections[0]
    widths = edges.get_linewidths()
    widths[len(widths) // 2] = 0
    edges.set_linewidths(widths)


def lose_groups(figure: Figure) -> None:
    for drawn in [drawn for ax in figure.subfigs[0].axes for drawn in ax.collections]:
        drawn.remove()


#: What each picture can lose, and must not.
LOSSES: list[tuple[str, str, Callable[[Figure], None]]] = [
    ("heatmap", "its hatches", lose_collection(0)),
    ("heatmap_cluster", "its hatches", lose_collection(0)),
    ("heatmap_tested", "its hatches", lose_collection(0)),
    ("intervals_tested", "the supported scores", lose_collection(-1)),
    ("network_tested", "the bands", lose_collection(0)),
    ("intervals", "an interval", lose_interval(0)),
    ("intervals", "the thick parts", lose_collection(1)),
    ("intervals_all", "an interval", lose_interval(3)),
    ("intervals_all", "the last measure's points", lose_collection(-1)),
    ("network", "an edge", lose_edge),
    ("network", "its units", lose_collection(1)),
    ("network_images", "an image", lambda figure: figure.axes[0].artists[0].remove()),
    ("regions", "an interval", lose_interval(0)),
    ("regions", "its points", lose_collection(1)),
    ("comparison", "a line", lose_interval(0)),
    ("comparison", "the points of a result", lose_collection(3)),
    ("draws", "a ridge", lose_collection(0)),
    ("delta", "the chosen number", lose_line(1)),
    ("null", "a pair", lose_line(0)),
    ("surface", "a group", lambda figure: figure.axes[0].patches[1].remove()),
    ("shares", "an interval", lose_interval(0)),
    ("shares", "a bar", lambda figure: figure.axes[0].patches[1].remove()),
    ("waterfall", "a bar", lambda figure: figure.axes[0].patches[2].remove()),
    ("waterfall", "its intervals", lose_collection(0)),
    ("local_network", "an edge", lose_edge),
    ("local_network", "its units", lose_collection(1)),
    ("gallery", "the groups", lose_groups),
    ("exemplars", "the images of a unit", lambda figure: figure.axes[1].images[0].remove()),
    ("maximised", "an image", lambda figure: figure.axes[1].images[0].remove()),
]


def render(name: str, path: Path, change: Callable[[Figure], object] = lambda figure: None, **style: object) -> str:
    """Draw a picture in the style that matplotlib comes with, and return the path."""
    with matplotlib.style.context("default"), matplotlib.rc_context({"font.family": "DejaVu Sans", **style}):
        figure = PICTURES[name]()
        change(figure)
        figure.set_layout_engine("none")  # which goes by the sizes of letters
        for written in figure.findobj(lambda artist: isinstance(artist, Text | Legend)):
            written.set_visible(False)
        figure.savefig(path, dpi=DPI, metadata={"Software": None})
        plt.close(figure)
    return str(path)


def difference(name: str, shown: str) -> str | None:
    """Return what differs from the baseline, None if it is too little to matter."""
    found: str | None = compare_images(str(BASELINES / f"{name}.png"), shown, LOOSE.get(name, TOLERANCE))
    return found


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_looks_as_before(name: str, tmp_path: Path) -> None:
    if os.environ.get("GEH_EXPLAIN_BASELINES") == "1":
        render(name, BASELINES / f"{name}.png")
    assert difference(name, render(name, tmp_path / "now.png")) is None


@pytest.mark.parametrize(("name", "lost", "lose"), LOSSES, ids=[f"{name} without {lost}" for name, lost, _ in LOSSES])
def test_a_missing_part_is_noticed(name: str, lost: str, lose: Callable[[Figure], None], tmp_path: Path) -> None:
    assert difference(name, render(name, tmp_path / "now.png", lose)) is not None, f"{name} may lose {lost}"


@pytest.mark.parametrize("name", PICTURES)
def test_other_letters_are_not_noticed(name: str, tmp_path: Path) -> None:
    letters = {"font.family": "DejaVu Serif", "text.hinting": "none", "text.antialiased": False}
    assert difference(name, render(name, tmp_path / "now.png", **letters)) is None


def test_a_style_of_the_user_does_not_matter(tmp_path: Path) -> None:
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 5, "axes.grid": True}):
        assert difference("regions", render("regions", tmp_path / "now.png")) is None


def test_baselines_are_small_and_have_a_picture() -> None:
    files = list(BASELINES.glob("*.png"))
    assert {file.stem for file in files} == set(PICTURES)
    assert max(file.stat().st_size for file in files) < 40_000
