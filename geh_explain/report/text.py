"""The sentences of the report, which notebooks, ``print`` and the command line show too."""

from __future__ import annotations

from typing import Any

from geh_explain.scores.decisions import SUPPORTED, Decisions, percent
from geh_explain.scores.pair_names import describe_known, join_names
from geh_explain.scores.protocol import PairResult

#: Number of pairs that the summary names.
_SUMMARY_PAIRS = 3
#: P-values below this are not written out.
_MIN_P_VALUE = 0.001


# One line each, as ``print`` shows them.


def describe_scope(result: PairResult) -> str:
    """Return what was explained: units, pairs, points, groups and draws."""
    draws, pairs = result.scores("geh").n_draws, len(result.scores("geh").pair_mean)
    groups, clusters = len(result.group_names), result.settings.get("clusters")
    points = count_noun(result.n_points, "point", "") + " with case weights" * is_weighted(result)
    return (
        f"Interactions between {len(result.names)} units of {result.record.place}: {count_noun(pairs, 'pair', '')}, "
        f"{points} in {_groups_of_pairs(result) or count_noun(groups, 'group', '')}"
        f"{f' and {clusters} clusters' if clusters else ''}, "
        f"{count_noun(draws, 'draw', '')} of {result.record.posterior}"
    )


def describe_known_pairs(result: PairResult) -> list[str]:
    """Return which pairs were computed where these are not all, and what a search for rows found, one line each."""
    lines = [] if result.pairs.complete else [describe_known(result.pairs, result.names)]
    if result.record.row_search is not None:
        lines.append(f"{result.record.pair_request}: {result.record.row_search}")
    return lines


def describe_decisions(result: PairResult, decisions: Decisions, sentence: bool = False) -> str:
    """Return how many pairs the rule accepts, and by which test and rate; with a verb if it is part of a sentence."""
    evidence, accepted = result.evidence, decisions.accepted
    # The test on held-out labels does not take categories.
    testable = evidence is None and result.level_draws is None
    if accepted is None:
        hint = "; evidence=(X, y) tests whether the data support a pair" if testable else ""
        return f"one draw: no intervals{hint}"
    number = int(accepted.sum())
    found = f"{number} of {count_noun(len(accepted), 'pair', '')}"
    verb = "" if not sentence else " is" if number == 1 else " are"
    if decisions.rule == "evidence" and evidence is not None:
        tested = int(evidence.tested.sum())
        found = found if tested == len(accepted) else f"{number} of {count_noun(tested, 'tested pair', '')}"
        rate = percent(decisions.fdr)
        return f"{found}{verb} significant on {evidence.n_rows} held-out rows (false discovery rate {rate})"
    if decisions.rule == "sign":
        pronoun = "it" if number == 1 else "them"
        hint = f"; evidence=(X, y) tests whether the data support {pronoun}" if testable else ""
        return f"{found}{verb} stable in this network{hint}"
    verb = " with" if not sentence else " has" if number == 1 else " have"
    rate = f", false discovery rate {percent(decisions.fdr)}" if decisions.fdr else ""
    return f"{found}{verb} a {percent(decisions.level)} interval that excludes 0 (paper's rule{rate})"


def describe_columns(decisions: Decisions) -> list[str]:
    """Return what the less obvious columns of the table are, one line each."""
    lines = [] if decisions.measure in ("geh", SUPPORTED) else [f"mean: {decisions.score_name}"]
    if decisions.rule == "evidence":
        lines.append(
            "supported: mean × expected slope, 0 to 1; slope: 1 if the labels contain the interaction at this size"
        )
    if decisions.true_interval is not None:
        lines.append(f"true_low, true_high: {percent(decisions.level)} interval of the true score, from the labels")
    if decisions.has_intervals:
        place = " in table()" if decisions.rule == "evidence" else ""
        lines.append(f"low, high{place}: {describe_interval(decisions)}")
    return lines


def describe_interval(decisions: Decisions) -> str:
    """Return of what the intervals are: their level, and the sources of uncertainty that they count."""
    named = {"clusters": "clusters of points"}
    sources = " and ".join(named.get(source, source) for source in decisions.sources)
    # Without draws the interval is about the choice of points alone.
    alone = "" if "draws" in decisions.sources else " like these"
    return f"{percent(decisions.level)} interval of the network's score over {sources}{alone}"


# Sentences.


def summarise(result: PairResult, decisions: Decisions) -> list[str]:
    """Return a summary of the result in a few sentences.

    It says what was explained, where the uncertainty comes from, how many pairs the rule accepts, and which pairs are
    the strongest in the order of ``decisions``.
    """
    known = [f"{line[0].upper()}{line[1:]}." for line in describe_known_pairs(result)]
    sentences = [_scope(result), *known, _uncertainty(result, decisions)]
    if decisions.accepted is not None:
        sentences.append(f"{describe_decisions(result, decisions, sentence=True)}.")
    sentences += [f"{finding[0].upper()}{finding[1:]}." for finding in result.findings()]
    strongest = [_describe_pair(result, int(pair), decisions) for pair in decisions.order[:_SUMMARY_PAIRS]]
    return [*sentences, f"Strongest pair{'s' * (len(strongest) > 1)}: {'; '.join(strongest)}."]


def _scope(result: PairResult) -> str:
    """Return which units were explained, and at how many points."""
    units, points = count_noun(len(result.names), "unit"), count_noun(result.n_points, "point")
    groups = _groups_of_pairs(result) or count_noun(len(result.group_names), "group")
    weights = " with case weights" * is_weighted(result)
    return f"Pairwise interactions of {units} of {result.record.place}, at {points}{weights} in {groups}."


def _groups_of_pairs(result: PairResult) -> str | None:
    """Return how points are grouped where each pair has groups of its own, else None."""
    return None if result.pair_cells is None else "groups of each pair"


def is_weighted(result: PairResult) -> bool:
    """Return whether points count differently."""
    weights = result.sample_weight
    return weights is not None and len({*weights[weights > 0].tolist()}) > 1


def _uncertainty(result: PairResult, decisions: Decisions) -> str:
    """Return the sources of the uncertainty of the network's scores."""
    draws, posterior = result.scores("geh").n_draws, result.record.posterior
    kind = "MC dropout draws" if posterior == "MCDropout()" else f"draws of {posterior}"
    clusters = result.settings.get("clusters")
    named = {
        "draws": f"{draws:,} {kind}",
        "points": "the finite choice of points",
        "clusters": f"the choice of {f'{clusters:,} ' if clusters else ''}clusters of points",
    }
    sources = [named[source] for source in decisions.sources]
    if not sources:
        return "The scores are a point estimate, without intervals."
    alone = "" if "draws" in decisions.sources else "; none of the network, which has no draws"
    return f"Uncertainty: {' and '.join(sources)}{alone}."


def _describe_pair(result: PairResult, pair: int, decisions: Decisions) -> str:
    """Return names, score, evidence or interval, and signs of the pair with index ``pair``."""
    i, j = (result.names[index[pair]] for index in result.pairs.ends)
    words = [f"{decisions.score_name} {decisions.mean[pair]:.3g}"]
    if decisions.rule == "evidence" and decisions.supported is not None:
        words.append(f"supported {decisions.supported[pair]:.3g}")
        words.append(format_p_value(decisions.p_value[pair]))
    elif decisions.has_intervals:
        words.append(f"{percent(decisions.level)} interval {decisions.low[pair]:.3g} to {decisions.high[pair]:.3g}")
    words.append(_describe_signs(result, i, j))
    return f"{join_names(i, j)} ({', '.join(words)})"


def format_p_value(p_value: float) -> str:
    """Return a p-value in words.

    >>> format_p_value(0.0312), format_p_value(1e-9), format_p_value(float("nan"))
    ('p = 0.031', 'p < 0.001', 'not tested')
    """
    if p_value != p_value:
        return "not tested"
    return f"p < {_MIN_P_VALUE}" if p_value < _MIN_P_VALUE else f"p = {p_value:.2g}"


def _describe_signs(result: PairResult, i: str, j: str) -> str:
    """Return in how many groups the effect of a pair is positive and negative."""
    pair = result.pair(i, j)
    means = result.signed_means[0][:, pair]
    if result.pair_cells is not None:
        means = means[result.pair_cells.sizes[:, pair] > 0]
    positive, negative = int((means > 0).sum()), int((means < 0).sum())
    if not positive and not negative:
        return "no effect"
    if positive and negative:
        return f"positive in {positive} of {len(means)} groups, negative in {negative}"
    sign = "positive" if positive else "negative"
    return f"{sign} in all groups" if len(means) > 1 else sign


def reading_guide(result: PairResult, decisions: Decisions) -> list[str]:
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
    if decisions.has_intervals:
        paragraphs.append(
            f"Intervals: {describe_interval(decisions)} (thick lines: 50 %). They describe the network, not the data."
        )
    if decisions.accepted is not None:
        paragraphs.append(_GUIDES[decisions.rule])
    if result.record.scale is None:
        paragraphs.append(
            "Scores are in units of the output per unit of both inputs, so units with a small range have large scores; "
            "explain(scale='std') makes pairs comparable."
        )
    else:
        paragraphs.append("Scores are multiplied by the scale of both units, so that pairs are comparable.")
    return paragraphs


#: For each rule what its decisions mean.
_GUIDES = {
    "evidence": (
        "A pair is significant if labels that training never used support it: the test asks whether they contain the "
        "network's interaction beyond all effects without it. The slope is the share of the network's interaction that "
        "the labels contain: 1 at the network's size, 0 not at all. p-values are one-sided. The supported score is the "
        "score times the expected slope, if all between 0 and 1 are equally likely before the labels are seen; for a "
        "pair that was not tested that is 1/2. Significance is corrected for the number of tested pairs at the false "
        "discovery rate of the summary. The interval of the true GEH, for numeric labels, is about the function that "
        "made the labels; low and high are about the network."
    ),
    "sign": (
        "A pair is stable if the sign of its effect in some group holds over the draws and points: another draw of "
        "this network, and other points, would show it again. Stable pairs are part of the network. Whether the data "
        "support them is another question, which needs labels that training never used: explain(evidence=(X, y))."
    ),
    "interval": (
        "A pair is marked if the interval of its score over draws excludes 0, which is the rule of the paper. Scores "
        "are absolute values and positive in every draw, so that most pairs of a fitted network pass. The rule does "
        "not say that the data support a pair."
    ),
}


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


def count_noun(number: int, noun: str, separator: str = ",") -> str:
    """Return a number with its noun.

    >>> count_noun(1, "pair"), count_noun(1200, "pair"), count_noun(1200, "pair", "")
    ('1 pair', '1,200 pairs', '1200 pairs')
    """
    return f"{number:{separator}} {noun}{'' if number == 1 else 's'}"
