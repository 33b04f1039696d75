"""The pictures of the study of real data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from geh_explain.analyses.surface import Surface
from geh_explain.inference import PermutationTest
from studies.figures import COLOURS, panels, save
from studies.real.settings import SETTINGS


def injected(table: pd.DataFrame, path: Path) -> Path:
    """Draw the rank of the injected pair against its share of the spread: data sets in columns, forms in rows."""
    names, forms = list(table["data"].unique()), list(table["form"].unique())
    figure, axes = panels(len(forms), len(names), (4.2 * len(names), 2.6 * len(forms) + 0.6))
    for row, form in enumerate(forms):
        for column, name in enumerate(names):
            ax, own = axes[row][column], table[(table["data"] == name) & (table["form"] == form)]
            for colour, (method, each) in zip(COLOURS, own.groupby("method", sort=False), strict=False):
                style = "--" if "scaled" in str(method) else "-"
                ax.plot(each["share"], each["rank"], marker=".", color=colour, linestyle=style, label=str(method))
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.minorticks_off()
            shares = sorted(own["share"].unique())
            ax.set_xticks(shares, [f"{share:.0%}" for share in shares])
            ax.set_yticks([1, 3, 10, 30], ["1", "3", "10", "30"])
            ax.set_ylim(int(own["pairs"].iloc[0]), 0.9)
            if row == 0:
                ax.set_title(f"{SETTINGS[name].title}\n{' and '.join(SETTINGS[name].injected)}", fontsize=10)
            if column == 0:
                ax.set_ylabel(f"{form}\nrank of the pair")
            if row == len(forms) - 1:
                ax.set_xlabel("injected share of the target's spread")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=7, frameon=False)
    return save(figure, path)


def side_by_side(found: Mapping[str, Surface | PermutationTest], width: float, path: Path) -> Path:
    """Draw a picture for each data set."""
    figure, axes = panels(1, len(found), (width * len(found), 4.0))
    for ax, (name, each) in zip(axes[0], found.items(), strict=True):
        each.plot(ax=ax)
        ax.set_title(SETTINGS[name].title, fontsize=10)
    return save(figure, path)
