"""Markdown page of the study of coverage, from its table."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from studies.coverage.experiment import Scenario, Size
from studies.coverage.population import KINDS, NONE
from studies.coverage.summary import misses
from studies.text import fill_paragraph, markdown_table


def build_page(table: pd.DataFrame, size: Size, minutes: float) -> str:
    """Return the page as Markdown; ``minutes`` is the processor time of all samples."""
    scenarios = size.scenarios
    points = [scenario for scenario in scenarios if scenario.points and scenario.draws == 1]
    drawn = [scenario for scenario in scenarios if scenario.draws > 1]
    clustered = [scenario for scenario in scenarios if scenario.clusters]
    blocks = [
        "# Coverage",
        fill_paragraph(
            f"How often do the intervals of `result.table()` hold the score of the population? {len(scenarios)} "
            f"scenarios, {size.samples:,} samples each, none of them used to choose the method; {minutes:.0f} minutes "
            "of one processor. The function is known, and so are its scores over the population, in closed form:"
        ),
        "```text\nf(x) = x0 x1 (1 + z/2) + x2 x3 z + x4 x5 exp(0.6 z) + x6 x7 (0.2 + w)\n```",
        fill_paragraph(
            "All features are standard normal, and regions are intervals of z. Kinds of pairs: *same sign* (x0, x1), "
            "*sign changes* (x2, x3), *skewed* (x4, x5), *weak* (x6, x7), whose mean is a fifth of its standard "
            "deviation, and *none*: eight pairs such as (x0, z), whose interaction varies from point to point with "
            "mean 0 in every region. With one region that of (x2, x3) is 0, too. Wanted are 93 to 97 %, and at least "
            "95 % for pairs whose score is 0; what misses its target is bold. The standard error of a "
            f"coverage of 95 % is {100 * (0.95 * 0.05 / size.samples) ** 0.5:.1f} %."
        ),
        "![Coverage by scenario and kind of pair](../images/coverage.png)",
        "## Independent points",
        fill_paragraph("A point estimate: intervals are over the choice of points alone."),
        _coverage_table(table, "geh", points),
    ]
    if (table["part"] == "eah").any():
        blocks += ["EAH, for which regions do not matter:", _coverage_table(table, "eah", points, KINDS)]
    blocks += [
        "## Draws and points",
        fill_paragraph(
            "The sizes of the four products are drawn from a normal distribution with mean 1 and standard deviation "
            "0.3, once for a network to be covered, and 5 or 20 times for the draws of the posterior. Intervals of "
            "both sources are to hold the score of that network over the population."
        ),
        _coverage_table(table, "geh", drawn),
        "## Clusters of points",
        fill_paragraph(
            "Clusters have 1 to about 30 points, 9 on average with a standard deviation of 7; the features of two "
            "points of a cluster have the named correlation. `clusters=` is passed."
        ),
        _coverage_table(table, "geh", clustered),
        "The same samples without `clusters=`, as if all points were independent:",
        _coverage_table(table, "clusters ignored", clustered),
        "## Reading",
        fill_paragraph(_reading(table)),
    ]
    return "\n\n".join(blocks) + "\n"


def _coverage_table(
    table: pd.DataFrame, part: str, scenarios: Sequence[Scenario], kinds: Sequence[str] = (*KINDS, NONE)
) -> str:
    """Return the coverage of one part by scenario and kind of pair, in per cent."""
    chosen = table[table["part"] == part].set_index(["scenario", "kind"])
    rows = []
    for scenario in scenarios:
        if scenario.name in chosen.index.get_level_values(0):
            rows.append([scenario.name, *(_cell(chosen.loc[[(scenario.name, kind)]].iloc[0]) for kind in kinds)])
    return markdown_table(["", *kinds], rows)


def _cell(row: pd.Series) -> str:
    """Return a coverage in per cent, bold if it misses its target."""
    text = f"{100 * row['coverage']:.1f}"
    return f"**{text}**" if misses(row["coverage"], row["true"]) else text


def _reading(table: pd.DataFrame) -> str:
    """Return how many entries hold their target, and on which side the others miss it."""
    used = table[table["part"] != "clusters ignored"]
    missed = used[[misses(*values) for values in zip(used["coverage"], used["true"], strict=True)]]
    below = missed[missed["coverage"] < 0.95]
    worst = "" if below.empty else f"; the lowest coverage is {100 * below['coverage'].min():.1f} %"
    return (
        f"{len(used) - len(missed)} of {len(used)} entries with `clusters=` where there are any hold their target, "
        f"{len(below)} are below it{worst}, and {len(missed) - len(below)} above. Intervals are too wide where the "
        "means of several groups are as small as their errors, as in weak pairs: the signs of such means are unknown, "
        "and the low end allows for that. Kinds of one scenario share their samples, so that they miss together. "
        "Ignoring clusters is the larger error."
    )
