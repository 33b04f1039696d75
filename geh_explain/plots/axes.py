"""What the pictures share: axes on demand, and names that fit."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from geh_explain.errors import GEHTypeError

#: Where a name may be broken, and how much longer than asked for a line may be to be broken there.
_BREAK, _SLACK = re.compile(r"[\s._/-]+"), 4
#: Up to this many units names have two lines.
_FEW = 20
#: The smallest letters that are drawn, those of a title, and how wide a letter and how high a line of size 1 is.
SMALLEST, _TITLE, _LETTER, LEADING = 5.0, 10.0, 0.6, 1.25


def shorten(name: str, most: int = 22) -> str:
    """Return a long name by its end, which is what tells units of one layer apart."""
    return name if len(name) <= most else "…" + name[1 - most :]


def wrap(name: str, width: int = 22) -> str:
    """Return a long name on two lines, broken at a space or a dot if possible; a longer one loses its middle.

    >>> wrap("features.denseblock4.denselayer16").split()
    ['features.denseblock4.', 'denselayer16']
    """
    name = " ".join(name.split())
    if len(name) <= width:
        return name
    most, middle = width + _SLACK, min(width, -(-len(name) // 2))
    least = max(width // 3, min(len(name), 2 * width) - most)
    breaks = [found.end() for found in _BREAK.finditer(name) if least <= found.end() <= most]
    cut = min(breaks, key=lambda end: abs(end - middle), default=middle)
    return f"{name[:cut].rstrip()}\n{shorten(name[cut:], most)}"


def unit_names(names: Sequence[str]) -> list[str]:
    """Return names as they are drawn: a long one on two lines among few, by its end among many."""
    return [wrap(name) if len(names) <= _FEW else shorten(" ".join(name.split())) for name in names]


def label_units(axis: Any, places: Any, names: list[str], across: int = 0, **options: Any) -> None:
    """Put names to ticks, one data unit apart: as large and as many as have room, a dollar sign as what it is.

    The limits of the axis come first, as they decide how much room there is. ``across`` counts the letters of the names
    on the other axis, for which the layout will take room away.
    """
    lines = 1 + max((name.count("\n") for name in names), default=0)
    length, (low, high) = points(axis.axes)[0 if axis.axis_name == "x" else 1], axis.get_view_interval()
    fitting = length / (LEADING * lines * abs(high - low) + _LETTER * across)
    step = math.ceil(SMALLEST / fitting)
    axis.set_ticks(np.asarray(places)[::step], names[::step], **options)
    for label in axis.get_ticklabels():
        label.set_parse_math(False)
        label.set_fontsize(min(label.get_fontsize(), step * fitting))


def entitle(ax: Any, text: str) -> None:
    """Put a title over axes, on as many lines as their width asks for."""
    letters = max(20, int(1.2 * points(ax)[0] / (_LETTER * _TITLE)))
    broken = text if len(text) <= letters else text.replace(" (", "\n(", 1)
    lines = [line for part in broken.split("\n") for line in textwrap.wrap(part, letters)]
    ax.set_title("\n".join(lines), fontsize=_TITLE, parse_math=False)


def points(ax: Any) -> tuple[float, float]:
    """Return width and height of axes in points."""
    ax.apply_aspect()
    scale = 72 / ax.figure.dpi
    return ax.bbox.width * scale, ax.bbox.height * scale


def axes_or_new(ax: Any, size: tuple[float, float], area: tuple[float, float, float, float] | None = None) -> Any:
    """Return ``ax``, or the axes of a new figure of ``size`` inches, in its ``area`` (left, bottom, width, height)."""
    from matplotlib.axes import Axes

    if isinstance(ax, Axes):
        return ax
    if ax is not None:
        raise GEHTypeError(f"ax={ax!r} must be matplotlib axes, one of those that plt.subplots() returns, or None.")
    import matplotlib.pyplot as plt

    if area is not None:
        return plt.figure(figsize=size).add_axes(area)
    return plt.subplots(figsize=size, layout="constrained")[1]
