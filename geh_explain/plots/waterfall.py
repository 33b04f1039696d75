"""Waterfall: the contributions that lead from a reference to a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, set_tick_labels, set_title
from geh_explain.plots.network import sign_colour

#: Height of a bar, of 1 per row.
_BAR = 0.62
#: Space beside the bars for numbers, as a part of the range of the axis.
_MARGIN = 0.16


@dataclass(frozen=True)
class Steps:
    """The steps of a waterfall, from the reference to the prediction.

    Attributes
    ----------
    labels
        Name of each step.
    effects
        Signed contribution (S,) of each step.
    half_widths
        Half the width (S,) of the interval of each contribution; NaN where there is none.
    plain
        Whether each step (S,) is a sum of others or a remainder, which has no sign of its own to show.
    reference, prediction
        The outputs at which the steps begin and end.
    """

    labels: Sequence[str]
    effects: Floats
    half_widths: Floats
    plain: Sequence[bool]
    reference: float
    prediction: float

    @property
    def starts(self) -> Floats:
        """Where each step begins (S,)."""
        return np.asarray(self.reference + np.concatenate([[0.0], np.cumsum(self.effects)[:-1]]))

    @property
    def stops(self) -> Floats:
        """Where each step ends (S,)."""
        return np.asarray(self.reference + np.cumsum(self.effects))


def draw_waterfall(steps: Steps, title: str, *, ax: Any = None) -> Any:
    """Draw the steps from top to bottom, each a bar from where the one before it ends.

    Red bars raise the output, blue ones lower it, grey ones are sums of the remaining contributions. Thin lines are
    intervals of single contributions, around the end of their bar.

    Parameters
    ----------
    steps
        The steps.
    title
        Title of the plot.
    ax
        Axes to draw into, or None.
    """
    n_steps = len(steps.effects)
    ax = axes_or_new(ax, (7.0, 1.3 + 0.32 * n_steps))
    rows = np.arange(n_steps)
    starts, stops = steps.starts, steps.stops
    colours = [
        palette.NEUTRAL if plain else sign_colour(int(np.sign(effect)))
        for plain, effect in zip(steps.plain, steps.effects, strict=True)
    ]
    ends = np.concatenate([starts, stops, stops - steps.half_widths, stops + steps.half_widths])
    ends = np.append(ends[np.isfinite(ends)], [steps.reference, steps.prediction])
    low, high = float(ends.min()), float(ends.max())
    margin = _MARGIN * ((high - low) or abs(high) or 1.0)
    ax.set(xlim=(low - margin, high + margin), ylim=(n_steps - 0.4, -0.6))
    ax.barh(rows, steps.effects, left=starts, height=_BAR, color=colours, linewidth=0, zorder=2)
    for row in rows[:-1]:
        ax.plot([stops[row]] * 2, [row - _BAR / 2, row + 1 + _BAR / 2], color=palette.LINE, linewidth=0.6, zorder=1)
    _draw_intervals(ax, steps, rows)
    _draw_numbers(ax, steps, rows, margin)
    for value, name in ((steps.reference, "reference"), (steps.prediction, "prediction")):
        ax.axvline(value, color=palette.LINE, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0.5)
        side = "bottom" if name == "prediction" else "top"
        ax.annotate(
            f"{name} {value:.4g}",
            (value, 0.0 if side == "bottom" else 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, -18 if side == "bottom" else 4),
            textcoords="offset points",
            ha="center",
            va="top" if side == "bottom" else "bottom",
            fontsize=8,
            color=palette.LINE,
        )
    set_tick_labels(ax.yaxis, rows, list(steps.labels), across=4, fontsize=9)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=8, colors=palette.LINE)
    ax.spines[["top", "right", "left"]].set_visible(False)
    set_title(ax, title)
    # Room for the name of the reference between axes and title.
    ax.set_title(ax.get_title(), fontsize=ax.title.get_fontsize(), pad=20, parse_math=False)
    return ax


def _draw_intervals(ax: Any, steps: Steps, rows: Any) -> None:
    """Draw the interval of each contribution as a line around the end of its bar."""
    known = np.isfinite(steps.half_widths)
    low, high = steps.stops - steps.half_widths, steps.stops + steps.half_widths
    ax.hlines(rows[known], low[known], high[known], color=palette.LINE, linewidth=1.2, zorder=3)


def _draw_numbers(ax: Any, steps: Steps, rows: Any, margin: float) -> None:
    """Write each contribution behind its bar, or its interval, on the side to which it points."""
    for row, start, stop, half in zip(rows, steps.starts, steps.stops, np.nan_to_num(steps.half_widths), strict=True):
        effect = stop - start
        ahead = effect >= 0
        place = max(start, stop + half) if ahead else min(start, stop - half)
        ax.text(
            place + (margin if ahead else -margin) / 12,
            row,
            f"{effect:+.3g}",
            ha="left" if ahead else "right",
            va="center",
            fontsize=8,
            color=palette.LINE,
            zorder=4,
            bbox={"facecolor": ax.get_facecolor(), "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
        )
