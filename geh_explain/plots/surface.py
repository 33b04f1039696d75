"""The joint effect of two units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, shorten

if TYPE_CHECKING:
    from geh_explain.analyses.surface import Surface

#: Data points that are drawn at most, and how far, in standard deviations, outlines of regions reach.
_POINTS, _REACH = 1000, 1.5


def surface(found: Surface, *, ax: Any = None) -> Any:
    """Draw the joint effect in colours, the data as dots, and regions as ellipses in the colour of their effect.

    Where a unit takes few values, ellipses would say nothing; then the dots are in the colour of their region.
    """
    ax = axes_or_new(ax, (5.2, 4.2))
    largest = float(np.abs(found.values).max()) or 1.0
    image = ax.pcolormesh(
        found.first, found.second, found.values.T, cmap=palette.SIGNED, vmin=-largest, vmax=largest, shading="nearest"
    )
    ax.figure.colorbar(image, ax=ax, label="joint effect (main effects taken off)")
    step = max(1, len(found.points) // _POINTS)
    x, y = found.points[::step].T
    dots: dict[str, Any] = {"s": 3, "c": palette.LINE, "alpha": 0.35, "linewidths": 0}
    if found.labels is not None and found.effects is not None:
        colours = np.where(found.effects > 0, palette.POSITIVE, palette.NEGATIVE)
        if _few(x, found.first) or _few(y, found.second):
            dots = {"s": 9, "c": colours[found.labels[::step]], "edgecolors": "white", "linewidths": 0.3}
        else:
            _outline(found.points, found.labels, colours, ax)
    ax.scatter(_jittered(x, found.first), _jittered(y, found.second, 1), **dots)
    for axis, places, name in ((ax.xaxis, found.first, found.names[0]), (ax.yaxis, found.second, found.names[1])):
        axis.set_label_text(shorten(name, 40), parse_math=False)
        margin = (places[1:] - places[:-1]).min() / 2
        (ax.set_xlim if axis is ax.xaxis else ax.set_ylim)(places[0] - margin, places[-1] + margin)
    return ax


def _few(values: Any, places: Any) -> bool:
    """Tell whether values fall on few places, which are then all of the grid."""
    return len(np.unique(values)) <= len(places)


def _jittered(values: Any, places: Any, seed: int = 0) -> Any:
    """Spread values that fall on few places, so that they do not hide each other."""
    if not _few(values, places):
        return values
    width = 0.3 * (places[1:] - places[:-1]).min()
    return values + np.random.default_rng(seed).uniform(-width, width, len(values))


def _outline(points: Any, labels: Any, colours: Any, ax: Any) -> None:
    from matplotlib.patches import Ellipse

    for group, colour in enumerate(colours):
        own = points[labels == group]
        if len(own) < 3:
            continue
        sizes, axes = np.linalg.eigh(np.cov(own.T))
        width, height = 2 * _REACH * np.sqrt(np.maximum(sizes, 0))
        angle = np.degrees(np.arctan2(axes[1, 0], axes[0, 0]))
        ax.add_patch(Ellipse(own.mean(axis=0), width, height, angle=angle, fill=False, edgecolor="white", linewidth=3))
        ax.add_patch(Ellipse(own.mean(axis=0), width, height, angle=angle, fill=False, edgecolor=colour, linewidth=1.4))
