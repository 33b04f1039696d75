"""Network of one prediction: units with their main effects, joined by the effects of their pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, set_title, unit_labels
from geh_explain.plots.circle import Circle
from geh_explain.plots.network import Edges, draw_edges, edge_widths, sign_colour

#: Smallest diameter of the disc of a unit in points.
_MIN_DISC = 5.0


def draw_local_network(
    names: Sequence[str],
    main: Floats,
    ends: tuple[Ints, Ints],
    effects: Floats,
    title: str,
    *,
    unsure: Any = None,
    ax: Any = None,
) -> Any:
    """Draw units on a circle, and pairs as edges; red raises the output, blue lowers it.

    Parameters
    ----------
    names
        Names of the units that are drawn.
    main
        Main effect (D,) of each unit, whose absolute value is the area of its disc.
    ends, effects
        Indices of the units of each drawn pair, (first, second), and its effect (E,), the strongest first.
    title
        Title of the plot.
    unsure
        Whether the interval of each pair (E,) holds 0; such edges are dashed and pale. None: none of them.
    ax
        Axes to draw into, or None.
    """
    labels = unit_labels(names)
    side = 6.0 + 0.08 * max(len(line) for label in labels for line in label.split("\n"))
    ax = axes_or_new(ax, (side, side / 0.85), area=(0.02, 0.11, 0.96, 0.96 * 0.85))
    circle = Circle.fit(ax, labels, has_images=False)
    strength = np.abs(effects)
    pale = np.zeros(len(effects), dtype=bool) if unsure is None else np.asarray(unsure, dtype=bool)
    edges = Edges(np.stack(ends, axis=1), strength, strength, np.sign(effects).astype(int), pale)
    draw_edges(ax, circle.positions(), edges)
    areas = np.maximum(circle.disc**2 * np.abs(main) / (np.abs(main).max() or 1.0), _MIN_DISC**2)
    colours = [sign_colour(int(sign)) for sign in np.sign(main)]
    ax.scatter(*circle.positions().T, s=areas, c=colours, edgecolors="white", linewidths=1, zorder=2)
    circle.draw_names(ax, labels)
    _draw_legend(ax, edges)
    set_title(ax, title)
    return ax


def _draw_legend(ax: Any, edges: Edges) -> None:
    """Draw the legend below the axes: signs, two widths, and dashes where they occur."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=palette.POSITIVE, linewidth=3, label="raises the output"),
        Line2D([], [], color=palette.NEGATIVE, linewidth=3, label="lowers the output"),
    ]
    if len(edges.ends) and edges.strength[0] > 0:
        for strength in (float(edges.strength[0]), float(edges.strength[0]) / 3):
            width = float(edge_widths(strength, edges))
            label = f"pair by {strength:.2g}"
            handles.append(Line2D([], [], color=palette.LINE, linewidth=width, solid_capstyle="butt", label=label))
    if edges.unsure.any():
        handles.append(
            Line2D([], [], color=palette.LINE, linewidth=1.5, linestyle="--", alpha=0.45, label="interval holds 0")
        )
    ax.legend(
        handles=handles,
        title="area of a unit: size of its main effect",
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=3,
        frameon=False,
        fontsize=8,
        title_fontsize=8,
    )
