"""Axes, titles and labels that all plots share. Lengths are in points (1/72 inch) unless stated otherwise."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from geh_explain.errors import GEHTypeError
from geh_explain.scores.pair_names import number_repeats

#: Smallest font size that is drawn; labels that need a smaller one are thinned out.
MIN_FONT_SIZE = 5.0
#: Height of a line of text, and approximate width of a character, both per point of font size.
LINE_HEIGHT = 1.25
_CHAR_WIDTH = 0.6
#: Font size of titles.
_TITLE_SIZE = 10.0
#: Characters after which a long name may be broken.
_BREAK = re.compile(r"[\s._/-]+")
#: A unit in a layer: the layer's dotted path and the index of the unit. Converted networks have names like "Add@27".
_UNIT = re.compile(r"([^\s.,\[\]]+(?:\.[^\s.,\[\]]+)*)\[(\d+)\]")
#: Names of units of at most so many characters stay as they are.
_MAX_PLAIN = 10
#: Names of lists of modules, whose members drop the plural.
_LISTS = ("blocks", "layers", "stages", "cells", "units")
#: Starts of numbered names that mean nothing without the block around them.
_PARTS = ("conv", "bn", "norm", "fc", "relu", "act", "attn", "mlp")
#: Number of characters by which a line may exceed its width to be broken at such a character.
_BREAK_SLACK = 4
#: Maximum number of units whose long names are wrapped; names of more units are shortened to one line.
_MAX_WRAPPED = 20


def shorten(name: str, max_chars: int = 22) -> str:
    """Return a long name without its start, since units of one layer differ at the end of their names.

    >>> shorten("features.denseblock4.conv2[7]", 12)
    '…k4.conv2[7]'
    """
    return name if len(name) <= max_chars else "…" + name[1 - max_chars :]


def compact(text: str) -> str:
    """Return text in which long names of units, such as "features._blocks.15[88]", are short: "block15:88".

    The last module of the layer's path is kept, with its number or that of the block it belongs to.

    >>> compact("encoder.layers.3.mlp[5] and encoder.layers.3.mlp[12]")
    'layer3.mlp:5 and layer3.mlp:12'
    >>> compact("layer3.1.conv2[7]"), compact("features.denseblock4.norm[7]"), compact("fc2[3]")
    ('layer3.1.conv2:7', 'denseblock4.norm:7', 'fc2[3]')
    >>> compact("probabilities.Add@27[10]")
    'Add@27:10'
    """
    return _UNIT.sub(lambda match: _compact_unit(match[0], match[1], match[2]), text)


def _compact_unit(name: str, path: str, index: str) -> str:
    """Return the short form of one unit's name, or the name itself if that is short."""
    if len(name) <= _MAX_PLAIN:
        return name
    # Words of the path, each with the numbers that follow it: "_blocks.15.conv" is block15 and conv.
    words: list[str] = []
    for part in path.split("."):
        if part.isdigit() and words:
            words[-1] = _numbered(words[-1], part)
        else:
            words.append(part.strip("_") or part)
    has_number = any(character.isdigit() for character in words[-1])
    kept = words[-1:] if has_number and not words[-1].startswith(_PARTS) else words[-2:]
    if len(kept) == 2 and not any(character.isdigit() for character in kept[0]):
        kept = kept[1:]
    return f"{'.'.join(kept)}:{index}"


def _numbered(word: str, number: str) -> str:
    """Return a module of a list with its number: ("blocks", "15") is "block15", ("layer3", "1") is "layer3.1"."""
    if word[-1].isdigit():
        return f"{word}.{number}"
    return (word[:-1] if word in _LISTS else word) + number


def shorten_all(names: Sequence[str], max_chars: int = 22) -> list[str]:
    """Return names shortened by :func:`shorten`, of which no two are the same.

    Of names with the same end the start is kept; those that have both in common are numbered.

    >>> shorten_all(["outer wall, north side", "inner wall, north side", "roof"], 12)
    ['outer wall,…', 'inner wall,…', 'roof']
    """
    flat = [" ".join(name.split()) for name in names]
    counts = Counter(shorten(name, max_chars) for name in flat)
    repeated = [counts[shorten(name, max_chars)] > 1 and len(name) > max_chars for name in flat]
    return number_repeats(
        [
            name[: max_chars - 1] + "…" if is_repeated else shorten(name, max_chars)
            for name, is_repeated in zip(flat, repeated, strict=True)
        ]
    )


def wrap(name: str, width: int = 22) -> str:
    """Return a long name on two lines, broken at a space or punctuation if possible.

    The second line of a very long name is shortened, so that the middle of the name is left out.

    >>> wrap("features.denseblock4.denselayer16").split()
    ['features.denseblock4.', 'denselayer16']
    """
    name = " ".join(name.split())
    if len(name) <= width:
        return name
    max_chars, middle = width + _BREAK_SLACK, min(width, -(-len(name) // 2))
    min_chars = max(width // 3, min(len(name), 2 * width) - max_chars)
    breaks = [match.end() for match in _BREAK.finditer(name) if min_chars <= match.end() <= max_chars]
    cut = min(breaks, key=lambda end: abs(end - middle), default=middle)
    return f"{name[:cut].rstrip()}\n{shorten(name[cut:], max_chars)}"


def unit_labels(names: Sequence[str]) -> list[str]:
    """Return unit names as they are drawn: wrapped if there are few units, shortened if there are many.

    No two labels are the same.
    """
    if len(names) > _MAX_WRAPPED:
        return shorten_all(names)
    return number_repeats([wrap(name) for name in names])


def set_tick_labels(axis: Any, positions: Any, labels: list[str], across: int = 0, **options: Any) -> None:
    """Label ticks that are one data unit apart, in a font size at which the labels do not overlap.

    If that size is below ``MIN_FONT_SIZE``, only every second, third, ... tick is labelled. The limits of the axis must
    be set before, as they determine the space per label. A dollar sign is drawn as such and does not start a formula.

    Parameters
    ----------
    axis
        ``ax.xaxis`` or ``ax.yaxis``.
    positions, labels
        Position and text of each tick.
    across
        Length in characters of the labels on the other axis, for which the layout engine will take space away.
    options
        Text properties of the labels.
    """
    lines = 1 + max((label.count("\n") for label in labels), default=0)
    length, (low, high) = size_in_points(axis.axes)[0 if axis.axis_name == "x" else 1], axis.get_view_interval()
    font_size = length / (LINE_HEIGHT * lines * abs(high - low) + _CHAR_WIDTH * across)
    step = math.ceil(MIN_FONT_SIZE / font_size)
    axis.set_ticks(np.asarray(positions)[::step], labels[::step], **options)
    for label in axis.get_ticklabels():
        label.set_parse_math(False)
        label.set_fontsize(min(label.get_fontsize(), step * font_size))


def set_title(ax: Any, text: str) -> None:
    """Set the title of axes, wrapped to their width; a parenthesis starts a new line if the title is too long."""
    chars = max(20, int(1.2 * size_in_points(ax)[0] / (_CHAR_WIDTH * _TITLE_SIZE)))
    broken = text if len(text) <= chars else text.replace(" (", "\n(", 1)
    lines = [line for part in broken.split("\n") for line in textwrap.wrap(part, chars)]
    ax.set_title("\n".join(lines), fontsize=_TITLE_SIZE, parse_math=False)


def size_in_points(ax: Any) -> tuple[float, float]:
    """Return width and height of axes."""
    ax.apply_aspect()
    scale = 72 / ax.figure.dpi
    return ax.bbox.width * scale, ax.bbox.height * scale


def axes_or_new(ax: Any, size: tuple[float, float], area: tuple[float, float, float, float] | None = None) -> Any:
    """Return ``ax``, or the axes of a new figure if it is None.

    Parameters
    ----------
    ax
        Matplotlib axes or None; anything else raises ``GEHTypeError``.
    size
        Width and height of a new figure in inches.
    area
        Position (left, bottom, width, height) of new axes, as shares of the figure. None: constrained layout.
    """
    from matplotlib.axes import Axes

    if isinstance(ax, Axes):
        return ax
    if ax is not None:
        raise GEHTypeError(f"ax={ax!r} must be matplotlib axes, one of those that plt.subplots() returns, or None.")
    import matplotlib.pyplot as plt

    if area is not None:
        return plt.figure(figsize=size).add_axes(area)
    return plt.subplots(figsize=size, layout="constrained")[1]
