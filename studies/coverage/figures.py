"""Figure of the study of coverage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from studies.coverage.population import KINDS, NONE
from studies.coverage.summary import TARGET
from studies.figures import COLOURS, create_panels, save_figure

#: Left ends of the axes.
_LEAST = {"geh": 0.8, "clusters ignored": 0.2}


def draw_coverage(table: pd.DataFrame, path: Path) -> Path:
    """Draw the coverage of GEH by scenario and kind of pair, beside that of intervals that ignore clusters."""
    scenarios = list(dict.fromkeys(table["scenario"]))
    places = np.arange(len(scenarios))[::-1]
    figure, axes = create_panels(1, 2, (10, 0.24 * len(scenarios) + 1.6), sharey=True)
    titles = {"geh": "95 % intervals", "clusters ignored": "clusters ignored"}
    for ax, (part, title) in zip(axes[0], titles.items(), strict=True):
        ax.axvspan(*TARGET, color="0.92", zorder=0)
        ax.axvline(0.95, color="0.4", linewidth=1)
        for offset, (kind, colour) in enumerate(zip((*KINDS, NONE), COLOURS, strict=False)):
            chosen = table[(table["part"] == part) & (table["kind"] == kind)].set_index("scenario")["coverage"]
            known = [name in chosen.index for name in scenarios]
            values = [float(chosen[name]) for name in scenarios if name in chosen.index]
            shift = 0.12 * (2 - offset)
            # A smaller coverage is drawn at the edge.
            ax.plot(
                np.maximum(values, _LEAST[part]), places[known] + shift, "o", markersize=4, color=colour, label=kind
            )
        ax.set_xlim(_LEAST[part] - 0.005, 1.005)
        ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        ax.set_title(title, fontsize=10)
    axes[0, 0].set_yticks(places, scenarios, fontsize=8)
    axes[0, 0].legend(loc="lower left", fontsize=8)
    for ax in axes[0]:
        ax.set_xlabel("coverage of the score of the population", fontsize=9)
    return save_figure(figure, path)
