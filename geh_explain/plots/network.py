"""Network plot: units on a circle, joined by their interactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats, Ints
from geh_explain._validation import check_int
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, set_title, size_in_points, unit_labels
from geh_explain.plots.circle import Circle
from geh_explain.plots.pairs import describe_hidden, strongest_units, unit_sizes
from geh_explain.scores.decisions import SUPPORTED, Decisions
from geh_explain.scores.pair_names import describe_known
from geh_explain.scores.protocol import PairResult

#: Width of the strongest edge in points.
_MAX_WIDTH = 6.0
#: Opacity of edges that were not accepted, and of the GEH of a pair behind its supported score.
_PALE = 0.45
_BEHIND = 0.16
#: How far edges bend towards the centre: 0 for straight lines, 1 for a control point at the centre.
_BEND = 0.4
#: Dashes of edges that were not accepted.
_DASHES = (0, (2.0, 1.2))
#: Width of axes in points above which the legend has three columns.
_WIDE_AXES = 330


@dataclass(frozen=True)
class Edges:
    """The E pairs that are drawn, the strongest first, and how each is drawn.

    ``ends`` (E, 2) are positions on the circle; ``strength``, ``score`` (GEH, where the strength is its supported
    part), ``sign`` and ``unsure`` are (E,). ``neutral`` is the word for sign 0.
    """

    ends: Ints
    strength: Floats
    score: Floats
    sign: Ints
    unsure: NDArray[np.bool_]
    neutral: str = "as often either"


def draw_network(
    result: PairResult,
    decisions: Decisions,
    *,
    max_units: int = 30,
    pairs: int = 60,
    main: Any = None,
    images: Mapping[str, Any] | None = None,
    ax: Any = None,
) -> Any:
    """Draw units on a circle, and their strongest pairs as edges.

    The width of an edge is the score, its colour the sign in most of the data. Edges that the rule did not accept are
    dashed and pale. If the measure is the supported score, GEH is the width of a pale band behind the edge.

    Parameters
    ----------
    result
        The result to draw.
    decisions
        Its scores and decisions.
    max_units
        Maximum number of units; if there are more, those with the strongest pairs are shown.
    pairs
        Maximum number of edges. Pairs whose score is 0 have none.
    main
        Main effect (D,) of each unit, which is the area of its disc; None for ``result.main.strength``.
    images
        Images (H, W) or (H, W, 3) of units, by name, drawn next to them.
    ax
        Axes to draw into, or None.
    """
    units = strongest_units(decisions.order, result.pairs, check_int("max_units", max_units, 2))
    edges = _select_edges(result, decisions, units, check_int("pairs", pairs, 1))
    sizes, size_meaning = unit_sizes(result, decisions, main)
    by_name = _check_images(images, result.names)
    shown_images = {place: by_name[result.names[i]] for place, i in enumerate(units) if result.names[i] in by_name}
    labels = unit_labels([result.names[i] for i in units])
    side = 6.2 + 0.08 * max(len(line) for label in labels for line in label.split("\n")) + 2 * bool(shown_images)
    ax = axes_or_new(ax, (side, side / 0.85), area=(0.02, 0.11, 0.96, 0.96 * 0.85))
    circle = Circle.fit(ax, labels, has_images=bool(shown_images))
    if decisions.measure == SUPPORTED:
        draw_edges(ax, circle.positions(), edges, behind=True)
    draw_edges(ax, circle.positions(), edges)
    circle.draw_units(ax, sizes[units])
    circle.draw_names(ax, labels)
    circle.draw_images(ax, shown_images)
    _draw_legend(ax, edges, decisions, f"area of a unit: {size_meaning}")
    notes = [f"{len(edges.ends)} strongest pairs", *describe_hidden(result.pairs, len(units))]
    notes += [describe_known(result.pairs)] * (not result.pairs.complete)
    notes += ["no decisions"] * (decisions.accepted is None)
    set_title(ax, f"Interactions ({'; '.join(notes)})")
    return ax


def _select_edges(result: PairResult, decisions: Decisions, units: Ints, pairs: int) -> Edges:
    """Return the strongest ``pairs`` pairs among ``units``, without those whose score is 0."""
    first, second = result.pairs.ends
    place = np.full(len(result.names), -1)
    place[units] = np.arange(len(units))
    order = decisions.order
    drawn = (place[first[order]] >= 0) & (place[second[order]] >= 0) & (decisions.mean[order] > 0)
    chosen = order[drawn][:pairs]
    ends = np.stack([place[first[chosen]], place[second[chosen]]], axis=1)
    strength, score = decisions.strength[chosen], decisions.mean[chosen]
    # Differences between levels of a category have signs of their own.
    words = {} if result.level_draws is None else {"neutral": "no single sign"}
    return Edges(ends, strength, score, result.majority_signs()[chosen], decisions.unsure[chosen], **words)


def draw_edges(ax: Any, positions: Floats, edges: Edges, behind: bool = False) -> None:
    """Draw edges as quadratic curves between ``positions`` (n, 2), the strongest on top.

    ``behind``: pale bands as wide as the score, whatever was decided.
    """
    from matplotlib.collections import PathCollection
    from matplotlib.colors import to_rgba_array
    from matplotlib.path import Path

    if not len(edges.ends):
        return
    codes = [Path.MOVETO, Path.CURVE3, Path.CURVE3]
    paths = [Path(np.stack([a, (1 - _BEND) * (a + b) / 2, b]), codes) for a, b in positions[edges.ends[::-1]]]
    colours = to_rgba_array([sign_colour(sign) for sign in edges.sign[::-1]])
    colours[:, 3] = _BEHIND if behind else np.where(edges.unsure[::-1], _PALE, 1.0)
    dashed = np.zeros_like(edges.unsure) if behind else edges.unsure[::-1]
    collection = PathCollection(
        paths,
        facecolors="none",
        edgecolors=colours,
        linewidths=edge_widths(edges.score if behind else edges.strength, edges)[::-1],
        linestyles=[_DASHES if each else "-" for each in dashed],
        zorder=0.9 if behind else 1,
    )
    ax.add_collection(collection, autolim=False)


def edge_widths(strength: Any, edges: Edges) -> Floats:
    """Return line widths for ``strength``, proportional to it, on the scale of all edges."""
    return np.asarray(_MAX_WIDTH * strength / max(edges.strength.max(), edges.score.max()))


def sign_colour(sign: int) -> str:
    """Return the colour of an effect of sign 1, -1 or 0."""
    return palette.POSITIVE if sign > 0 else palette.NEGATIVE if sign < 0 else palette.NEUTRAL


def _draw_legend(ax: Any, edges: Edges, decisions: Decisions, caption: str) -> None:
    """Draw the legend below the axes: signs that occur, two widths, GEH behind its supported part, and dashes."""
    from matplotlib.lines import Line2D

    signs = {1: "positive in most groups", -1: "negative in most groups", 0: edges.neutral}
    handles = [
        Line2D([], [], color=sign_colour(sign), linewidth=3, label=label)
        for sign, label in signs.items()
        if sign in edges.sign
    ]
    if len(edges.ends):
        strongest = float(edges.strength[0])
        for strength in (strongest, strongest / 3):
            width = float(edge_widths(strength, edges))
            label = f"{decisions.strength_name} {strength:.2g}"
            handles.append(Line2D([], [], color=palette.LINE, linewidth=width, solid_capstyle="butt", label=label))
    if decisions.measure == SUPPORTED:
        band: dict[str, Any] = {"linewidth": _MAX_WIDTH, "alpha": 2 * _BEHIND, "solid_capstyle": "butt"}
        handles.append(Line2D([], [], color=palette.LINE, label=f"{decisions.score_name} of the network", **band))
    if edges.unsure.any():
        pale: dict[str, Any] = {"linewidth": 1.5, "linestyle": _DASHES, "alpha": _PALE}
        handles.append(Line2D([], [], color=palette.LINE, label=decisions.other_label, **pale))
    ax.legend(
        handles=handles,
        title=caption,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=3 if size_in_points(ax)[0] > _WIDE_AXES else 2,
        frameon=False,
        fontsize=8,
        title_fontsize=8,
    )


def _check_images(images: Mapping[str, Any] | None, names: list[str]) -> dict[str, Floats]:
    """Return the images by unit name, as arrays scaled to [0, 1]."""
    if images is None:
        return {}
    if not isinstance(images, Mapping):
        raise GEHTypeError(f"images must be a dict from names of units to arrays; it is a {type(images).__name__}.")
    for name in images:
        if name not in names:
            raise GEHValueError(f"images: {name!r} is no unit; use names such as {names[:4]}.")
    return {name: _scale_image(name, image) for name, image in images.items()}


def _scale_image(name: str, image: Any) -> Floats:
    """Return one image (H, W) or (H, W, 3) scaled to [0, 1]; ``name`` is its key, for error messages."""
    pixels = np.asarray(image, dtype=float)
    if pixels.shape[2:] not in ((), (3,)) or pixels.ndim < 2 or not pixels.size or not np.isfinite(pixels).all():
        raise GEHValueError(f"images[{name!r}] has shape {pixels.shape}; use finite numbers (H, W) or (H, W, 3).")
    span = float(np.ptp(pixels))
    return np.asarray((pixels - pixels.min()) / (span or 1.0))
