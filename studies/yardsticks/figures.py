"""Figure of the study of yardsticks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from studies.figures import COLOURS, create_panels, save_figure
from studies.yardsticks.nid import ON_NETWORK, ON_ROWS
from studies.yardsticks.ours import SCORES
from studies.yardsticks.summary import areas, settings

#: Marks of the other methods.
_MARKS = dict(zip((*ON_NETWORK, *ON_ROWS), "v^<>sDPX", strict=True))


def draw_areas(nid: pd.DataFrame, path: Path) -> Path:
    """Draw the mean area under the ROC curve of all methods by function, one panel per number of rows and noise."""
    shown = settings(nid)
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    figure, axes = create_panels(rows, columns, (5.2 * columns, 3 * rows + 0.6), sharey=True)
    for ax, setting in zip(axes.flat, shown, strict=False):
        table = areas(nid, setting)
        places = np.arange(table.shape[1])
        for number, (method, mark) in enumerate(_MARKS.items()):
            if method in table.index:
                colour = COLOURS[1 + number % (len(COLOURS) - 1)]
                ax.plot(places, table.loc[method], mark, color=colour, markersize=5, alpha=0.7, label=method)
        ax.plot(places, table.loc[SCORES[0]], "o", color=COLOURS[0], markersize=8, label="this package, supported")
        ax.axhline(0.5, color="0.6", linewidth=0.8, linestyle=":")
        ax.set_xticks(places, table.columns)
        ax.set_xlim(-0.5, len(places) - 0.5)
        ax.set_ylim(0.3, 1.03)
        ax.set_title(str(setting), fontsize=10)
    for ax in axes.flat[len(shown) :]:
        ax.set_visible(False)
    for ax in axes[:, 0]:
        ax.set_ylabel("area under the ROC curve")
    # The first panel has all methods: slow ones are run on the smallest number of rows.
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return save_figure(figure, path)
