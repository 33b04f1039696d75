"""Markdown page of the study of real data, from its tables."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from studies.real.experiment import ADDITIVE, SEED, Size
from studies.real.settings import SETTINGS
from studies.real.summary import AS_THEY_ARE, PERMUTED, SCALED, SUPPORTED, TOP, Findings, mean_ranks
from studies.real.verdicts import verdicts
from studies.text import fill_paragraph, markdown_table, plus_minus

_INTRODUCTION = """
The paper's three data sets: California housing, bike sharing by the hour, energy efficiency of buildings. A network
with linear main effects (three layers of 100 nodes; one of 30 for the 768 buildings) is fitted to 70 % of the rows,
stopped early on 20 %, and explained at 10 %, with the paper's number of groups (10, 9 and 15). Inputs are scaled to
(0.5, 1.5) and targets to (0, 1), as in the paper. Weights are Gaussian (mean field), the alternative in the paper's
appendix, with a tempered prior: concrete dropout, the paper's choice, declares too many pairs significant on large
data sets, as the table of false positives shows. The temperature was chosen for each data set on about ten
permutations with other seeds, so that the sign rule keeps its level. Users can do the same, with the same precision:
a rate below 5 % means that the posterior is slightly too wide.
"""
_PERMUTED = """
Targets are permuted and networks fitted again; every pair that is then significant is a false positive. The interval
rule is the paper's: the 95 % interval of the score excludes 0. It cannot keep its level for GEH and EAH, which are
means of absolute values and therefore positive in every draw. The sign rule tests whether the signed mean of some
group is further from 0 than its draws allow, at 5 %. Standard errors are over permutations.
"""
_INJECTED = """
An interaction of two features is added to the target: x y, exp(x + y) or x / y. Its weight is chosen such that the
pure interaction, the part that no sum of functions of x and of y explains, has a given share of the target's standard
deviation. The networks train for at least 120 epochs: rooms, bedrooms, households and population of a district are
strongly correlated, and with less training a network attributes a part of the joint effect to the others. The table
has the mean rank of the injected pair over forms and shares; 1 is best. Trees need no derivatives: SHAP finds weak
interactions earlier where two features nearly determine each other (rooms and households) or take few values
(orientation). "Scaled" scores are multiplied by the standard deviations of both features, which makes pairs
comparable; the others are as in the paper.
"""
_STRONGEST = """
Derivatives depend on the units of measurement. A feature with a few very large values, such as the population of a
district, is compressed by scaling to (0.5, 1.5): most districts lie in a thirtieth of the range, and derivatives
there are large. Scaled scores describe the effect over the range in which the data lie, and are our recommendation;
both are shown. Intervals and Bayesian p-values do not depend on the scale; permutation p-values do, as they compare
different pairs.
"""


def build_page(findings: Findings, size: Size, minutes: float) -> str:
    """Return the page as Markdown; ``minutes`` is the computing time."""
    quality = ", ".join(f"{SETTINGS[name].title} {share:.1%}" for name, share in findings.explained.items())
    temperatures = ", ".join(f"{setting.title} {setting.temperature}" for setting in SETTINGS.values())
    blocks = [
        "# Real data",
        fill_paragraph(_INTRODUCTION),
        fill_paragraph(
            f"{size.permutations} permutations of each target (the paper has 500), {size.draws} posterior "
            f"draws, seed {SEED}; {minutes:.0f} minutes on two processors. Variance of held-out targets that the "
            f"networks explain: {quality}. Temperatures: {temperatures}."
        ),
        _evidence_text(findings),
        "## Summary",
        markdown_table(["target", "result", ""], _verdict_rows(findings)),
        "## False positives",
        fill_paragraph(_PERMUTED),
        fill_paragraph(
            "Evidence is the held-out test, at p < 0.05 for each pair. The next two columns have its decisions at a "
            "false discovery rate of 5 %, the default: the share of pairs that are discoveries, and the share of "
            "targets with at least one. As no pair interacts, the latter is the false discovery rate. The last column "
            "is the held-out test at p < 0.05 on all rows that training did not use. Shares are of all pairs, and "
            "those that cannot be told from effects of other features are never found. On the data's own targets "
            f"{_tested_text(findings)} are tested; among these the shares are larger by that factor."
        ),
        _rate_table(findings.false_positives, PERMUTED),
        "### Targets with main effects",
        fill_paragraph(
            "A permuted target has no main effects either, which makes it an easy null hypothesis. For "
            f"{size.additive} targets of each data set an additive model (splines and steps of every feature) is "
            "fitted to the target, and its residuals are permuted and added to its fitted values. Main effects are "
            "then those of the data, and no pair interacts. Networks with mean field posteriors:"
        ),
        _rate_table(findings.false_positives, ADDITIVE),
        "## Injected interactions",
        fill_paragraph(_INJECTED),
        fill_paragraph(
            "Supported scores are GEH and 1-GEH times the slope that is expected from the held-out test, 1/2 for pairs "
            "that cannot be tested. They use the labels of rows that networks were not trained on; SHAP and Lasso are "
            "fitted to all rows, so that they have the same labels. "
            f"Ranks of networks are means over {size.networks} of them, with other initial weights. All pairs that "
            "interact in the data compete with the injected one."
        ),
        _rank_table(findings.ranks),
        "![Rank of the injected pair against its share of the spread](../images/real_injected.png)",
        "## The strongest pairs",
        fill_paragraph(_STRONGEST),
        fill_paragraph(
            "Slope and its p-value are those of the held-out test, which asks a different question: whether labels "
            "that training never used contain the interaction, at the network's size if the slope is 1. Pairs whose "
            "features others nearly determine cannot be told from effects of these, and have no p-value; where others "
            "determine them it is 1, however strong they are in the network: the shapes of the 768 buildings are 12, "
            "so that compactness, areas and height are such features. Significant pairs are discoveries at a false "
            'discovery rate of 5 %. The order "scaled, supported" is that of the supported scaled scores.'
        ),
        *_strongest_tables(findings),
        "![Joint effect of one pair of each data set, main effects removed; groups as ellipses, or by the colour of "
        "their dots where a feature takes few values: red where the interaction is positive]"
        "(../images/real_surfaces.png)",
        "![The strongest scaled scores of permuted targets, and of the data](../images/real_null.png)",
        "*Written by `python -m studies real`; numbers in [real_false_positives.csv](real_false_positives.csv), "
        "[real_ranks.csv](real_ranks.csv) and [real_pairs.csv](real_pairs.csv).*",
    ]
    return "\n\n".join(blocks) + "\n"


def _verdict_rows(findings: Findings) -> list[list[str]]:
    """Return the rows of the table of targets."""
    return [[target, reached, "met" if met else "**missed**"] for target, reached, met in verdicts(findings)]


def _evidence_text(findings: Findings) -> str:
    """Return the paragraph on the held-out test and its rows."""
    rows, unseen = (
        ", ".join(f"{SETTINGS[name].title} {count:,}" for name, count in counts.items())
        for counts in (findings.held_out, findings.unseen)
    )
    return fill_paragraph(
        f"The [held-out test](../method.md#evidence) uses the labels of the test rows: {rows}. A tenth of the smallest "
        "table, 77 rows, is too few for the columns of the test, which refuses it; the rows of early stopping are "
        "added there. With more rows a test also sees smaller errors of its own, so that false positives on "
        f"targets with main effects are measured a second time on all rows that training did not use: {unseen}. The "
        "network with mean weights is tested."
    )


def _tested_text(findings: Findings) -> str:
    """Return how many pairs of each data set have a slope, so that they were tested."""
    tables = {SETTINGS[name].title: orders[SCALED] for name, orders in findings.strongest.items()}
    counts = [f"{table['slope'].notna().sum()} of {len(table)} ({title})" for title, table in tables.items()]
    return ", ".join(counts[:-1]) + " and " + counts[-1]


def _rate_table(table: pd.DataFrame, target: str) -> str:
    """Return false positive rates on one kind of target with standard errors, and those of the paper."""
    columns = {
        ("aeh", "interval"): "AEH, interval rule",
        ("geh", "interval"): "GEH, interval rule",
        ("eah", "interval"): "EAH, interval rule",
        ("geh", "sign"): "GEH, sign rule",
        ("geh", "evidence"): "evidence, p < 0.05",
        ("geh", "discovery"): "evidence, discoveries",
        ("geh", "any discovery"): "targets with discoveries",
    }
    if target != PERMUTED:
        columns["geh", "unseen"] = "evidence, 30 % of rows"
    rows = []
    for name, setting in SETTINGS.items():
        chosen = table[(table["data"] == name) & (table["target"] == target)]
        for posterior, rows_of_posterior in chosen.groupby("posterior", sort=False):
            indexed = rows_of_posterior.set_index(["measure", "rule"])
            rates, errors = indexed["rate"].to_dict(), indexed["error"].to_dict()
            cells = [f"{rates[key]:.3f} ± {errors[key]:.3f}" for key in columns]
            rows.append([f"{setting.title}, {posterior}", str(rows_of_posterior["refits"].iloc[0]), *cells])
        if target == PERMUTED:
            blanks = [""] * (len(columns) - len(setting.fpr))
            rows.append([f"{setting.title}, paper", "500", *(f"{rate:.3f}" for rate in setting.fpr), *blanks])
    return markdown_table(["", "targets", *columns.values()], rows)


def _rank_table(table: pd.DataFrame) -> str:
    """Return the mean rank of the injected pair, methods by data sets, with the best in bold."""
    means = mean_ranks(table)
    pairs = table.groupby("data", sort=False)["pairs"].first()
    heads = ["", *(f"{SETTINGS[str(name)].title} (of {pairs[str(name)]} pairs)" for name in means)]
    rows = []
    for method, row in means.iterrows():
        cells = zip(row.to_numpy(), means.min().to_numpy(), strict=True)
        rows.append([str(method), *(f"**{rank:.1f}**" if rank == best else f"{rank:.1f}" for rank, best in cells)])
    return markdown_table(heads, rows)


def _strongest_tables(findings: Findings) -> Iterator[str]:
    """Yield heading and table of the strongest pairs of each data set, with those of the paper."""
    heads = ["", "GEH", "95 % interval", "p, Bayesian", "p, sign rule", "p, permutation"]
    heads += ["slope", "p, held-out", "significant"]
    for name, tables in findings.strongest.items():
        yield f"### {SETTINGS[name].title}"
        rows = []
        for order in (AS_THEY_ARE, SCALED, SUPPORTED):
            for _, row in tables[order].head(TOP).iterrows():
                rows.append(
                    [
                        f"{order}: {row['unit_i']}, {row['unit_j']}",
                        f"{row['score']:.3g}",
                        f"{row['low']:.3g} to {row['high']:.3g}",
                        *(f"{row[f'p_{kind}']:.4f}" for kind in ("bayes", "sign", "permutation")),
                        "" if pd.isna(row["slope"]) else plus_minus(row["slope"], row["slope_se"]),
                        "not tested" if np.isnan(row["p_value"]) else f"{row['p_value']:.4f}",
                        "yes" if row["significant"] else "no",
                    ]
                )
        blanks = [""] * 3
        rows += [[f"paper: {i}, {j}", f"{score:.3f}", *blanks, "0.000", *blanks] for i, j, score in SETTINGS[name].top]
        yield markdown_table(heads, rows)
