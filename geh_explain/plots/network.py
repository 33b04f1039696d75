"""Network plot: units on a circle, joined by their interactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats, Ints
from geh_explain._validation import check_int, check_level
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, set_title, size_in_points, unit_labels
from geh_explain.plots.circle import Circle
from geh_explain.plots.pairs import strongest_units, unit_sizes
from geh_explain.scores.measures import pair_index
from geh_explain.scores.pair_scores import Scores
from geh_explain.scores.protocol import PairResult
from geh_explain.statistics.p_values import bayesian_p_value

#: Width of the strongest edge in points.
_MAX_WIDTH = 6.0
#: Opacity of the least certain edge.
_MIN_OPACITY = 0.15
#: How far edges bend towards the centre: 0 for straight lines, 1 for a control point at the centre.
_BEND = 0.4
#: Dashes of edges that are not significant.
_DASHES = (0, (2.0, 1.2))
#: Width of axes in points above which the legend has three columns.
_WIDE_AXES = 330


@dataclass(frozen=True)
class _Edges:
    """The E pairs that are drawn, the strongest first, and how each is drawn.

    ``ends`` (E, 2) are positions on the circle; ``strength``, ``sign``, ``opacity`` and ``significant`` are (E,).
    """

    ends: Ints
    strength: Floats
    sign: Ints
    opacity: Floats
    significant: NDArray[np.bool_]


def draw_network(
    result: PairResult,
    measure: str = "geh",
    *,
    level: float = 0.95,
    max_units: int = 30,
    pairs: int = 60,
    main: Any = None,
    images: Mapping[str, Any] | None = None,
    ax: Any = None,
) -> Any:
    """Draw units on a circle, and their strongest pairs as edges.

    The width of an edge is the score, its colour the sign in most of the data, its opacity 1 - 2 p with the Bayesian
    p-value p. Edges that are not significant are dashed.

    Parameters
    ----------
    result
        The result to draw.
    measure
        ``"geh"``, ``"aeh"`` or ``"eah"``.
    level
        Level of the interval that must exclude 0 for a pair to be significant.
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
    check_level(level)
    scores = result.scores(measure)
    units = strongest_units(scores.mean, check_int("max_units", max_units, 2))
    edges = _select_edges(result, scores, units, check_int("pairs", pairs, 1), level)
    sizes, size_meaning = unit_sizes(result, main, measure)
    by_name = _check_images(images, result.names)
    shown_images = {place: by_name[result.names[i]] for place, i in enumerate(units) if result.names[i] in by_name}
    labels = unit_labels([result.names[i] for i in units])
    side = 6.2 + 0.08 * max(len(line) for label in labels for line in label.split("\n")) + 2 * bool(shown_images)
    ax = axes_or_new(ax, (side, side / 0.85), area=(0.02, 0.11, 0.96, 0.96 * 0.85))
    circle = Circle.fit(ax, labels, has_images=bool(shown_images))
    _draw_edges(ax, circle.positions(), edges)
    circle.draw_units(ax, sizes[units])
    circle.draw_names(ax, labels)
    circle.draw_images(ax, shown_images)
    opacity_meaning = "; opacity: certainty" if scores.n_draws > 1 else ""
    _draw_legend(ax, edges, measure, level, f"area of a unit: {size_meaning}{opacity_meaning}")
    hidden = len(result.names) - len(units)
    notes = [f"{len(edges.ends)} strongest pairs"]
    notes += [f"{hidden} weaker units not shown"] * bool(hidden) + ["one draw: no certainty"] * (scores.n_draws < 2)
    set_title(ax, f"Interactions ({'; '.join(notes)})")
    return ax


def _select_edges(result: PairResult, scores: Scores, units: Ints, pairs: int, level: float) -> _Edges:
    """Return the strongest ``pairs`` pairs among ``units``, without those whose score is 0."""
    first, second = np.triu_indices(len(units), 1)
    strength = scores.mean[units[first], units[second]]
    strongest = np.argsort(-strength, kind="stable")[:pairs]
    strongest = strongest[strength[strongest] > 0]
    ends = np.stack([first[strongest], second[strongest]], axis=1)
    indices = np.array([pair_index(int(a), int(b), len(result.names)) for a, b in units[ends]], dtype=np.int64)
    opacity, significant = np.ones(len(strongest)), np.ones(len(strongest), dtype=bool)
    if scores.n_draws > 1:
        p_value = bayesian_p_value(scores.pair_mean[indices], scores.pair_std[indices])
        # A p-value of 1/2 is no evidence at all.
        opacity = np.clip(1 - 2 * p_value, _MIN_OPACITY, 1)
        significant = scores.pair_interval(level)[0][indices] > 0
    return _Edges(ends, strength[strongest], result.majority_signs()[indices], opacity, significant)


def _draw_edges(ax: Any, positions: Floats, edges: _Edges) -> None:
    """Draw edges as quadratic curves between ``positions`` (n, 2), the strongest on top."""
    from matplotlib.collections import PathCollection
    from matplotlib.colors import to_rgba_array
    from matplotlib.path import Path

    if not len(edges.ends):
        return
    codes = [Path.MOVETO, Path.CURVE3, Path.CURVE3]
    paths = [Path(np.stack([a, (1 - _BEND) * (a + b) / 2, b]), codes) for a, b in positions[edges.ends[::-1]]]
    colours = to_rgba_array([_colour(sign) for sign in edges.sign[::-1]])
    colours[:, 3] = edges.opacity[::-1]
    collection = PathCollection(
        paths,
        facecolors="none",
        edgecolors=colours,
        linewidths=_widths(edges.strength, edges.strength)[::-1],
        linestyles=["-" if significant else _DASHES for significant in edges.significant[::-1]],
        zorder=1,
    )
    ax.add_collection(collection, autolim=False)


def _widths(strength: Any, strengths: Floats) -> Floats:
    """Return line widths for ``strength``, proportional to it, on the scale of all ``strengths``."""
    return np.asarray(_MAX_WIDTH * strength / strengths.max())


def _colour(sign: int) -> str:
    """Return the colour of an effect of sign 1, -1 or 0."""
    return palette.POSITIVE if sign > 0 else palette.NEGATIVE if sign < 0 else palette.NEUTRAL


def _draw_legend(ax: Any, edges: _Edges, measure: str, level: float, caption: str) -> None:
    """Draw the legend below the axes: signs that occur, two widths, and dashes if an edge is dashed."""
    from matplotlib.lines import Line2D

    signs = {1: "positive in most groups", -1: "negative in most groups", 0: "as often either"}
    handles = [
        Line2D([], [], color=_colour(sign), linewidth=3, label=label)
        for sign, label in signs.items()
        if sign in edges.sign
    ]
    if len(edges.ends):
        strongest = float(edges.strength[0])
        for strength in (strongest, strongest / 3):
            width = float(_widths(strength, edges.strength))
            label = f"{measure.upper()} {strength:.2g}"
            handles.append(Line2D([], [], color=palette.LINE, linewidth=width, solid_capstyle="butt", label=label))
    if not edges.significant.all():
        label = f"not significant at {level:.0%}"
        handles.append(Line2D([], [], color=palette.LINE, linewidth=1.5, linestyle=_DASHES, label=label))
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
