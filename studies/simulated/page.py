"""The page of the simulated study, from its tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from geh_explain.datasets import simulation as data
from geh_explain.inference.jsonl import Record
from studies.simulated import summary
from studies.simulated.experiment import MAIN_NETWORKS, POSTERIORS, Size
from studies.simulated.verdicts import verdicts
from studies.text import filled, markdown, plus_minus

#: Lines of the first picture: label, method, posterior.
LINES = {
    "GEH, concrete dropout": ("GEH", "concrete dropout"),
    "GEH, bootstrap ensemble": ("GEH", "bootstrap ensemble"),
    "NID": ("NID", ""),
    "SHAP": ("SHAP", ""),
    "Lasso": ("Lasso", ""),
    "Oracle": ("Oracle", ""),
}


def page(table: pd.DataFrame, records: Sequence[Record], size: Size, minutes: float | None) -> str:
    """Return the page."""
    levels = sorted(table["sn"].unique())
    count = len(records) // max(1, len(levels))
    took = (
        "" if minutes is None else f" Fits, explanations and other methods took {minutes:.0f} minutes of one processor."
    )
    blocks = [
        "# The simulated study",
        filled(
            f"Eight features, of which {int(data.TRUTH.sum())} neighbouring pairs interact, each in its own way; the "
            f"other {int((~data.TRUTH).sum())} pairs do not. {size.rows:,} rows (a fifth held out for early stopping), "
            f"{size.test_rows:,} points explained in {size.groups} groups, {count} data set(s) for each ratio of "
            "signal to noise (of variances; 0 is a target of noise alone). Numbers are means over data sets with their "
            f"standard errors.{took}"
        ),
        markdown(
            ["pair", "effect", "true AEH", "true GEH", "true EAH"],
            [
                [f"{data.NAMES[i]}, {data.NAMES[j]}", f"`{form}`", *_true(records[-1], (i, j))]
                for (i, j), form in data.PAIRS.items()
            ],
        ),
        "## In short",
        verdicts(table),
        "## Ranks of the true pairs",
        "![Mean rank of the true pairs against signal to noise](../images/simulated_ranks.png)",
        _by_level(table, "mean_rank", LINES, levels),
        "## Intervals and the truth",
        filled("GEH with intervals of two standard deviations beside the truth, one data set at the highest ratio."),
        "![Intervals and the truth](../images/simulated_intervals.png)",
        filled("Share of the 95 % intervals of true pairs that hold the true GEH:"),
        _by_level(table, "coverage", {name: ("GEH", name) for name in POSTERIORS}, levels),
        "## Which pairs interact at all",
        "![ROC curves, and the number of groups](../images/simulated_roc.png)",
        filled("Area under the ROC curve of the pairs of a data set:"),
        _by_level(
            table,
            "auc",
            {f"{m}, {p}": (m, p) for p in ("concrete dropout", "bootstrap ensemble") for m in ("AEH", "GEH", "EAH")},
            levels,
        ),
        filled(
            "False positive rate on the pairs that do not interact, and misses among those that do, of the paper's "
            "rule (the interval of the score excludes 0) and of the sign rule (p < 0.05 from signed means of regions):"
        ),
        _rules(table, levels),
        filled(
            "A score is an absolute value, so its interval hardly ever reaches 0: the paper's rule says little about "
            "whether a pair interacts. The sign rule does, as far as the posterior is honest."
        ),
        "## The pairs that cancel",
        filled(
            "The interactions of (x2, x3) and (x6, x7) change sign and cancel in the mean over all points. Share of "
            "data sets in which the paper's rule misses them, and its false positives, by measure (concrete dropout):"
        ),
        _cancelling(table, levels),
        "## Main effects",
        _main(table),
        "*Written by `geh-explain study simulated`; a row per data set and method in [simulated.csv](simulated.csv).*",
    ]
    return "\n\n".join(blocks) + "\n"


def _true(record: Record, pair: tuple[int, int]) -> list[str]:
    return [f"{record['truth'][measure][summary.position(pair)]:.2f}" for measure in ("aeh", "geh", "eah")]


def _by_level(table: pd.DataFrame, column: str, lines: dict[str, tuple[str, str]], levels: Sequence[float]) -> str:
    rows = []
    for label, (method, posterior) in lines.items():
        own = table[(table["method"] == method) & (table["posterior"] == posterior)]
        rows.append([label, *_cells(summary.averaged(own, column, "sn"), levels)])
    return markdown(["S/N", *(f"{sn:g}" for sn in levels)], rows)


def _cells(mean: pd.DataFrame, levels: Sequence[float]) -> list[str]:
    """Return mean and standard error at each level, empty where there is none."""
    return [plus_minus(*mean.loc[sn][["mean", "sem"]]) if sn in mean.index else "" for sn in levels]


def _rules(table: pd.DataFrame, levels: Sequence[float]) -> str:
    rows = []
    for posterior in POSTERIORS:
        own = table[(table["method"] == "GEH") & (table["posterior"] == posterior)]
        for label, column in (
            ("interval, false positives", "fpr"),
            ("interval, misses", "fnr"),
            ("sign, false positives", "sign_fpr"),
            ("sign, misses", "sign_fnr"),
        ):
            mean = summary.averaged(own, column, "sn")
            rows.append([f"{posterior}: {label}", *_cells(mean, levels)])
    return markdown(["S/N", *(f"{sn:g}" for sn in levels)], rows)


def _cancelling(table: pd.DataFrame, levels: Sequence[float]) -> str:
    rows = []
    for method in ("AEH", "GEH", "EAH"):
        own = table[(table["method"] == method) & (table["posterior"] == "concrete dropout")]
        for name in summary.CANCELLING.values():
            mean = summary.averaged(own, f"misses_{name}", "sn")
            rows.append([f"{method}, misses of {name}", *_cells(mean, levels)])
        rows.append([f"{method}, false positives", *_cells(summary.averaged(own, "fpr", "sn"), levels)])
    return markdown(["S/N", *(f"{sn:g}" for sn in levels)], rows)


def _main(table: pd.DataFrame) -> str:
    own = table[(table["sn"] == 1) & (table["method"] == "GEH")]
    rows = []
    for label, posterior in (("linear", "concrete dropout"), ("a network per feature", MAIN_NETWORKS)):
        mine = own[own["posterior"] == posterior]
        cells = [summary.averaged(mine, column, "method") for column in ("seconds", "error", "auc", "mean_rank")]
        rows.append([label, *(plus_minus(*cell.loc["GEH"][["mean", "sem"]]) for cell in cells)])
    text = filled(
        "Linear main effects against one small network per feature, S/N = 1, concrete dropout; the error is that of "
        "the mean network to the noiseless target, relative to its spread:"
    )
    return text + "\n\n" + markdown(["main effects", "seconds to fit", "error", "AUC", "mean rank"], rows)
