"""The sentences of the report: summary, reading guide, omissions and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geh_explain._validation import check_level
from geh_explain.scores.protocol import PairResult

if TYPE_CHECKING:
    import pandas as pd

#: Number of pairs that the summary names.
_SUMMARY_PAIRS = 3


def summarise(result: PairResult, level: float = 0.95) -> list[str]:
    """Return a summary of the result in a few sentences.

    It says what was explained, where the uncertainty comes from, how many pairs are significant at ``level``, and which
    pairs have the largest GEH.
    """
    check_level(level)
    table = result.table(level=level)
    sentences = [_scope(result), _uncertainty(result)]
    if _has_intervals(result):
        significant = int(table["significant"].sum())
        pairs = f"{significant:,} of {_count(len(table), 'pair')}"
        sentences.append(f"{pairs} {'is' if significant == 1 else 'are'} significant at {_percent(level)}.")
    strongest = [_describe_pair(result, row, level) for _, row in table.head(_SUMMARY_PAIRS).iterrows()]
    return [*sentences, f"Strongest pair{'s' * (len(strongest) > 1)}: {'; '.join(strongest)}."]


def _scope(result: PairResult) -> str:
    """Return which units were explained, and at how many points."""
    units, points = _count(len(result.names), "unit"), _count(len(result.labels), "point")
    groups = _count(len(result.group_names), "group")
    return f"Pairwise interactions of {units} of {result.record.place}, at {points} in {groups}."


def _uncertainty(result: PairResult) -> str:
    """Return the source of the uncertainty."""
    if not _has_intervals(result):
        return "The scores are a point estimate, without intervals."
    posterior = result.record.posterior
    kind = "MC dropout draws" if posterior == "MCDropout()" else f"draws of {posterior}"
    return f"Uncertainty: {result.scores('geh').n_draws:,} {kind}."


def _describe_pair(result: PairResult, row: pd.Series, level: float) -> str:
    """Return names, score, interval and signs of a pair, a row of the table."""
    interval = f", {_percent(level)} interval {row['low']:.3g} to {row['high']:.3g}" if _has_intervals(result) else ""
    signs = _describe_signs(result, row["unit_i"], row["unit_j"])
    return f"{row['unit_i']} × {row['unit_j']} (GEH {row['mean']:.3g}{interval}, {signs})"


def _describe_signs(result: PairResult, i: str, j: str) -> str:
    """Return in how many groups the effect of a pair is positive and negative."""
    means = result.regions(i, j)["mean"]
    positive, negative = int((means > 0).sum()), int((means < 0).sum())
    if not positive and not negative:
        return "no effect"
    if positive and negative:
        return f"positive in {positive} of {len(means)} groups, negative in {negative}"
    sign = "positive" if positive else "negative"
    return f"{sign} in all groups" if len(means) > 1 else sign


def reading_guide(result: PairResult, level: float = 0.95) -> list[str]:
    """Return what a reader needs to interpret the page, as paragraphs."""
    paragraphs = [
        "Two units interact if the effect of one on the output depends on the value of the other. The score is the "
        "absolute second derivative of the output with respect to both units, averaged over the data; it is 0 where "
        "effects add up. GEH averages the derivative within each group of points and takes the mean absolute value "
        "over groups. AEH averages over all points, so that opposite signs cancel. EAH averages absolute values of "
        "single points, so that nothing cancels. AEH ≤ GEH ≤ EAH.",
        "The effect in a group is positive if both units together change the output by more than the sum of their "
        "separate effects, and negative if by less.",
    ]
    if _has_intervals(result):
        paragraphs.append(
            f"Intervals contain {_percent(level)} of the posterior (thick lines: 50 %). A pair is significant if its "
            "interval excludes 0. Scores are absolute values and never negative, so this rule is lenient. The p-value "
            "of the sign rule is stricter: it tests whether the signed effect in some group differs from 0 by more "
            "than the draws allow."
        )
    if result.record.scale is None:
        paragraphs.append(
            "Scores are in units of the output per unit of both inputs, so units with a small range have large scores; "
            "explain(scale='std') makes pairs comparable."
        )
    else:
        paragraphs.append("Scores are multiplied by the scale of both units, so that pairs are comparable.")
    return paragraphs


def list_omissions(result: PairResult, content: dict[str, Any]) -> list[str]:
    """Return what ``content``, the data of the page, leaves out of the result, one sentence each."""
    units, all_units = len(content["heatmap"]), len(result.names)
    pairs, all_pairs = len(content["pairs"]["first"]), len(result.scores("geh").pair_mean)
    pairs_with_groups = len(content["group_effects"]["mean"])
    sentences = []
    if units < all_units:
        sentences.append(f"The heatmap shows the {units} units with the strongest pairs, of {all_units:,}.")
    if pairs < all_pairs:
        sentences.append(
            f"This page and its CSV file contain {pairs:,} of {all_pairs:,} pairs: the strongest, and those of the "
            "heatmap."
        )
    if pairs_with_groups < pairs:
        sentences.append(f"Effects by group are shown for the {pairs_with_groups:,} strongest pairs.")
    return sentences


def list_settings(result: PairResult) -> list[tuple[str, str]]:
    """Return name and value of each setting of the run that has a value, without the warnings."""
    return [
        (name.replace("_", " "), str(value))
        for name, value in result.settings.items()
        if value is not None and name != "warnings"
    ]


def _has_intervals(result: PairResult) -> bool:
    """Return whether there are at least two draws."""
    return result.scores("geh").n_draws > 1


def _count(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> _count(1, "pair"), _count(1200, "pair")
    ('1 pair', '1,200 pairs')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _percent(level: float) -> str:
    """Return a level as a percentage.

    >>> _percent(0.95), _percent(0.999)
    ('95 %', '99.9 %')
    """
    return f"{100 * level:.3g} %"
