"""The rules that decide about pairs. :func:`decide` is the only place where a result's decisions are made.

A pair has two questions. *Do the data support it?* is answered by labels that training never used, if there are any
(``"evidence"``). *Does the network use it?* is answered by the draws of the network and the finite choice of points
(``"sign"``). ``"interval"`` is the rule of the paper, which looks at the draws alone.

The interval of a score, other than that of the paper's rule, counts both sources. With the half-width v of the interval
over draws, and the distances d, u of the ends of the interval over points from the score ::

    low = max(0, mean - sqrt(v^2 + d^2)),    high = mean + sqrt(v^2 + u^2)

``source=`` chooses one of them. The first is about the score of a network of the same posterior at these points, the
second about the score of these networks at all points of the population.
"""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats
from geh_explain._validation import check_level, check_rate
from geh_explain.errors import GEHValueError
from geh_explain.scores.decisions import DEFAULT_FDR, RULES, SUPPORTED, Decisions
from geh_explain.scores.draws import MEASURES
from geh_explain.scores.evidence import Evidence
from geh_explain.scores.level_means import LevelMeans, find_pair_uncertainty, with_level_p_values
from geh_explain.scores.measured_points import error_counts
from geh_explain.scores.point_uncertainty import known_errors
from geh_explain.scores.protocol import PairResult
from geh_explain.statistics.intervals import gaussian_interval, predictive_half_width
from geh_explain.statistics.p_values import bayesian_p_value, discoveries, sign_p_value

#: Sources of uncertainty that an interval can count.
SOURCES = ("both", "draws", "points")
#: How to get evidence, for error messages.
_HOW = "explain(..., evidence=(X_held, y_held)) or explainer.test(result, X_held, y_held) adds it"


def decide(
    result: PairResult,
    measure: str | None,
    level: float,
    fdr: float | None,
    rule: str | None,
    source: str | None = None,
) -> Decisions:
    """Return the scores, intervals and decisions of all pairs; the parameters are those of ``result.table``."""
    check_level(level)
    rate = None if fdr is None else check_rate(fdr)
    rule = choose_rule(rule, result.evidence)
    source = choose_source(source, rule)
    measure = choose_measure(measure, rule, result.evidence)
    name = "geh" if measure == SUPPORTED else measure
    scores, evidence = result.scores(name), result.evidence
    mean, std = scores.pair_mean, scores.pair_std
    accepted = None
    if rule == "interval":
        low, high = gaussian_interval(mean, std, level)
        sources: tuple[str, ...] = ("draws",) * (scores.n_draws > 1)
        p_value = bayesian_p_value(mean, std)
        # Scores are not negative, so an interval excludes 0 exactly if its low end is positive.
        if scores.n_draws > 1:
            accepted = (low > 0) & (discoveries(p_value, rate) if rate else True)
    else:
        rate = rate or DEFAULT_FDR
        low, high, sources = score_interval(result, name, level, source)
        p_value = result.sign_p_values() if evidence is None or rule == "sign" else evidence.p_value
        # Without draws and errors of the points all p-values of the sign rule are NaN.
        if rule == "evidence" or not np.isnan(p_value).all():
            accepted = discoveries(p_value, rate)
    supported = None if evidence is None else evidence.shrinkage * mean
    true_interval = None
    if rule == "evidence" and measure in ("geh", SUPPORTED) and evidence is not None and evidence.true_scores:
        true_interval = evidence.true_scores.interval(level)
    return Decisions(
        rule, measure, level, rate, mean, std, low, high, sources, p_value, supported, accepted, true_interval
    )


def score_interval(
    result: PairResult, measure: str, level: float, source: str
) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Return both ends (P,) of the intervals of a measure, and what they count; NaN where nothing is known."""
    mean = result.scores(measure).pair_mean
    down, up, sources = score_distances(result, measure, level, source)
    return np.maximum(mean - down, 0.0), mean + up, sources


def score_distances(
    result: PairResult, measure: str, level: float, source: str
) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Return how far the ends of the intervals lie below and above the scores (P,), and what they count."""
    scores = result.scores(measure)
    mean = scores.pair_mean
    draws = scores.n_draws > 1 and source != "points"
    points = None if source == "draws" else find_pair_uncertainty(result, measure)
    of_points = "points" if result.cluster_errors is None else "clusters"
    sources = ("draws",) * draws + (of_points,) * (points is not None)
    if not sources:
        return np.full_like(mean, np.nan), np.full_like(mean, np.nan), ()
    down = up = predictive_half_width(scores.pair_std, scores.n_draws, level) if draws else np.zeros_like(mean)
    if points is not None:
        down, up = (np.hypot(down, distance) for distance in points.distances(level))
    return down, up, sources


def choose_source(source: str | None, rule: str) -> str:
    """Return the source of uncertainty that None stands for, or the given one if it is known and fits the rule."""
    if source not in (None, *SOURCES):
        raise GEHValueError(f"source={source!r} is unknown; use 'both', 'draws' or 'points', or None.")
    if rule == "interval" and source not in (None, "draws"):
        raise GEHValueError(
            f"source={source!r} does not go with rule='interval', the rule of the paper, which looks at draws only; "
            "leave source=None, or use rule='sign'."
        )
    return source or ("draws" if rule == "interval" else "both")


def choose_rule(rule: str | None, evidence: Evidence | None) -> str:
    """Return the rule that None stands for, or the given one if it is known and possible."""
    if rule is None:
        return "sign" if evidence is None else "evidence"
    if rule not in RULES:
        raise GEHValueError(f"rule={rule!r} is unknown; use 'evidence', 'sign' or 'interval', or None.")
    if rule == "evidence" and evidence is None:
        raise GEHValueError(f"rule='evidence': this result has no evidence from held-out labels; {_HOW}.")
    return rule


def choose_measure(measure: str | None, rule: str, evidence: Evidence | None) -> str:
    """Return the measure that None stands for, or the given one if it is possible."""
    if measure is None:
        return SUPPORTED if rule == "evidence" else "geh"
    if measure not in (*MEASURES, SUPPORTED):
        raise GEHValueError(f"measure={measure!r} is unknown; use 'geh', 'aeh', 'eah' or 'supported', or None.")
    if measure == SUPPORTED and evidence is None:
        raise GEHValueError(f"measure='supported': this result has no evidence from held-out labels; {_HOW}.")
    return measure


def compute_sign_p(result: PairResult) -> Floats:
    """Return the p-values (P,) of the sign rule, NaN if there is one draw and no error of the points."""
    n_draws, counts = result.scores("geh").n_draws, error_counts(result)
    p_values = sign_p_value(*result.signed_means, n_draws, known_errors(result), counts)
    means = LevelMeans.of(result)
    return p_values if means is None else with_level_p_values(p_values, means)
