"""Figure of the study of decisions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from studies.decisions.summary import LEVEL, averages
from studies.figures import COLOURS, create_panels, save_figure


def draw_levels(table: pd.DataFrame, path: Path) -> Path:
    """Draw the level of single tests and the false discovery rate at 5 % of all scenarios, with two standard errors."""
    scenarios = list(dict.fromkeys(table["scenario"]))
    places = np.arange(len(scenarios))[::-1]
    figure, axes = create_panels(1, 2, (9, 0.27 * len(scenarios) + 1.2), sharey=True)
    titles = {"level": "pairs without interaction with p < 0.05", "fdr 0.05": "false discovery rate at 5 %"}
    for ax, (column, title) in zip(axes[0], titles.items(), strict=True):
        means = averages(table, column)
        if column == "level":
            ax.axvspan(0.03, 0.07, color="0.92", zorder=0)
        ax.axvline(LEVEL, color="0.4", linewidth=1)
        ax.errorbar(
            [means[name].mean for name in scenarios],
            places,
            xerr=[2 * means[name].error for name in scenarios],
            fmt="o",
            markersize=4,
            color=COLOURS[0],
            linewidth=1,
        )
        ax.set_xlim(0, 0.2)
        ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        ax.set_title(title, fontsize=10)
    axes[0, 0].set_yticks(places, scenarios, fontsize=8)
    return save_figure(figure, path)
