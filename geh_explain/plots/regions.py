"""Signed effect of one pair in each group of points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, set_tick_labels, set_title, wrap
from geh_explain.plots.pairs import pair_label
from geh_explain.scores.decisions import percent
from geh_explain.scores.protocol import PairResult
from geh_explain.scores.ranking import find_unit

if TYPE_CHECKING:
    import pandas as pd

#: Number of groups above which markers are small.
_MANY_GROUPS = 20
#: Number of groups above which descriptions are not drawn, and of characters of a description.
_MAX_DESCRIBED = 12
_MAX_CHARS = 46


def draw_pair_regions(
    result: PairResult,
    i: int | str,
    j: int | str,
    *,
    level: float = 0.95,
    rule: str | None = None,
    fdr: float | None = None,
    ax: Any = None,
) -> Any:
    """Draw the signed effect of a pair in each group, with its interval, in the colour of its sign.

    Parameters
    ----------
    result
        The result to draw. Effects without known uncertainty have no intervals.
    i, j
        The two units, by name or index.
    level
        Level of the intervals.
    rule, fdr
        Rule whose decision about the pair is in the title, and its false discovery rate, as in ``result.table``.
    ax
        Axes to draw into, or None.
    """
    table = result.regions(i, j, level)
    described = _has_descriptions(table)
    height = 0.42 * len(table) if described else min(0.28 * len(table), 2.8 + 0.12 * len(table))
    ax = axes_or_new(ax, (7 if described else 6, 1.4 + height))
    draw_regions(table, ax)
    note = "one draw: no intervals" if table["low"].isna().all() else f"{percent(level)} intervals"
    decisions, number = result.decisions(level=level, fdr=fdr, rule=rule), result.pair(i, j)
    decided = f" ({decisions.other_label if decisions.unsure[number] else decisions.label})"
    pair = pair_label(*(result.names[find_unit(unit, result.names)] for unit in (i, j)))
    set_title(ax, f"{pair}, {note}{'' if decisions.accepted is None else decided}")
    ax.set_xlabel("signed effect")
    ax.set_ylabel("group (points)")
    return ax


def _has_descriptions(frame: pd.DataFrame) -> bool:
    """Return whether the groups are few enough for descriptions, and some have rules or means."""
    if "description" not in frame or len(frame) > _MAX_DESCRIBED:
        return False
    return bool(frame["description"].str.endswith(")").any())


def _short(description: str) -> str:
    """Return a description that fits below a group's name; nothing where there are neither rules nor means."""
    if not description.endswith(")"):
        return ""
    if len(description) > _MAX_CHARS and "), " in description:
        return _short(description.partition("), ")[0] + ")")  # the first one of two means
    rules, _, agreement = description.rpartition(" (")
    return f"{rules if len(rules) <= _MAX_CHARS else f'{rules[: _MAX_CHARS - 1]}…'} ({agreement}"


def draw_regions(frame: pd.DataFrame, ax: Any) -> None:
    """Draw a table of :meth:`~geh_explain.Interactions.regions` into ``ax``, its first row on top.

    ``frame`` has one row per group, with columns size, mean, low and high. Where low is NaN there is no interval. Few
    groups have their descriptions below their names, if the table has a column of these.
    """
    groups, mean = len(frame), frame["mean"].to_numpy()
    height = np.arange(groups)[::-1]
    colours = np.select([mean > 0, mean < 0], [palette.POSITIVE, palette.NEGATIVE], palette.NEUTRAL)
    ax.axvline(0, color=palette.LINE, linewidth=0.8)
    if not frame["low"].isna().all():
        ax.hlines(height, frame["low"], frame["high"], colors=colours, linewidth=1.2)
    ax.scatter(mean, height, s=24 if groups <= _MANY_GROUPS else 12, c=colours, zorder=3)
    ax.set_ylim(-0.6, groups - 0.4)
    labels = [f"{wrap(str(name))} ({size})" for name, size in zip(frame.index, frame["size"], strict=True)]
    if _has_descriptions(frame):
        labels = [f"{label}\n{_short(text)}".rstrip() for label, text in zip(labels, frame["description"], strict=True)]
    set_tick_labels(ax.yaxis, height, labels)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right"]].set_visible(False)
