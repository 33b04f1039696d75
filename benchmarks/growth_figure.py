"""Figure of the cost against points, draws and inputs, with fitted slopes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import package_methods as ours
from benchmarks.growth import REVERSE
from benchmarks.results import Result
from geh_explain.plots import palette

#: Colours of the lines.
COLOURS = {ours.EXPLAIN: palette.SURE, ours.EXPLAIN_EXACT: palette.UNSURE, REVERSE: palette.MARK}
#: Slopes are fitted to this many of the largest sizes; at smaller ones fixed costs dominate.
FITTED_SIZES = 3


def fit_slope(curve: dict[int, float]) -> float:
    """Return the exponent a of cost ~ size^a, fitted to the largest sizes."""
    sizes = sorted(curve)[-FITTED_SIZES:]
    return float(np.polyfit(np.log(sizes), np.log([curve[size] for size in sizes]), 1)[0])


def draw_growth(results: list[Result], path: Path) -> None:
    """Draw one panel per case of growth and write the figure to ``path``; nothing if there is no such case."""
    import matplotlib.pyplot as plt

    growing = [result for result in results if result.curves]
    if not growing:
        return
    figure, axes = plt.subplots(1, len(growing), figsize=(4.2 * len(growing), 3.9), layout="constrained", squeeze=False)
    for ax, result in zip(axes[0], growing, strict=True):
        _draw_panel(ax, result)
    axes[0, 0].set_ylabel("time, ms")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
    plt.close(figure)


def _draw_panel(ax: Any, result: Result) -> None:
    """Draw the lines of one case on logarithmic axes."""
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    for line, curve in result.curves.items():
        sizes, colour = sorted(curve), COLOURS.get(line, palette.LINE)
        label = f"{line}: slope {fit_slope(curve):.2f}"
        ax.plot(sizes, [1e3 * curve[size] for size in sizes], "o-", color=colour, ms=4, lw=1.6, label=label)
    ax.set(xscale="log", yscale="log", xlabel=result.axis)
    sizes = sorted({size for curve in result.curves.values() for size in curve})
    ax.set_xticks(sizes if len(sizes) < 6 else sizes[::2])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    # Whole decades: with fewer, the axis may have a single tick.
    low, high = ax.get_ylim()
    ax.set_ylim(10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(high)))
    heading, _, details = result.title.partition(": ")
    ax.set_title(f"{heading}\n", loc="left", fontsize=10.5, fontweight="bold")
    ax.text(0, 1.03, details, transform=ax.transAxes, fontsize=8, color=palette.LINE)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8)
