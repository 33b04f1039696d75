"""All pairs at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain.plots import palette
from geh_explain.plots.axes import axes_or_new, label_units, shorten

if TYPE_CHECKING:
    from geh_explain.interactions import Interactions


def heatmap(result: Interactions, measure: str = "geh", *, level: float = 0.95, most: int = 40, ax: Any = None) -> Any:
    """Draw the mean score of every pair; a dot marks the significant ones.

    With more than ``most`` units, the ones with the strongest pairs are shown.
    """
    scores = result.scores(measure)
    strongest = np.argsort(-scores.mean.max(axis=0), kind="stable")[:most]
    shown = np.sort(strongest)
    mean = scores.mean[np.ix_(shown, shown)]
    count = len(shown)
    names = [shorten(result.names[i]) for i in shown]
    side = min(12.0, 2.6 + 0.32 * count) + 0.08 * max(map(len, names))
    ax = axes_or_new(ax, (side * 1.15, side))
    values = np.where(np.eye(count, dtype=bool), np.nan, mean)
    image = ax.imshow(values, cmap=palette.STRENGTH, vmin=0)
    ax.set_facecolor(palette.NONE)
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label=f"{measure.upper()} (posterior mean)")
    label_units(ax.xaxis, range(count), names, rotation=90 if max(map(len, names)) > 3 or count > 20 else 0)
    label_units(ax.yaxis, range(count), names)
    ax.tick_params(length=0)
    if scores.count > 1:
        low = scores.interval(level)[0][np.ix_(shown, shown)]
        rows, columns = np.nonzero(low > 0)
        light = values[rows, columns] < 0.6 * np.nanmax(values)
        ax.scatter(columns, rows, s=max(4.0, 160 / count), c=np.where(light, palette.LINE, "white"), linewidths=0)
        dots = f"dots: significant at {level:.0%}"
    else:
        dots = "one draw: no significance"
    hidden = len(result.names) - count
    ax.set_title(f"Interaction strength ({dots}{f'; {hidden} weaker units not shown' if hidden else ''})", fontsize=10)
    return ax
