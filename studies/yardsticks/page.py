"""Markdown page of the study of yardsticks, from its tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from studies.text import fill_paragraph, markdown_table
from studies.yardsticks import archipelago, diamond, effector, nid, peers
from studies.yardsticks.functions import DIAMOND, NID, Function
from studies.yardsticks.ours import SCORES
from studies.yardsticks.parts import FIRST_SEED, LATER_SEEDS, seeds_run
from studies.yardsticks.summary import Mean, Setting, areas, in_setting, settings, suite_means
from studies.yardsticks.verdicts import verdicts

_INTRODUCTION = """
Tasks that other authors defined to compare methods for interactions, with their methods beside this package on the same
data. Networks, training and tests are the defaults of the package. The tables show where it loses as well as where it
wins. Quoted numbers are those of publications; they were neither computed nor verified here.
"""
_DEVELOPMENT = """
**This is a trial on seeds that were used for development, and not the result of the study.** Cases may be missing; the
last section has the seeds.
"""
_NID = """
Ten functions of ten uniform features (Tsang, Cheng and Liu, *Detecting Statistical Interactions from Neural Network
Weights*, 2018). A pair is true if it is a part of an interaction that the authors list. Mixed differences of the
functions confirm that these pairs interact on the domain and that all others do not. The measure is the area under the
ROC curve over the 45 pairs: 1 if all true pairs come first, 0.5 for an order by chance.
"""
_NID_METHODS = f"""
This package: `bnn.HybridNet` and `bnn.fit` with their defaults on four fifths of the rows, `explain` at 2,000 of them,
and the held-out test on the last fifth. *Pairwise groups*: `groups="pairwise"`, to which the targets refer; *default
groups*: `groups="auto"`. *Supported* is the order of `result.table()`; GEH and EAH use no held-out labels; *held-out
test* orders by the p-value. On the same network, at {peers.POINTS} points with
{peers.BACKGROUND} background rows: SHAP's interaction values and shapiq's faithful Shapley interactions, both from all
coalitions, and the numerator of Friedman's H-statistic. Fitted to all rows, held-out ones included: NID as its authors
train it, with and without networks for main effects (hidden layers 140-100-60-20, L1 penalty 5e-5, Adam 1e-2, early
stopping on a third of the rows); FAST of `interpret` on what the main effects of an EBM leave; SHAP interaction values
of boosted trees; the Lasso on all products. SHAP and boosted trees are run on the smaller number of rows only.
"""
_NID_FIRST_RUN = """
A first run, with seeds 100 to 109, was with networks without products of three features ([its
table](yardsticks_nid_first.csv)). They had not learned three weak pairs of F2, which had 0.819; the mean was 0.974. The
products were then added to `HybridNet`, and their degree and scale chosen on [other
functions](further.md#products-of-three-features), some of which have terms like those of F2. The numbers below are of
later seeds. They show what the change gains on other samples; whether a function of another kind is missed they cannot
show.
"""
_DIAMOND = f"""
The setting of Diamond (Chen, Jiang, Noble and Lu, *Error-controlled non-additive interaction discovery in machine
learning models*, 2025): its versions of the ten functions, without noise, features uniform over (0, 1), 20 irrelevant
features, 20,000 rows, false discovery rate {diamond.RATE:g}. On (0, 1) two of the listed pairs do not interact (their
mixed differences are 0): 6 and 7 of F5, 3 and 6 of F7. The corrected truth leaves them out. Here a network is fitted to
four fifths of the rows; the {diamond.PAIRS} strongest pairs by GEH, of 435, are tested on the others, with the
procedure of Benjamini and Hochberg. FDR: mean share of false discoveries. Power: share of the true pairs that are
discovered.
"""
_ARCHIPELAGO = """
Four functions of 40 features with values 1 and -1 (Tsang, Rambhatla and Liu, *How does this interaction affect me?*,
2020). The row is all 1, the baseline all -1. The function itself is explained, by `explain_row` with
`engine="difference"`: from the baseline, from the row (with the two exchanged), and by the sum of both absolute
contributions, which asks the same as ArchDetect. Columns are in another order for each seed. Area under the ROC curve
over the 780 pairs, and evaluations of the function.
"""
_EFFECTOR = """
Functions with closed-form effects from the package effector (its module `benchmarks`). The function itself is explained
by differences, and a network that was fitted to 10,000 of its values by derivatives; all options are defaults. Shown is
the strongest pair. True: expected absolute derivative, where a jump counts by its size times the density at its place.
Differences by a finite step towards the mean count a jump at the mean from both sides. GEH: with the groups that
`groups="auto"` finds, and with two groups on the two sides of the border where the interaction changes its sign: there
it should be as large as EAH. effector splits the rows such that the effect of one feature is the same within each part.
"""
_TAYLOR = """
Second-order expansions of a ReLU network for MNIST, 784-500-300-250-250-250-10 (Torop et al., *SmoothHess: ReLU Network
Feature Interactions via Stein's Lemma*, 2023). P-MSE: mean squared error of the expansion of the predicted class's
logit in balls around test images, relative to the expansion without a Hessian. Softplus and SmoothHess have the best of
several settings for each radius, chosen on the same points. SmoothHess with 50,000 pairs is extrapolated from fewer.
Cost: processor time of an expansion of all points, in gradients of single points and in gradients of one batch of all
points, of which each takes less time.
"""


def build_page(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the page as Markdown, with the parts that have a table."""
    blocks = ["# Public yardsticks", fill_paragraph(_INTRODUCTION)]
    if any((table["seed"] < FIRST_SEED).any() for table in tables.values()):
        blocks.append(fill_paragraph(_DEVELOPMENT))
    elif missing := list(_missing(tables)):
        blocks.append(fill_paragraph(f"**Not run yet:** {'; '.join(missing)}."))
    found = list(verdicts(tables))
    if found:
        blocks += ["## Targets", markdown_table(["target", "found", ""], found)]
    sections = {
        "nid": _nid_blocks,
        "diamond": _diamond_blocks,
        "archipelago": _archipelago_blocks,
        "effector": _effector_blocks,
        "taylor": _taylor_blocks,
    }
    for name, section in sections.items():
        if name in tables:
            blocks += section(tables[name])
    blocks += ["## How it was run", _how(tables)]
    return "\n\n".join(blocks) + "\n"


def _missing(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Yield the parts, and the settings of the suite of NID, that were not run yet, or with too few seeds."""
    sections = {
        "nid": "the suite of NID",
        "diamond": "Diamond's setting",
        "archipelago": "Archipelago's functions",
        "effector": "effector's cases",
        "taylor": "SmoothHess's P-MSE",
    }
    for name, section in sections.items():
        if name not in tables:
            yield section
            continue
        left: dict[str, tuple[int, int]] = {}
        for case, (run, wanted) in seeds_run(name, tables[name]).items():
            title = f"{section}, {Setting.of(case)}" if name == "nid" else section
            left[title] = min(left.get(title, (run, wanted)), (run, wanted))
        for title, (run, wanted) in left.items():
            if run < wanted:
                yield title if run == 0 else f"{title}: {wanted - run} of {wanted} seeds"


def _how(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return the command, seeds and time of each part."""
    runs = []
    for name, table in tables.items():
        seeds = sorted(table["seed"].unique().tolist())
        text = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 2 else " and ".join(map(str, seeds))
        runs.append(f"{name}: {'seeds' if len(seeds) > 1 else 'seed'} {text}")
    return fill_paragraph(
        "`make study-yardsticks`, or `python -m studies yardsticks --parts nid,diamond --seeds 100,101 --docs docs` "
        "for some parts and seeds; finished cases are kept. Seeds below 100 were used for development. "
        f"This page has {'; '.join(runs)}. ± is one standard error over seeds. The tables by seed are "
        + ", ".join(f"[`yardsticks_{name}.csv`](yardsticks_{name}.csv)" for name in tables)
        + ". Parts nid and effector were first run with seeds from 100 on and with earlier networks "
        "([table of effector](yardsticks_effector_first.csv)); no other part has networks with products of three "
        "features."
    )


def _nid_blocks(table: pd.DataFrame) -> list[str]:
    """Return the section of the suite of NID."""
    shown = settings(table)
    blocks = ["## The suite of NID", fill_paragraph(_NID), _definitions(NID), fill_paragraph(_NID_METHODS)]
    if table["seed"].min() >= min(LATER_SEEDS["nid"]):
        blocks.append(fill_paragraph(_NID_FIRST_RUN))
    blocks.append("![Area under the ROC curve of all methods by function](../images/yardsticks.png)")
    blocks += [
        fill_paragraph(
            "Means over the functions. Noise: its standard deviation over that of the function. Bold: the best. "
            f"The first {len(SCORES)} rows are this package."
        ),
        _mean_table(table, shown),
    ]
    quoted = ", ".join(f"{name} {value:.2f}" for name, value in nid.QUOTED.items())
    blocks.append(fill_paragraph(f"Quoted, for 30,000 rows without noise: {quoted}."))
    blocks.append(
        fill_paragraph(
            "By function: means over seeds, the best of each function bold. Seconds of one processor; those of this "
            "package and of methods that explain its network include the fit. Error: mean squared error of the network "
            "to the function without noise, on held-out rows, over the variance of the function."
        )
    )
    for setting in shown:
        blocks += [f"### {str(setting).capitalize()}", _function_table(table, setting)]
    blocks += [fill_paragraph('Numbers of groups that `groups="auto"` chose, least and largest:'), _group_table(table)]
    return blocks


def _group_table(table: pd.DataFrame) -> str:
    """Return the range of the chosen numbers of groups by setting and function."""
    rows = []
    for setting in settings(table):
        found = in_setting(table, setting).groupby("function", sort=False)["groups"].agg(["min", "max"])
        rows.append([str(setting), *(f"{low}-{high}" for low, high in found.itertuples(index=False))])
        names = list(map(str, found.index))
    return markdown_table(["", *names], rows)


def _definitions(functions: Mapping[str, Function]) -> str:
    """Return formulas, domains and listed interactions."""
    rows = []
    for name, function in functions.items():
        listed = ", ".join("{" + ", ".join(map(str, features)) + "}" for features in function.listed)
        rows.append([name, f"`{function.formula}`", listed])
    return markdown_table(["", "function", "listed interactions"], rows).replace("---:", "---")


def _mean_table(table: pd.DataFrame, shown: Sequence[Setting]) -> str:
    """Return the mean over functions of each method, one column per setting."""
    columns = {setting: suite_means(table, setting) for setting in shown}
    best = {setting: max(found.mean for found in means.values()) for setting, means in columns.items()}
    methods = list(dict.fromkeys(method for means in columns.values() for method in means))
    rows = []
    for method in methods:
        cells = [
            _number(means[method], bold=means[method].mean == best[setting]) if method in means else ""
            for setting, means in columns.items()
        ]
        rows.append([method, *cells])
    return markdown_table(["mean AUC", *map(str, shown)], rows)


def _function_table(table: pd.DataFrame, setting: Setting) -> str:
    """Return the mean area of each method and function in one setting, seconds, and the error of our networks."""
    means, part = areas(table, setting), in_setting(table, setting)
    best = means.max()
    seconds = part.groupby("method")["seconds"].mean()
    rows = []
    for method, values in means.iterrows():
        cells = [
            f"**{value:.3f}**" if value == top else f"{value:.3f}" for value, top in zip(values, best, strict=True)
        ]
        rows.append([str(method), *cells, f"{seconds[str(method)]:.0f}"])
    errors = part[part["method"] == SCORES[0]].groupby("function")["error"].mean()
    rows.append(["*error of the network*", *(f"{errors[str(name)]:.2%}" for name in means.columns), ""])
    return markdown_table(["AUC", *map(str, means.columns), "seconds"], rows)


def _diamond_blocks(table: pd.DataFrame) -> list[str]:
    """Return the section of Diamond."""
    rows = []
    for name in [name for name in DIAMOND if name in set(table["function"])]:
        part = table[table["function"] == name]
        cells = [name, f"{int(DIAMOND[name].listed_pairs().sum())}", f"{int(DIAMOND[name].true_pairs().sum())}"]
        for truth in ("corrected", "listed"):
            chosen = part[part["truth"] == truth]
            fdr = Mean.of(chosen["fdp"])
            missed = fdr.mean > diamond.RATE + 2 * np.nan_to_num(fdr.error)
            cells += [_number(fdr, bold=missed), _number(Mean.of(chosen["power"]))]
        rows.append([*cells, f"{part['error'].mean():.1%}"])
    heads = ["", "listed", "true", "FDR", "power", "FDR, listed truth", "power, listed truth", "error of the network"]
    changed = {name: function for name, function in DIAMOND.items() if function.formula != NID[name].formula}
    found, of = diamond.QUOTED_F1
    return [
        "## Diamond's setting",
        fill_paragraph(_DIAMOND),
        markdown_table(heads, rows),
        fill_paragraph(
            "Bold: above the wanted rate by more than two standard errors. Error: mean squared error of the network on "
            f"held-out rows over the variance of the function. Quoted: Diamond reports {found} of the {of} true pairs "
            "of F1. Functions that differ from those above:"
        ),
        _definitions(changed),
    ]


def _archipelago_blocks(table: pd.DataFrame) -> list[str]:
    """Return the section of Archipelago."""
    rows = []
    for method in dict.fromkeys(table["method"]):
        part = table[table["method"] == method]
        cells = [
            _number(Mean.of(part.loc[part["function"] == name, "auc"]))
            for name in archipelago.DEFINITIONS
            if name in set(part["function"])
        ]
        rows.append([method, *cells, f"{part['evaluations'].mean():,.0f}"])
    definitions = [[name, f"`{text}`"] for name, text in archipelago.DEFINITIONS.items()]
    return [
        "## Archipelago's functions",
        fill_paragraph(_ARCHIPELAGO),
        markdown_table(["", "function, plus the sum of all features"], definitions).replace("---:", "---"),
        markdown_table(["AUC", *archipelago.DEFINITIONS, "evaluations"], rows),
        fill_paragraph(f"Quoted: ArchDetect has {archipelago.QUOTED:.1f} on all four."),
    ]


def _effector_blocks(table: pd.DataFrame) -> list[str]:
    """Return the section of effector."""
    ours = table[~table["method"].str.startswith("effector")]
    rows = []
    for (case, method), part in ours.groupby(["case", "method"], sort=False):
        cells = [_number(Mean.of(part[column])) for column in ("auc", "true_eah", "eah", "aeh", "geh")]
        known = part["geh_true_groups"].dropna() if "geh_true_groups" in part else part["geh"][:0]
        counts = sorted(set(part["groups"].astype(int)))
        groups = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        rows.append([f"{case}, {method}", *cells, groups, _number(Mean.of(known)) if len(known) else ""])
    heads = ["", "AUC of EAH", "true", "EAH", "AEH", "GEH", "groups", "GEH, true groups"]
    blocks = [
        "## effector's closed-form cases",
        fill_paragraph(_EFFECTOR),
        markdown_table(
            ["", "function"], [[name, f"`{case.formula}`"] for name, case in effector.CASES.items()]
        ).replace("---:", "---"),
        markdown_table(heads, rows),
    ]
    splits = table[table["method"].str.startswith("effector")]
    if len(splits):
        rows = [
            [f"{case}, {method}", f"{part['split_found'].astype(float).mean():.0%}", f"{part['place'].abs().max():.3f}"]
            for (case, method), part in splits.groupby(["case", "method"], sort=False)
        ]
        heads = ["first split of the rows for the effect of x1", "right feature", "largest error of its place"]
        blocks.append(markdown_table(heads, rows))
    return blocks


def _taylor_blocks(table: pd.DataFrame) -> list[str]:
    """Return the section of SmoothHess."""
    methods = table["method"] + np.where(
        table["pairs"].notna(), " with " + table["pairs"].map("{:,.0f}".format) + " pairs", ""
    )
    radii = sorted(table["radius"].unique())
    rows = []
    for method in dict.fromkeys(methods):
        part = table[methods == method]
        cells = [_number(Mean.of(part.loc[part["radius"] == radius, "relative"])) for radius in radii]
        costs = (part[column].mean() for column in ("gradients", "gradients_in_batch"))
        rows.append([method, *cells, *("" if np.isnan(cost) else f"{cost:.0f}" for cost in costs)])
    heads = ["relative P-MSE", *(f"radius {radius:g}" for radius in radii), "gradients", "gradients of a batch"]
    return [
        "## SmoothHess's P-MSE",
        fill_paragraph(_TAYLOR),
        markdown_table(heads, rows),
    ]


def _number(entry: Mean, bold: bool = False) -> str:
    """Return a mean with its standard error, bold if asked for."""
    return f"**{entry}**" if bold else str(entry)
