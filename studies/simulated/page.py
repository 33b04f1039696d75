"""Markdown page of the simulated study, from its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from geh_explain.datasets import simulation as data
from geh_explain.inference.jsonl import Record
from studies.simulated import summary
from studies.simulated.experiment import MAIN_NETWORKS, POSTERIORS, Size
from studies.simulated.verdicts import verdict_table
from studies.text import fill_paragraph, markdown_table, plus_minus

#: Methods whose ranks are compared: label, then method and posterior in the table.
METHODS = {
    "supported, concrete dropout": (summary.SUPPORTED, "concrete dropout"),
    "supported, bootstrap ensemble": (summary.SUPPORTED, "bootstrap ensemble"),
    "GEH, concrete dropout": ("GEH", "concrete dropout"),
    "GEH, bootstrap ensemble": ("GEH", "bootstrap ensemble"),
    "NID": ("NID", ""),
    "SHAP": ("SHAP", ""),
    "Lasso": ("Lasso", ""),
    "Oracle": ("Oracle", ""),
}
#: Error rates of the rules: label, then column of the table.
_RULES = {
    "interval, false positives": "fpr",
    "interval, misses": "fnr",
    "sign, false positives": "sign_fpr",
    "sign, misses": "sign_fnr",
    "evidence, false positives": "evidence_fpr",
    "evidence, misses": "evidence_fnr",
    "evidence at FDR 5 %, false discovery rate": "fdr",
    "evidence at FDR 5 %, misses": "fdr_fnr",
}
#: Coverage of the 95 % intervals: label, then column of the table.
_COVERAGES = {
    "network's interval, true pairs": "coverage",
    "interval from labels, true pairs": "evidence_coverage",
    "network's interval, other pairs": "coverage_null",
    "interval from labels, other pairs": "evidence_coverage_null",
}


def build_page(table: pd.DataFrame, records: Sequence[Record], size: Size, minutes: float | None) -> str:
    """Return the page as Markdown; ``minutes`` is the computing time, None to leave it out."""
    ratios = sorted(table["sn"].unique())
    count = len(records) // max(1, len(ratios))
    time_text = (
        "" if minutes is None else f" Fits, explanations and other methods took {minutes:.0f} minutes of one processor."
    )
    blocks = [
        "# Simulated data",
        fill_paragraph(
            f"Eight features, of which {int(data.TRUTH.sum())} neighbouring pairs interact, each in its own way; the "
            f"other {int((~data.TRUTH).sum())} pairs do not. {size.rows:,} rows (a fifth held out for early stopping), "
            f"{size.test_rows:,} points explained in {size.groups} groups, {size.held_out:,} further rows whose labels "
            f"the [held-out test](../method.md#evidence) uses, {count} data set(s) for each ratio of signal to noise "
            "(of variances; 0 is a target of noise alone). None of the data sets was used to choose networks, training "
            f"or test. Numbers are means over data sets with their standard errors.{time_text}"
        ),
        markdown_table(
            ["pair", "effect", "true AEH", "true GEH", "true EAH"],
            [
                [f"{data.NAMES[i]}, {data.NAMES[j]}", f"`{form}`", *_true_scores(records[-1], (i, j))]
                for (i, j), form in data.PAIRS.items()
            ],
        ),
        "## Summary",
        verdict_table(table),
        "## Ranks of the true pairs",
        fill_paragraph(
            "Best possible is 4, and 14.5 is the mean rank in a random order. The supported score is GEH times the "
            "slope that is expected from the held-out test; this factor was chosen after the data sets of this study "
            "were seen, those of the [study of decisions](decisions.md#the-supported-score) are new to it. SHAP, Lasso "
            "and the Oracle are fitted to training and held-out rows, so that they have the same labels; GEH has those "
            "of the training rows alone."
        ),
        "![Mean rank of the true pairs against signal to noise](../images/simulated_ranks.png)",
        _ratio_table(table, "mean_rank", METHODS, ratios),
        "## Intervals and the truth",
        fill_paragraph(
            "GEH with intervals of two standard deviations over draws of the network, intervals of the true score from "
            "held-out labels, and the truth, one data set at the highest ratio."
        ),
        "![Intervals and the truth](../images/simulated_intervals.png)",
        fill_paragraph(
            "Share of the 95 % intervals that contain the true GEH, which is 0 for pairs that do not interact. The "
            "network's interval describes its posterior, the interval from held-out labels (`true_low`, `true_high`) "
            "the true function:"
        ),
        _posterior_table(table, _COVERAGES, ratios),
        "## Which pairs interact at all",
        "![ROC curves, and the number of groups](../images/simulated_roc.png)",
        fill_paragraph("Area under the ROC curve of the pairs of a data set:"),
        _ratio_table(
            table,
            "auc",
            {
                f"{method}, {posterior}": (method, posterior)
                for posterior in ("concrete dropout", "bootstrap ensemble")
                for method in ("AEH", "GEH", "EAH", summary.SUPPORTED)
            },
            ratios,
        ),
        fill_paragraph(
            "False positive rate on the pairs that do not interact, and misses among those that do, of three rules: "
            "the paper's (the interval of the score excludes 0), the sign rule (p < 0.05 from signed means of groups), "
            "and evidence (p < 0.05 in the held-out test). At a false discovery rate of 5 %, the default, the share of "
            "false discoveries among all, and misses:"
        ),
        _posterior_table(table, _RULES, ratios),
        fill_paragraph(
            "A score is an absolute value, so its interval rarely reaches 0: the paper's rule says little about "
            "whether a pair interacts. The sign rule is about the network: whether its interaction would have the "
            "same sign with other draws and points. A network that has fitted noise uses pairs that do not exist. Only "
            "the held-out test is about the data."
        ),
        "## The pairs that cancel",
        fill_paragraph(
            "The interactions of (x2, x3) and (x6, x7) change sign and cancel in the mean over all points. Share of "
            "data sets in which the paper's rule misses them, and its false positives, by measure (concrete dropout):"
        ),
        _cancelling_table(table, ratios),
        "## Main effects",
        _main_effects(table),
        "*Written by `python -m studies simulated`; a row per data set and method in [simulated.csv](simulated.csv).*",
    ]
    return "\n\n".join(blocks) + "\n"


def _true_scores(record: Record, pair: tuple[int, int]) -> list[str]:
    """Return the true AEH, GEH and EAH of a pair."""
    return [f"{record['truth'][measure][summary.pair_index(pair)]:.2f}" for measure in ("aeh", "geh", "eah")]


def _ratio_table(table: pd.DataFrame, column: str, methods: dict[str, tuple[str, str]], ratios: Sequence[float]) -> str:
    """Return the mean of a column, methods in rows and signal to noise in columns."""
    rows = []
    for label, (method, posterior) in methods.items():
        chosen = table[(table["method"] == method) & (table["posterior"] == posterior)]
        rows.append([label, *_cells(summary.average(chosen, column, "sn"), ratios)])
    return markdown_table(["S/N", *(f"{sn:g}" for sn in ratios)], rows)


def _cells(mean: pd.DataFrame, ratios: Sequence[float]) -> list[str]:
    """Return mean and standard error at each signal to noise, empty where there is none."""
    return [plus_minus(*mean.loc[sn][["mean", "sem"]]) if sn in mean.index else "" for sn in ratios]


def _posterior_table(table: pd.DataFrame, columns: Mapping[str, str], ratios: Sequence[float]) -> str:
    """Return the mean of several columns of GEH, by posterior, and signal to noise in columns."""
    rows = []
    for posterior in POSTERIORS:
        chosen = table[(table["method"] == "GEH") & (table["posterior"] == posterior)]
        for label, column in columns.items():
            rows.append([f"{posterior}: {label}", *_cells(summary.average(chosen, column, "sn"), ratios)])
    return markdown_table(["S/N", *(f"{sn:g}" for sn in ratios)], rows)


def _cancelling_table(table: pd.DataFrame, ratios: Sequence[float]) -> str:
    """Return how often each measure misses the cancelling pairs, and its false positives."""
    rows = []
    for method in ("AEH", "GEH", "EAH"):
        chosen = table[(table["method"] == method) & (table["posterior"] == "concrete dropout")]
        for name in summary.CANCELLING.values():
            mean = summary.average(chosen, f"misses_{name}", "sn")
            rows.append([f"{method}, misses of {name}", *_cells(mean, ratios)])
        rows.append([f"{method}, false positives", *_cells(summary.average(chosen, "fpr", "sn"), ratios)])
    return markdown_table(["S/N", *(f"{sn:g}" for sn in ratios)], rows)


def _main_effects(table: pd.DataFrame) -> str:
    """Return the comparison of linear main effects with networks per feature, as paragraph and table."""
    geh = table[(table["sn"] == 1) & (table["method"] == "GEH")]
    rows = []
    for label, posterior in (("linear", "concrete dropout"), ("a network per feature", MAIN_NETWORKS)):
        chosen = geh[geh["posterior"] == posterior]
        cells = [summary.average(chosen, column, "method") for column in ("seconds", "error", "auc", "mean_rank")]
        rows.append([label, *(plus_minus(*cell.loc["GEH"][["mean", "sem"]]) for cell in cells)])
    text = fill_paragraph(
        "Linear main effects against one small network per feature, S/N = 1, concrete dropout; the error is the "
        "root mean squared one of the mean network to the noiseless target, in standard deviations of that target:"
    )
    return text + "\n\n" + markdown_table(["main effects", "seconds to fit", "error", "AUC", "mean rank"], rows)
