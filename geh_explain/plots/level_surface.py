"""Joint effect of a category with another unit: one line per level, or a grid of the levels of two categories."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from geh_explain._types import Floats
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, shorten

#: Colours of lines where there are few levels (Okabe and Ito), and the colour map where there are more.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444")
_MANY_COLOURS = "tab20"
#: Lines of levels with the same effect show each other through their gaps.
_DASHES = ("-", "--", "-.", ":")
#: Cells of a grid whose numbers are written.
_MAX_WRITTEN = 64
#: Numbers on dark cells are white: those above this share of the largest one.
_DARK = 0.6
#: Letters of a level's name that are shown.
_MAX_LETTERS = 24


class LevelEffect(Protocol):
    """What is drawn of a surface with a category; see :class:`geh_explain.analyses.surface.Surface`."""

    @property
    def names(self) -> tuple[str, str]:
        """Names of the two units."""

    @property
    def levels(self) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """Names of the levels of both units; None for a numeric unit."""

    @property
    def first(self) -> Floats:
        """Grid of the first unit (G,), or the indices of its levels."""

    @property
    def second(self) -> Floats:
        """Grid of the second unit (H,), or the indices of its levels."""

    @property
    def values(self) -> Floats:
        """Joint effect (G, H)."""

    @property
    def std(self) -> Floats:
        """Standard deviation (G, H) of the joint effect over draws."""


def draw_level_lines(surface: LevelEffect, *, ax: Any = None) -> Any:
    """Draw the joint effect over the values of the number, one line per level; bands are two standard deviations."""
    ax = axes_or_new(ax, (5.6, 4.0))
    category = 0 if surface.levels[0] is not None else 1
    levels = surface.levels[category] or ()
    number = surface.second if category == 0 else surface.first
    values, std = (array if category == 0 else array.T for array in (surface.values, surface.std))
    colours = _line_colours(len(levels))
    marker = "o" if len(number) <= 2 else None
    for place, (level, colour, line, half) in enumerate(zip(levels, colours, values, 2 * std, strict=True)):
        dashes = _DASHES[place % len(_DASHES)]
        ax.plot(number, line, color=colour, linestyle=dashes, marker=marker, label=_plain(level))
        if half.any():
            ax.fill_between(number, line - half, line + half, color=colour, alpha=0.15, linewidth=0)
    ax.axhline(0, color=palette.LINE, linewidth=0.6, zorder=0)
    ax.set_xlabel(shorten(surface.names[1 - category], 40), parse_math=False)
    ax.set_ylabel("joint effect (main effects taken off)")
    legend = ax.legend(title=_plain(surface.names[category]), framealpha=0.85, edgecolor="none", fontsize="small")
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)
    return ax


def draw_level_grid(surface: LevelEffect, *, ax: Any = None) -> Any:
    """Draw the joint effect of two categories as a grid of their levels, with its numbers where there are few."""
    ax = axes_or_new(ax, (5.2, 4.2))
    largest = float(np.abs(surface.values).max()) or 1.0
    image = ax.imshow(surface.values.T, cmap=palette.SIGNED, vmin=-largest, vmax=largest, origin="lower", aspect="auto")
    ax.figure.colorbar(image, ax=ax, label="joint effect (main effects taken off)")
    rotation = 45 if len(surface.first) > 4 else 0
    for axis, levels, name in zip((ax.xaxis, ax.yaxis), surface.levels, surface.names, strict=True):
        axis.set_ticks(range(len(levels or ())), [_plain(level) for level in levels or ()], parse_math=False)
        axis.set_label_text(shorten(name, 40), parse_math=False)
    ax.tick_params(axis="x", rotation=rotation)
    if surface.values.size <= _MAX_WRITTEN:
        for (x, y), value in np.ndenumerate(surface.values):
            colour = "white" if abs(value) > _DARK * largest else palette.LINE
            ax.text(x, y, f"{value:+.2g}", ha="center", va="center", color=colour, fontsize="small")
    return ax


def _line_colours(count: int) -> list[Any]:
    """Return a colour for each of the levels."""
    import matplotlib

    if count <= len(_COLOURS):
        return list(_COLOURS[:count])
    many = matplotlib.colormaps[_MANY_COLOURS]
    return [many(number % many.N) for number in range(count)]


def _plain(name: str) -> str:
    """Return a name as it is shown in legends, which leave out names that start with an underscore."""
    shown = shorten(name, _MAX_LETTERS)
    return f" {shown}" if shown.startswith("_") else shown
