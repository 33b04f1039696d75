"""Comparing two results: which groups they have in common, and the differences of their pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from geh_explain._types import Floats
from geh_explain.errors import GEHValueError
from geh_explain.groups.alignment import GroupAlignment, align_all, align_labels, align_names
from geh_explain.results.comparability import CommonPairs, check_comparable, find_common_pairs, same_draws, same_points
from geh_explain.results.compared_means import (
    Columns,
    ComparisonRequest,
    GroupRequest,
    Places,
    difference_columns,
)
from geh_explain.results.comparison import Comparison, GroupDifferences
from geh_explain.results.level_matching import match_contrasts
from geh_explain.results.rules import score_distances
from geh_explain.scores.draws import MEASURES
from geh_explain.scores.group_unions import (
    DrawnResult,
)
from geh_explain.scores.level_means import LevelMeans
from geh_explain.scores.point_uncertainty import known_errors
from geh_explain.scores.protocol import PairResult
from geh_explain.statistics.differences import interval_p_value
from geh_explain.statistics.p_values import discoveries


def compare_results(a: DrawnResult, b: DrawnResult, request: ComparisonRequest) -> Comparison:
    """Return the comparison of two results; raises if their units or quantities differ."""
    notes = check_comparable(a, b)
    common = find_common_pairs(a, b)
    skipped = len(a.pairs) + len(b.pairs) - 2 * len(common.pairs)
    if skipped:
        notes.append(f"{len(common.pairs):,} pairs were computed in both results; only these are compared.")
    contrasts = match_contrasts(a, b, common)
    if contrasts is not None and not contrasts.equal_shares:
        notes.append("Levels have other shares of the points in both results; they weigh the mean of both shares.")
    if request.measure in MEASURES:
        if contrasts is not None and not contrasts.equal_shares:
            raise _other_weights(request.measure)
        return _compare_scores(a, b, common, request, notes)
    if a.pair_cells is not None or b.pair_cells is not None:
        raise GEHValueError(
            f"measure={request.measure!r} needs groups that all pairs have in common, and groups='pairwise' gives each "
            "pair its own; use measure='geh', 'aeh' or 'eah', or explain both with a number of groups or labels."
        )
    everything = align_all(len(a.group_names), len(b.group_names))
    alignment = everything if request.measure == "mean" else align_groups(a, b, notes)
    measure = request.measure or ("mean" if len(alignment.names) == 1 else "groups")
    alignment = everything if measure == "mean" else alignment
    return _compare_groups(a, b, common, GroupRequest(request, measure, alignment, contrasts), notes)


def align_groups(a: PairResult, b: PairResult, notes: list[str]) -> GroupAlignment:
    """Return the common groups of two results; says in ``notes`` what is lost.

    At the same points these are the finest unions of groups of both, at different points groups that the user gave
    labels of the same names, else all points.
    """
    several = max(len(a.group_names), len(b.group_names)) > 1
    if same_points(a, b):
        # Points of weight 0 have no group.
        counted = (a.labels >= 0) & (b.labels >= 0)
        alignment = align_labels(a.labels[counted], b.labels[counted], (a.group_names, b.group_names))
        alignment = _weighted(alignment, a.group_shares, b.group_shares)
        if several and len(alignment.names) == 1:
            single = min(len(a.group_names), len(b.group_names)) == 1
            why = "One result has a single group of points" if single else "The groups of points of both results cross"
            notes.append(f"{why}; the same labels as groups= of both would compare groups.")
        return alignment
    if a.settings.get("groups_given") and b.settings.get("groups_given"):
        named = align_names(a.group_names, b.group_names, (a.group_shares, b.group_shares))
        if named is not None:
            if named.dropped:
                notes.append(f"{named.dropped} groups that only one result has are left out.")
            return named
    if several:
        notes.append(
            "Groups of different points do not correspond; groups= with labels of the same names would compare them."
        )
    return align_all(len(a.group_names), len(b.group_names))


def _weighted(alignment: GroupAlignment, first: Floats, second: Floats) -> GroupAlignment:
    """Return common groups that weigh the mean of the shares (M,) of the groups of both results."""
    weights = np.zeros(len(alignment.names))
    for groups, shares in ((alignment.first, first), (alignment.second, second)):
        np.add.at(weights, groups[groups >= 0], shares[groups >= 0])
    return replace(alignment, weights=weights / weights.sum())


def _compare_groups(
    a: DrawnResult, b: DrawnResult, common: CommonPairs, asked: GroupRequest, notes: list[str]
) -> Comparison:
    """Return the comparison of group means, or of the means over all points."""
    request, alignment = asked.request, asked.alignment
    source = _known_source(a, b, request.source, notes)
    places = Places(common.first, common.second, np.ones(len(common.pairs)))
    paired = source != "points" and same_draws(a, b)
    if paired:
        notes.append("Draws of both results are of the same functions, and are paired.")
    columns = difference_columns(a, b, places, asked, source, paired)
    means = LevelMeans.of(a), LevelMeans.of(b)
    if asked.contrasts is not None and means[0] is not None and means[1] is not None:
        places = Places(asked.contrasts.first, asked.contrasts.second, asked.contrasts.signs)
        of_levels = difference_columns(means[0], means[1], places, asked, source, paired)
        columns = columns.with_categories(of_levels, asked.contrasts, asked.measure)
    groups = GroupDifferences(
        alignment.names,
        alignment.weights,
        mean_a=columns["mean_a"],
        mean_b=columns["mean_b"],
        half_width=columns["half"],
        p_value=columns["group_p"],
        descriptions=_descriptions(a, b, alignment),
    )
    return _finish((a, b), common, replace(request, measure=asked.measure), columns, groups, source, notes)


def _compare_scores(
    a: DrawnResult, b: DrawnResult, common: CommonPairs, request: ComparisonRequest, notes: list[str]
) -> Comparison:
    """Return the comparison of scores: differences, with intervals from those of both scores.

    With the distances d and u of the ends of both intervals from their scores (method of variance estimates recovery,
    Zou and Donner, 2008) ::

        low = difference - sqrt(d_a^2 + u_b^2),    high = difference + sqrt(u_a^2 + d_b^2)
    """
    measure = request.measure
    assert measure is not None
    source = _known_source(a, b, request.source, notes)
    score_a, score_b = (
        result.scores(measure).pair_mean[pairs] for result, pairs in ((a, common.first), (b, common.second))
    )
    difference = score_a - score_b

    def reach(level: float) -> tuple[Floats, Floats]:
        down_a, up_a = (end[common.first] for end in _distances(a, measure, level, source))
        down_b, up_b = (end[common.second] for end in _distances(b, measure, level, source))
        return np.hypot(down_a, up_b), np.hypot(up_a, down_b)

    if measure == "geh":
        _check_same_groups(a, b)
    known = bool(_sources((a, b), source))
    unknown = np.full_like(difference, np.nan)
    down, up = reach(request.level) if known else (unknown, unknown)
    columns = Columns()
    columns.add(difference=difference, low=difference - down, high=difference + up)
    columns.add(score_a=score_a, score_b=score_b)
    columns.add(p_value=interval_p_value(difference, reach) if known else unknown)
    return _finish((a, b), common, request, columns, None, source, notes)


def _check_same_groups(a: PairResult, b: PairResult) -> None:
    """Raise unless the GEH scores of two results are over the same groups; finer or other ones give other scores."""
    own = a.pair_cells, b.pair_cells
    if own[0] is not None and own[1] is not None and own[0].equals(own[1]):
        return
    single = len(a.group_names) == len(b.group_names) == 1 and own == (None, None)
    named = a.settings.get("groups_given") and b.settings.get("groups_given") and a.group_names == b.group_names
    if single or named or (own == (None, None) and same_points(a, b) and np.array_equal(a.labels, b.labels)):
        return
    raise GEHValueError(
        "measure='geh': the scores are over different groups of points, so that equal networks and populations have "
        "different ones; use measure='mean' or 'eah', or explain both with groups= labels of the same names."
    )


def _other_weights(measure: str) -> GEHValueError:
    """Return the error for scores of categories whose levels have other weights."""
    return GEHValueError(
        f"measure={measure!r}: levels of categories have other shares of the points in both results. Scores are "
        "weighted by them, so that equal networks have different ones; use measure='groups' or 'mean', which weigh "
        "both alike."
    )


def _finish(
    results: tuple[DrawnResult, DrawnResult],
    common: CommonPairs,
    request: ComparisonRequest,
    columns: Columns,
    groups: GroupDifferences | None,
    source: str,
    notes: list[str],
) -> Comparison:
    """Return the comparison with its decisions."""
    p_value = columns["p_value"]
    assert request.measure is not None
    return Comparison(
        request.measure,
        request.labels,
        results[0].names,
        common.pairs,
        mean_a=columns["score_a"],
        mean_b=columns["score_b"],
        difference=columns["difference"],
        low=columns["low"],
        high=columns["high"],
        p_value=p_value,
        different=None if np.isnan(p_value).all() else discoveries(p_value, request.fdr),
        level=request.level,
        fdr=request.fdr,
        same_points=same_points(*results),
        sources=_sources(results, source),
        groups=groups,
        notes=notes,
    )


def _distances(result: PairResult, measure: str, level: float, source: str) -> tuple[Floats, Floats]:
    """Return how far the ends of the intervals of scores (P,) lie below and above; 0 for a network without draws."""
    down, up, sources = score_distances(result, measure, level, source)
    return (down, up) if sources else (np.zeros_like(down), np.zeros_like(up))


def _known_source(a: PairResult, b: PairResult, source: str, notes: list[str]) -> str:
    """Return the source of errors, without points if their errors are unknown in a result; this is a note."""
    if source != "draws" and any(known_errors(result) is None for result in (a, b)):
        notes.append("The errors over points are not known for both results and do not count.")
        return "draws"
    if source != "draws" and same_points(a, b):
        hint = "; explaining the difference of the networks is sharper" if a.settings.get("layer") is None else ""
        notes.append(f"Errors over the same points are counted as independent, which makes intervals too wide{hint}.")
    return source


def _sources(results: tuple[DrawnResult, DrawnResult], source: str) -> tuple[str, ...]:
    """Return what the intervals count."""
    draws = source != "points" and max(result.scores("geh").n_draws for result in results) > 1
    return ("draws",) * draws + ("points",) * (source != "draws")


def _descriptions(a: DrawnResult, b: DrawnResult, alignment: GroupAlignment) -> list[str] | None:
    """Return the descriptions of the common groups, if these are the groups of a result with descriptions."""
    for result, groups in ((a, alignment.first), (b, alignment.second)):
        texts = result.group_descriptions
        used = np.flatnonzero(groups >= 0)
        if texts is not None and len(used) == len(alignment.names) == len(np.unique(groups[used])):
            return [texts[index] for index in used[np.argsort(groups[used])]]
    return None
