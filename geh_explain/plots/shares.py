"""Bar chart of shares of variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, set_tick_labels, set_title, wrap
from geh_explain.scores.decisions import percent

#: Empty rows between parts.
_GAP = 0.6


@dataclass(frozen=True)
class Bars:
    """A part of the chart: its title, labels of its bars, their lengths and interval ends (n, 3), and its colour."""

    title: str
    labels: list[str]
    values: Floats
    colour: str


def draw_shares(parts: Sequence[Bars], *, level: float, ax: Any = None) -> Any:
    """Draw shares of the output's variance as horizontal bars with intervals, and return the axes.

    Parameters
    ----------
    parts
        Bars that belong together, from top to bottom; a part with one bar without label is labelled by its title.
    level
        Level of the intervals, for the title.
    ax
        Axes to draw into, or None.
    """
    shown = [part for part in parts if len(part.labels)]
    labels, places, place = [], [], 0.0
    for part in shown:
        labels += [wrap(label or part.title) for label in part.labels]
        places += [place - number for number in range(len(part.labels))]
        place = places[-1] - 1 - _GAP
    values = np.concatenate([part.values for part in shown])
    ax = axes_or_new(ax, (7, min(14.0, 1.4 + 0.32 * (places[0] - places[-1] + 1))))
    colours = [part.colour for part in shown for _ in part.labels]
    mean, low, high = 100 * values.T
    ax.barh(places, mean, height=0.65, color=colours, alpha=0.85)
    ax.hlines(places, low, high, colors=palette.LINE, linewidth=1.4)
    ax.axvline(0, color=palette.LINE, linewidth=0.8)
    ax.set_ylim(places[-1] - 0.6, 0.6)
    set_tick_labels(ax.yaxis, places, labels)
    for part, start in zip(shown[1:], np.cumsum([len(part.labels) for part in shown]), strict=False):
        ax.text(
            1,
            places[start] + 0.5,
            part.title,
            transform=ax.get_yaxis_transform(),
            ha="right",
            va="bottom",
            fontsize=9,
            color=palette.LINE,
        )
    ax.set_xlabel("share of the output's variance, %")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    set_title(ax, f"Interactions in the output ({percent(level)} intervals)")
    return ax
