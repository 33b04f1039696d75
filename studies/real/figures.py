"""Figures of the study of real data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from geh_explain.analyses.surface import Surface
from geh_explain.inference import PermutationTest
from studies.figures import COLOURS, create_panels, save_figure
from studies.real.settings import SETTINGS


def draw_injected(table: pd.DataFrame, path: Path) -> Path:
    """Draw the rank of the injected pair against its share, and return ``path``.

    Panels: forms in rows, data sets in columns. Lines: methods; those of scaled scores are dashed.
    """
    names, forms = list(table["data"].unique()), list(table["form"].unique())
    figure, axes = create_panels(len(forms), len(names), (4.2 * len(names), 2.6 * len(forms) + 0.6))
    bases = list(dict.fromkeys(map(_base, table["method"])))
    for row, form in enumerate(forms):
        for column, name in enumerate(names):
            ax = axes[row][column]
            ranks = table[(table["data"] == name) & (table["form"] == form)]
            for method, line in ranks.groupby("method", sort=False):
                style = "--" if "scaled" in str(method) else "-"
                colour = COLOURS[bases.index(_base(method))]
                ax.plot(line["share"], line["rank"], marker=".", color=colour, linestyle=style, label=str(method))
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.minorticks_off()
            shares = sorted(ranks["share"].unique())
            ax.set_xticks(shares, [f"{share:.0%}" for share in shares])
            ax.set_yticks([1, 3, 10, 30], ["1", "3", "10", "30"])
            ax.set_ylim(int(ranks["pairs"].iloc[0]), 0.9)  # rank 1 at the top
            if row == 0:
                ax.set_title(f"{SETTINGS[name].title}\n{' and '.join(SETTINGS[name].injected)}", fontsize=10)
            if column == 0:
                ax.set_ylabel(f"{form}\nrank of the pair")
            if row == len(forms) - 1:
                ax.set_xlabel("injected share of the target's spread")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return save_figure(figure, path)


def _base(method: object) -> str:
    """Return the method of a score, scaled or not."""
    return str(method).removesuffix(", scaled")


def draw_side_by_side(results: Mapping[str, Surface | PermutationTest], width: float, path: Path) -> Path:
    """Draw one panel of ``width`` inches per data set with the result's own ``plot``, and return ``path``."""
    figure, axes = create_panels(1, len(results), (width * len(results), 4.0))
    for ax, (name, result) in zip(axes[0], results.items(), strict=True):
        result.plot(ax=ax)
        ax.set_title(SETTINGS[name].title, fontsize=10)
    return save_figure(figure, path)
