"""Markdown page of the study of decisions, from its table."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from studies.decisions.experiment import Size
from studies.decisions.summary import RATES, SHRINKAGE, Average, averages
from studies.text import fill_paragraph, markdown_table

#: Limits of the level at nominal 5 %, and of the coverage at nominal 95 %.
_LEVELS = (0.03, 0.07)
_COVERAGES = (0.93, 0.99)
#: Power on true pairs that is wanted, by scenario.
_POWERS = {"S/N 1": 0.95, "S/N 10": 1.0}
#: Scenarios whose level only has an upper limit: small samples and models that are not smooth.
_UPPER_ONLY = ("lognormal", "four levels", "boosted trees", "300 rows", "of 1,000 rows", "of 2,000 rows")


def build_page(table: pd.DataFrame, demonstrations: Sequence[Sequence[Sequence[str]]], size: Size) -> str:
    """Return the page as Markdown; ``demonstrations`` has the significant pairs of each demonstration."""
    ratios = [name for name in dict.fromkeys(table["scenario"]) if name.startswith("S/N")]
    minutes = (table["fit_seconds"] + table["seconds"]).sum() / 60
    blocks = [
        "# Decisions",
        fill_paragraph(
            f"Does the [held-out test](../method.md#evidence) keep its promises? {len(table):,} data sets with known "
            f"interactions, {size.data_sets} for each scenario, none of them used to choose the method. Networks have "
            "two hidden layers of 64 units; the signal of most scenarios has seven pairs that interact among the 28 "
            "pairs of eight features (the [simulated study](simulated.md) has their forms). Numbers are means over "
            "data sets with their standard errors; what misses its target is bold. Fits and tests took "
            f"{minutes:.0f} minutes of one processor."
        ),
        "![Level and false discovery rate of all scenarios](../images/decisions.png)",
        "## Error rates",
        fill_paragraph(
            "Level: share of the pairs without interaction that have p < 0.05. Wanted are 3 to 7 %, and at most 7 % "
            "for small samples and boosted trees. FDR: share of false discoveries among all, at a nominal rate of 5 "
            "and 20 %; wanted is at most the nominal rate plus two standard errors. Power: share of the true pairs "
            "with p < 0.05. Unless the name says otherwise, S/N is 1 to 3 (in the code), networks are trained on 4,000 "
            "rows, those of the ratios S/N on 20,000, and 3,000 rows are held out. Correlations are those of all pairs "
            "of features; of 30 and 100 features the 100 strongest pairs are tested."
        ),
        _error_table(table),
        "## Power, ranks and intervals",
        fill_paragraph(
            "Oracle: the same test with the true function in place of the network. Coverage: share of the 95 % "
            "intervals `true_low`, `true_high` that contain the true GEH; width: median of high - low over the true "
            "score."
        ),
        _power_table(table, ratios),
        "## The supported score",
        fill_paragraph(
            "Mean rank of the seven true pairs (4.00 is the best possible), and root mean squared error to the true "
            "score, for GEH times several factors."
        ),
        _shrinkage_table(table, ratios, "rank", "mean rank"),
        _shrinkage_table(table, ratios, "error", "error"),
    ]
    if demonstrations:
        blocks += ["## The demonstration", _demonstration_text(demonstrations)]
    return "\n\n".join(blocks) + "\n"


def _demonstration_text(demonstrations: Sequence[Sequence[Sequence[str]]]) -> str:
    """Return in how many demonstrations the one true pair, and only this one, is significant."""
    right = [["x0", "x1"]]
    exact = sum(list(map(list, pairs)) == right for pairs in demonstrations)
    found = sum(["x0", "x1"] in list(map(list, pairs)) for pairs in demonstrations)
    false = sum(max(0, len(pairs) - 1) for pairs in demonstrations)
    count = f"{exact} of {len(demonstrations)}"
    return fill_paragraph(
        "`make demo` trains a network on Friedman's function, in which one of 45 pairs interacts, and tests all pairs "
        "on 1,000 held-out rows. With other seeds, this pair and no other is significant in "
        f"{count if exact >= 0.95 * len(demonstrations) else f'**{count}**'} runs (wanted: 95 % of them); the pair is "
        f"found in {found}; false discoveries in all runs: {false}."
    )


def _error_table(table: pd.DataFrame) -> str:
    """Return level, false discovery rates and power of all scenarios."""
    columns = ["level", *(f"fdr {rate:g}" for rate in RATES), "power", "power at fdr 0.05"]
    means = {column: averages(table, column) for column in columns}
    rows = []
    for name in dict.fromkeys(table["scenario"]):
        level = means["level"][name]
        lowest = 0.0 if any(part in name for part in _UPPER_ONLY) else _LEVELS[0]
        cells = [_share(level, missed=not lowest <= level.mean <= _LEVELS[1])]
        for rate in RATES:
            found = means[f"fdr {rate:g}"][name]
            cells.append(_share(found, missed=found.mean > rate + 2 * found.error))
        for column in ("power", "power at fdr 0.05"):
            cells.append(_share(means[column][name]) if name in means[column] else "")
        rows.append([name, *cells])
    return markdown_table(["scenario", "level", "FDR at 5 %", "FDR at 20 %", "power", "power at FDR 5 %"], rows)


def _power_table(table: pd.DataFrame, ratios: Sequence[str]) -> str:
    """Return power beside the oracle's, coverage and width, by signal to noise."""
    rows = []
    for name in ratios:
        part = table[table["scenario"] == name]
        if part["power"].isna().all():
            continue
        power, oracle, coverage, null = (
            averages(part, column)[name] for column in ("power", "oracle power", "coverage", "coverage, no interaction")
        )
        rows.append(
            [
                name,
                _share(power, missed=power.mean < _POWERS.get(name, 0.0)),
                _share(oracle),
                _share(coverage, missed=not _COVERAGES[0] <= coverage.mean <= _COVERAGES[1]),
                _share(null),
                f"{part['width'].median():.2f}",
            ]
        )
    heads = ["", "power", "oracle", "coverage, true pairs", "coverage, other pairs", "width"]
    return markdown_table(heads, rows)


def _shrinkage_table(table: pd.DataFrame, ratios: Sequence[str], prefix: str, title: str) -> str:
    """Return a measure of quality by shrinkage factor and signal to noise."""
    known = [name for name in ratios if table.loc[table["scenario"] == name, f"{prefix}, GEH alone"].notna().any()]
    rows = []
    for factor in SHRINKAGE:
        means = averages(table, f"{prefix}, {factor}")
        rows.append([factor, *(f"{means[name].mean:.3f} ± {means[name].error:.3f}" for name in known)])
    return markdown_table([title, *known], rows)


def _share(entry: Average, missed: bool = False) -> str:
    """Return a mean share with its standard error in per cent, bold if it misses its target."""
    text = f"{100 * entry.mean:.1f} ± {100 * entry.error:.1f} %"
    return f"**{text}**" if missed else text
