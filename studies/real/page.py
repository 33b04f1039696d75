"""Markdown page of the study of real data, from its tables."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from studies.real.experiment import MEAN_FIELD, SEED, Size
from studies.real.settings import SETTINGS
from studies.real.summary import TOP, Findings, mean_ranks
from studies.text import fill_paragraph, markdown_table

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
        "## Summary",
        markdown_table(["target", "result", ""], _verdict_rows(findings)),
        "## False positives",
        fill_paragraph(_PERMUTED),
        _rate_table(findings.false_positives),
        "## Injected interactions",
        fill_paragraph(_INJECTED),
        _rank_table(findings.ranks),
        "![Rank of the injected pair against its share of the spread](../images/real_injected.png)",
        "## The strongest pairs",
        fill_paragraph(_STRONGEST),
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


def verdicts(findings: Findings) -> Iterator[tuple[str, str, bool]]:
    """Yield each target of the study, what was reached, and whether the target is met."""
    yield from _false_positive_verdicts(findings.false_positives)
    yield from _rank_verdicts(findings.ranks)
    yield from _strongest_verdicts(findings)
    for name, setting in SETTINGS.items():
        worst = max(float(table["p_permutation"].head(TOP).max()) for table in findings.strongest[name])
        yield f"{setting.title}: permutation p of the top three at most 0.01", f"{worst:.4f}", worst <= 0.01


def _false_positive_verdicts(table: pd.DataFrame) -> Iterator[tuple[str, str, bool]]:
    """Yield the verdicts on false positive rates with mean field posteriors."""
    rates = table[table["posterior"] == MEAN_FIELD].set_index(["data", "measure", "rule"])["rate"]
    for name, setting in SETTINGS.items():
        by_rule = {rule: float(rates[name, "geh", rule]) for rule in ("interval", "sign")}
        reached = ", ".join(f"{rate:.1%} ({rule} rule)" for rule, rate in by_rule.items())
        met = any(0.02 <= rate <= 0.08 for rate in by_rule.values())
        yield f"{setting.title}: false positives of GEH between 2 and 8 % with one of the rules", reached, met
        by_measure = [float(rates[name, measure, "interval"]) for measure in ("aeh", "geh", "eah")]
        reached = ", ".join(f"{rate:.1%}" for rate in by_measure)
        yield f"{setting.title}: AEH has the fewest, EAH the most", reached, by_measure == sorted(by_measure)


def _rank_verdicts(table: pd.DataFrame) -> Iterator[tuple[str, str, bool]]:
    """Yield the verdicts on the mean rank of the injected pair."""
    means = mean_ranks(table)
    for name in ("housing", "bike"):
        ranks = {method: float(rank) for method, rank in means[name].items()}
        best = min(("NID", "SHAP", "Lasso"), key=ranks.__getitem__)
        reached, met = f"{ranks['1-GEH']:.1f}; {ranks[best]:.1f} ({best})", ranks["1-GEH"] <= ranks[best]
        yield f"{SETTINGS[name].title}: 1-GEH has the best mean rank of the injected pair", reached, met


def _strongest_verdicts(findings: Findings) -> Iterator[tuple[str, str, bool]]:
    """Yield the verdicts on pairs that should be among the strongest."""
    for name, pair, max_rank in (("housing", ("longitude", "latitude"), 3), ("bike", ("hour", "workingday"), 2)):
        for scale, table in zip(("as they are", "scaled"), findings.strongest[name], strict=True):
            rank = _rank_of(table, pair)
            yield (
                f"{SETTINGS[name].title}, scores {scale}: {pair[0]} and {pair[1]} among the first {max_rank}",
                f"{rank}",
                rank <= max_rank,
            )


def _rank_of(table: pd.DataFrame, pair: tuple[str, str]) -> int:
    """Return the rank of a pair, 1 for the strongest; one more than the number of pairs if it is missing."""
    pairs = [{i, j} for i, j in zip(table["unit_i"], table["unit_j"], strict=True)]
    return pairs.index(set(pair)) + 1 if set(pair) in pairs else len(pairs) + 1


def _rate_table(table: pd.DataFrame) -> str:
    """Return false positive rates with standard errors, and those of the paper."""
    columns = [("aeh", "interval"), ("geh", "interval"), ("eah", "interval"), ("geh", "sign")]
    rows = []
    for name, setting in SETTINGS.items():
        for posterior, rows_of_posterior in table[table["data"] == name].groupby("posterior", sort=False):
            indexed = rows_of_posterior.set_index(["measure", "rule"])
            rates, errors = indexed["rate"].to_dict(), indexed["error"].to_dict()
            cells = [f"{rates[key]:.3f} ± {errors[key]:.3f}" for key in columns]
            rows.append([f"{setting.title}, {posterior}", str(rows_of_posterior["permutations"].iloc[0]), *cells])
        rows.append([f"{setting.title}, paper", "500", *(f"{rate:.3f}" for rate in setting.fpr), ""])
    return markdown_table(["", "permutations", *(f"{measure.upper()}, {rule} rule" for measure, rule in columns)], rows)


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
    for name, tables in findings.strongest.items():
        yield f"### {SETTINGS[name].title}"
        rows = []
        for scale, table in zip(("as they are", "scaled"), tables, strict=True):
            for _, row in table.head(TOP).iterrows():
                rows.append(
                    [
                        f"{scale}: {row['unit_i']}, {row['unit_j']}",
                        f"{row['score']:.3g}",
                        f"{row['low']:.3g} to {row['high']:.3g}",
                        *(f"{row[f'p_{kind}']:.4f}" for kind in ("bayes", "sign", "permutation")),
                    ]
                )
        rows += [[f"paper: {i}, {j}", f"{score:.3f}", "", "", "", "0.000"] for i, j, score in SETTINGS[name].top]
        yield markdown_table(heads, rows)
