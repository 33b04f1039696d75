"""Joint effect of two units over a grid of their values."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats, Ints
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, shorten
from geh_explain.plots.level_surface import LevelEffect, draw_level_grid, draw_level_lines

#: Maximum number of points that are drawn.
_MAX_POINTS = 1000
#: Half-axes of the ellipse around a group, in standard deviations.
_ELLIPSE_STD = 1.5
#: Minimum number of points of a group with an ellipse, for which a covariance exists.
_MIN_ELLIPSE_POINTS = 3


class JointEffect(LevelEffect, Protocol):
    """What is drawn of a surface; see :class:`geh_explain.analyses.surface.Surface`."""

    @property
    def points(self) -> Floats:
        """Values of both units in the data (n, 2)."""

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """Group of each point (n,), or None."""

    @property
    def effects(self) -> Floats | None:
        """Signed effect of each group (M,), or None."""


def draw_surface(surface: JointEffect, *, ax: Any = None) -> Any:
    """Draw the joint effect in colours, the data as dots, and groups as ellipses in the colour of their effect.

    If a unit takes few values, ellipses would be meaningless; then the dots have the colour of their group. Surfaces
    with a category have their own drawings, see :mod:`geh_explain.plots.level_surface`.
    """
    n_categories = sum(levels is not None for levels in surface.levels)
    if n_categories:
        draw = draw_level_lines if n_categories == 1 else draw_level_grid
        return draw(surface, ax=ax)
    ax = axes_or_new(ax, (5.2, 4.2))
    largest = float(np.abs(surface.values).max()) or 1.0
    colours: dict[str, Any] = {"cmap": palette.SIGNED, "vmin": -largest, "vmax": largest}
    image = ax.pcolormesh(surface.first, surface.second, surface.values.T, shading="nearest", **colours)
    ax.figure.colorbar(image, ax=ax, label="joint effect (main effects taken off)")
    _draw_points(ax, surface)
    _set_axis(ax.xaxis, ax.set_xlim, surface.first, surface.names[0])
    _set_axis(ax.yaxis, ax.set_ylim, surface.second, surface.names[1])
    return ax


def _draw_points(ax: Any, surface: JointEffect) -> None:
    """Draw a regular subset of the data, and ellipses or colours for the groups where there are any."""
    step = max(1, len(surface.points) // _MAX_POINTS)
    x, y = surface.points[::step].T
    dots: dict[str, Any] = {"s": 3, "c": palette.LINE, "alpha": 0.35, "linewidths": 0}
    if surface.labels is not None and surface.effects is not None:
        colours = np.where(surface.effects > 0, palette.POSITIVE, palette.NEGATIVE)
        if _is_discrete(x, surface.first) or _is_discrete(y, surface.second):
            # Points of weight 0 have the label -1.
            by_label = np.append(colours, palette.LINE)
            dots = {"s": 9, "c": by_label[surface.labels[::step]], "edgecolors": "white", "linewidths": 0.3}
        else:
            _draw_ellipses(ax, surface.points, surface.labels, colours)
    ax.scatter(_jitter(x, surface.first, seed=0), _jitter(y, surface.second, seed=1), **dots)


def _set_axis(axis: Any, set_limits: Any, grid: Floats, name: str) -> None:
    """Label an axis with the unit's name, and fit its limits to the cells around the grid."""
    axis.set_label_text(shorten(name, 40), parse_math=False)
    margin = (grid[1:] - grid[:-1]).min() / 2
    set_limits(grid[0] - margin, grid[-1] + margin)


def _is_discrete(values: Floats, grid: Floats) -> bool:
    """Return whether a unit takes few values; the grid then consists of these values."""
    return len(np.unique(values)) <= len(grid)


def _jitter(values: Floats, grid: Floats, seed: int) -> Floats:
    """Return values, spread at random if they are discrete, so that dots do not hide each other."""
    if not _is_discrete(values, grid):
        return values
    width = 0.3 * (grid[1:] - grid[:-1]).min()
    return np.asarray(values + np.random.default_rng(seed).uniform(-width, width, len(values)))


def _draw_ellipses(ax: Any, points: Floats, labels: Ints, colours: Any) -> None:
    """Draw an ellipse along the principal axes of each group of points (n, 2)."""
    from matplotlib.patches import Ellipse

    for group, colour in enumerate(colours):
        members = points[labels == group]
        if len(members) < _MIN_ELLIPSE_POINTS:
            continue
        variances, axes = np.linalg.eigh(np.cov(members.T))
        width, height = 2 * _ELLIPSE_STD * np.sqrt(np.maximum(variances, 0))
        angle = np.degrees(np.arctan2(axes[1, 0], axes[0, 0]))
        # A wide white line below the coloured one separates it from the surface.
        for edge, linewidth in (("white", 3), (colour, 1.4)):
            shape = {"angle": angle, "fill": False, "edgecolor": edge, "linewidth": linewidth}
            ax.add_patch(Ellipse(members.mean(axis=0), width, height, **shape))
