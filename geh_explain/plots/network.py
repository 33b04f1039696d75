"""Units on a circle, joined by their interactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats, Ints
from geh_explain._validation import check_int, check_level
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, entitle, points, unit_names
from geh_explain.plots.circle import Circle
from geh_explain.plots.pairs import strongest_units, unit_sizes
from geh_explain.scores.measures import pair_index
from geh_explain.statistics.p_values import bayesian_p_value

if TYPE_CHECKING:
    from geh_explain.results.interactions import Interactions
    from geh_explain.scores.pair_scores import Scores


#: The width of the strongest edge in points, the opacity of the least certain one, and how far edges bend inwards.
_WIDEST, _FAINTEST, _BEND = 6.0, 0.15, 0.4
_DASHES = (0, (2.0, 1.2))
#: The width of axes in points from which on the legend has three columns.
_WIDE = 330


@dataclass(frozen=True)
class _Edges:
    """The pairs that are drawn, the strongest first: the places of their ends on the circle (E, 2), and their looks."""

    ends: Ints
    strength: Floats
    sign: Ints
    opacity: Floats
    sure: NDArray[np.bool_]


def network(
    result: Interactions,
    measure: str = "geh",
    *,
    level: float = 0.95,
    most: int = 30,
    pairs: int = 60,
    main: Any = None,
    images: Mapping[str, Any] | None = None,
    ax: Any = None,
) -> Any:
    """Draw units on a circle, and their strongest ``pairs`` as edges.

    The width of an edge is the strength of the pair, its colour the sign in most regions, its opacity how certain it
    is; an edge is dashed if the pair is not significant at ``level``. The area of a unit is its ``main`` effect (D,),
    None for that of the result. ``images`` has pictures (H, W) or (H, W, 3) of units, by name. With more than ``most``
    units, the ones with the strongest pairs are shown.
    """
    check_level(level)
    scores = result.scores(measure)
    shown = strongest_units(scores.mean, check_int("most", most, 2))
    edges = _edges(result, scores, shown, check_int("pairs", pairs, 1), level)
    sizes, weighed = unit_sizes(result, main, measure)
    by_name = _pictures(images, result.names)
    pictures = {place: by_name[result.names[i]] for place, i in enumerate(shown) if result.names[i] in by_name}
    names = unit_names([result.names[i] for i in shown])
    side = 6.2 + 0.08 * max(len(line) for name in names for line in name.split("\n")) + 2 * bool(pictures)
    ax = axes_or_new(ax, (side, side / 0.85), area=(0.02, 0.11, 0.96, 0.96 * 0.85))
    circle = Circle.around(ax, names, pictured=bool(pictures))
    _draw_edges(ax, circle.places(), edges)
    circle.draw_units(ax, sizes[shown])
    circle.draw_names(ax, names)
    circle.draw_pictures(ax, pictures)
    _legend(ax, edges, measure, level, f"area of a unit: {weighed}{'; opacity: certainty' * (scores.count > 1)}")
    hidden = len(result.names) - len(shown)
    notes = [f"{len(edges.ends)} strongest pairs"]
    notes += [f"{hidden} weaker units not shown"] * bool(hidden) + ["one draw: no certainty"] * (scores.count < 2)
    entitle(ax, f"Interactions ({'; '.join(notes)})")
    return ax


def _edges(result: Interactions, scores: Scores, shown: Ints, count: int, level: float) -> _Edges:
    first, second = np.triu_indices(len(shown), 1)
    strength = scores.mean[shown[first], shown[second]]
    chosen = np.argsort(-strength, kind="stable")[:count]
    chosen = chosen[strength[chosen] > 0]
    ends = np.stack([first[chosen], second[chosen]], axis=1)
    numbers = np.array([pair_index(int(a), int(b), len(result.names)) for a, b in shown[ends]], dtype=np.int64)
    opacity, sure = np.ones(len(chosen)), np.ones(len(chosen), dtype=bool)
    if scores.count > 1:
        p_value = bayesian_p_value(scores.pair_mean()[numbers], scores.pair_std()[numbers])
        opacity = np.clip(1 - 2 * p_value, _FAINTEST, 1)  # a p-value of a half says nothing
        sure = scores.pair_interval(level)[0][numbers] > 0
    return _Edges(ends, strength[chosen], result.majority_signs()[numbers], opacity, sure)


def _draw_edges(ax: Any, places: Floats, edges: _Edges) -> None:
    """Draw edges as curves, the strongest on top."""
    from matplotlib.collections import PathCollection
    from matplotlib.colors import to_rgba_array
    from matplotlib.path import Path

    if not len(edges.ends):
        return
    kinds = [Path.MOVETO, Path.CURVE3, Path.CURVE3]
    paths = [Path(np.stack([a, (1 - _BEND) * (a + b) / 2, b]), kinds) for a, b in places[edges.ends[::-1]]]
    colours = to_rgba_array([_colour(sign) for sign in edges.sign[::-1]])
    colours[:, 3] = edges.opacity[::-1]
    collection = PathCollection(
        paths,
        facecolors="none",
        edgecolors=colours,
        linewidths=_widths(edges.strength, edges.strength)[::-1],
        linestyles=["-" if sure else _DASHES for sure in edges.sure[::-1]],
        zorder=1,
    )
    ax.add_collection(collection, autolim=False)


def _widths(strength: Any, strengths: Floats) -> Floats:
    return np.asarray(_WIDEST * strength / strengths.max())


def _colour(sign: int) -> str:
    return palette.POSITIVE if sign > 0 else palette.NEGATIVE if sign < 0 else palette.NEUTRAL


def _legend(ax: Any, edges: _Edges, measure: str, level: float, caption: str) -> None:
    from matplotlib.lines import Line2D

    kinds = {1: "positive in most regions", -1: "negative in most regions", 0: "as often either"}
    handles = [
        Line2D([], [], color=_colour(sign), linewidth=3, label=label)
        for sign, label in kinds.items()
        if sign in edges.sign
    ]
    if len(edges.ends):
        strongest = float(edges.strength[0])
        for share in (strongest, strongest / 3):
            width = float(_widths(share, edges.strength))
            label = f"{measure.upper()} {share:.2g}"
            handles.append(Line2D([], [], color=palette.LINE, linewidth=width, solid_capstyle="butt", label=label))
    if not edges.sure.all():
        unsure = f"not significant at {level:.0%}"
        handles.append(Line2D([], [], color=palette.LINE, linewidth=1.5, linestyle=_DASHES, label=unsure))
    ax.legend(
        handles=handles,
        title=caption,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=3 if points(ax)[0] > _WIDE else 2,
        frameon=False,
        fontsize=8,
        title_fontsize=8,
    )


def _pictures(images: Mapping[str, Any] | None, names: list[str]) -> dict[str, Floats]:
    """Return the images by name, with values between 0 and 1."""
    if images is None:
        return {}
    if not isinstance(images, Mapping):
        raise GEHTypeError(f"images must be a dict from names of units to arrays; it is a {type(images).__name__}.")
    for name in images:
        if name not in names:
            raise GEHValueError(f"images: {name!r} is no unit; use names such as {names[:4]}.")
    return {name: _picture(name, image) for name, image in images.items()}


def _picture(name: str, image: Any) -> Floats:
    picture = np.asarray(image, dtype=float)
    if picture.shape[2:] not in ((), (3,)) or picture.ndim < 2 or not picture.size or not np.isfinite(picture).all():
        raise GEHValueError(f"images[{name!r}] has shape {picture.shape}; use finite numbers (H, W) or (H, W, 3).")
    span = float(np.ptp(picture))
    return np.asarray((picture - picture.min()) / (span or 1.0))
