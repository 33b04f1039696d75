"""The verdict at the top of the report page: what was found, in at most three sentences, and facts about the run."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from geh_explain._types import Ints
from geh_explain.report.text import count_noun, describe_known_pairs, is_weighted
from geh_explain.scores.decisions import Decisions, percent
from geh_explain.scores.pair_names import join_names
from geh_explain.scores.protocol import PairResult

#: Number of accepted pairs that the first sentence names.
_MAX_NAMED = 3
#: Characters of all names together; the strongest pair is named in any case.
_MAX_CHARS = 90
#: A description of a group in words, with the agreement of both in per cent.
_RULE = re.compile(r"(?P<words>.*) \((?P<agreement>\d+) %\)", re.DOTALL)
#: Agreement in per cent from which a description holds without "mostly".
_EXACT = 95
_NEEDS_LABELS = "; held-out labels are needed to claim more"


class GroupWords(NamedTuple):
    """What a group of points is: a rule over columns with its agreement in per cent, or other words and None."""

    words: str
    agreement: int | None


def split_description(description: str) -> GroupWords:
    """Return the words and the agreement of one of the ``group_descriptions`` of a result.

    >>> split_description("hour >= 7 (94 %)")
    GroupWords(words='hour ≥ 7', agreement=94)
    >>> split_description("no short description")
    GroupWords(words='no short description', agreement=None)
    """
    description = description.replace(" >= ", " ≥ ")
    rule = _RULE.fullmatch(description)
    return GroupWords(description, None) if rule is None else GroupWords(rule["words"], int(rule["agreement"]))


def give_verdict(result: PairResult, decisions: Decisions) -> list[str]:
    """Return what was found in at most three sentences.

    The first one says which pairs are supported by held-out labels, or stable, or that nothing was decided; the second
    one describes the strongest of them; the third one is the share of interactions in the output if it was measured,
    else the score of the strongest other pair.
    """
    accepted = _accepted_pairs(decisions)
    best = int(accepted[0]) if len(accepted) else int(decisions.order[0])
    sentences = [_decision(result, decisions, accepted), _strongest(result, decisions, best, len(accepted))]
    rest = result.findings() or _others(decisions, accepted, best)
    return [*sentences, *(f"{sentence[0].upper()}{sentence[1:]}." for sentence in rest[:1])]


def _accepted_pairs(decisions: Decisions) -> Ints:
    """Return the indices of the accepted pairs, the strongest first; none where nothing was decided."""
    if decisions.accepted is None:
        return decisions.order[:0]
    return decisions.order[decisions.accepted[decisions.order]]


def _decision(result: PairResult, decisions: Decisions, accepted: Ints) -> str:
    """Return how many pairs the rule accepts, and which ones."""
    evidence, number, total = result.evidence, len(accepted), len(decisions.mean)
    # The test on held-out labels does not take categories.
    hint = _NEEDS_LABELS if evidence is None and result.level_draws is None else ""
    if decisions.accepted is None:
        pairs = (
            "The pair has a score but no interval" if total == 1 else f"{total:,} pairs have scores but no intervals"
        )
        return f"{pairs}, as there is one draw of the network{hint}."
    kind = "pair"
    if decisions.rule == "evidence" and evidence is not None:
        tested = int(evidence.tested.sum())
        total, kind = tested, "pair" if tested == total else "tested pair"
        claim = f"supported by held-out labels (false discovery rate {percent(decisions.fdr)})"
        hint = ""
    elif decisions.rule == "sign":
        claim = "stable in this network"
    else:
        rate = f", false discovery rate {percent(decisions.fdr)}" if decisions.fdr else ""
        claim = f"marked, as the {percent(decisions.level)} interval of the score excludes 0 (paper's rule{rate})"
    verb = "is" if number <= 1 else "are"
    subject = f"{number:,} of {count_noun(total, kind)}" if number else f"None of {count_noun(total, kind)}"
    if total == 1:
        subject, claim = f"The only {kind}", claim if number else f"not {claim}"
    return f"{subject} {verb} {claim}{_name(result, accepted)}{hint}."


def _name(result: PairResult, accepted: Ints) -> str:
    """Return the names of the accepted pairs, after a colon."""
    if not len(accepted):
        return ""
    labels = [_label(result, int(pair)) for pair in accepted[:_MAX_NAMED]]
    # Long names are cut on the page, and one pair of them is enough.
    labels = labels if sum(map(len, labels)) <= _MAX_CHARS else labels[:1]
    more = len(accepted) - len(labels)
    return f": {', '.join(labels)}{f' and {more:,} more' if more > 0 else ''}"


def _label(result: PairResult, pair: int) -> str:
    first, second = (result.names[ends[pair]] for ends in result.pairs.ends)
    return join_names(first, second)


def _strongest(result: PairResult, decisions: Decisions, pair: int, number: int) -> str:
    """Return score, interval and signs of the strongest pair."""
    subject = "It" if number == 1 or (not number and len(decisions.mean) == 1) else _label(result, pair)
    if not number and len(decisions.mean) > 1:
        subject = f"The strongest pair, {subject},"
    interval = ""
    if decisions.has_intervals:
        interval = f" ({percent(decisions.level)} interval {decisions.low[pair]:.3g}–{decisions.high[pair]:.3g})"
    return f"{subject} scores {decisions.mean[pair]:.3g}{interval}{_signs(result, decisions.level, pair)}."


def _signs(result: PairResult, level: float, pair: int) -> str:
    """Return where the effect of a pair is positive, negative, or of unclear sign, after a comma."""
    if result.level_draws is not None and pair in result.level_draws.contrasts.several:
        # The differences of several levels have signs of their own.
        return ""
    signs = _clear_signs(result, level, pair)
    counts = {word: int((signs == sign).sum()) for sign, word in ((1, "positive"), (-1, "negative"), (0, "unclear"))}
    words = [word for word in counts if counts[word]]
    if words == ["unclear"]:
        return ", with no clear sign"
    if len(words) == 1:
        return f", {words[0]}" if len(signs) == 1 else f", {words[0]} in all groups"
    if len(signs) == 2 and result.group_descriptions is not None and result.pair_cells is None:
        for group, description in enumerate(map(split_description, result.group_descriptions)):
            if description.agreement is not None and signs[group]:
                here, there = ({1: "positive", -1: "negative", 0: "unclear"}[signs[g]] for g in (group, 1 - group))
                mostly = "" if description.agreement >= _EXACT else "mostly "
                return f", {here} {mostly}where {description.words}, {there} elsewhere"
    first, *others = words
    rest = ", ".join(f"{word} in {counts[word]}" for word in others)
    return f", {first} in {counts[first]} of {len(signs)} groups, {rest}"


def _clear_signs(result: PairResult, level: float, pair: int) -> Ints:
    """Return the sign of a pair in each group that it has: 0 where the interval of the effect contains 0."""
    mean = result.signed_means[0][:, pair]
    half = result.group_half_widths(level, np.array([pair]))[:, 0]
    signs = np.where(np.abs(mean) > np.nan_to_num(half), np.sign(mean), 0).astype(np.int64)
    if result.pair_cells is not None:
        signs = signs[result.pair_cells.sizes[:, pair] > 0]
    return np.asarray(signs)


def _others(decisions: Decisions, accepted: Ints, best: int) -> list[str]:
    """Return the score of the strongest pair among those that the verdict does not call accepted."""
    others = np.ones(len(decisions.mean), dtype=bool)
    others[accepted if len(accepted) else [best]] = False
    if not others.any():
        return []
    number, most = int(others.sum()), float(decisions.mean[others].max())
    return [
        f"the other pair scores {most:.3g}" if number == 1 else f"the other {number:,} pairs score at most {most:.3g}"
    ]


def list_facts(result: PairResult, decisions: Decisions) -> list[tuple[str, str]]:
    """Return name and value of what a reader needs to know about the run, for the head of the page."""
    groups = "groups of each pair" if result.pair_cells is not None else count_noun(len(result.group_names), "group")
    draws = result.scores("geh").n_draws
    target = "target of each row" if result.settings.get("target_per_row") else result.settings.get("target")
    clusters, weights = result.settings.get("clusters"), " with case weights" * is_weighted(result)
    facts = [
        ("Network", result.record.model),
        ("Units", f"{len(result.names):,} of {result.record.place}"),
        ("Target", "" if target is None else str(target)),
        ("Pairs", " ".join(describe_known_pairs(result)) or f"{len(decisions.mean):,}"),
        ("Points", f"{result.n_points:,}{weights} in {groups}{f', {clusters:,} clusters' if clusters else ''}"),
        ("Draws", f"{draws:,} of {result.record.posterior}"),
        ("Intervals over", _sources(decisions)),
        ("Evidence", "none" if result.evidence is None else f"{result.evidence.n_rows:,} held-out rows"),
    ]
    spread = result.output_std
    if spread is not None:
        facts.insert(3, ("Output's spread", f"standard deviation {spread:.3g}"))
    return [(name, value) for name, value in facts if value]


def _sources(decisions: Decisions) -> str:
    """Return what the intervals count."""
    named = {"clusters": "clusters of points"}
    return " and ".join(named.get(source, source) for source in decisions.sources) or "nothing: one draw"
