"""The rules that decide about pairs. :func:`decide` is the only place where a result's decisions are made.

A pair has two questions. *Do the data support it?* is answered by labels that training never used, if there are any
(``"evidence"``). *Does the network use it?* is answered by the draws of the network and the finite choice of points
(``"sign"``). ``"interval"`` is the rule of the paper, which looks at the draws alone.

The interval of a score, other than that of the paper's rule, counts both sources. With the standard deviation s over
draws and the standard errors e_m (M groups of n_m points) of the group means ::

    sd^2 = s^2 + sum_m (n_m / N)^2 e_m^2          low = max(0, mean - z sd),  high = mean + z sd

for GEH and AEH. EAH has no group means, so that its interval counts the draws only.
"""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats
from geh_explain._validation import check_level, check_rate
from geh_explain.errors import GEHValueError
from geh_explain.scores.decisions import DEFAULT_FDR, RULES, SUPPORTED, Decisions
from geh_explain.scores.draws import MEASURES
from geh_explain.scores.evidence import Evidence
from geh_explain.scores.protocol import PairResult
from geh_explain.statistics.intervals import gaussian_interval, total_std
from geh_explain.statistics.p_values import bayesian_p_value, discoveries, sign_p_value

#: How to get evidence, for error messages.
_HOW = "explain(..., evidence=(X_held, y_held)) or explainer.test(result, X_held, y_held) adds it"


def decide(result: PairResult, measure: str | None, level: float, fdr: float | None, rule: str | None) -> Decisions:
    """Return the scores, intervals and decisions of all pairs; the parameters are those of ``result.table``."""
    check_level(level)
    rate = None if fdr is None else check_rate(fdr)
    rule = choose_rule(rule, result.evidence)
    measure = choose_measure(measure, rule, result.evidence)
    scores = result.scores("geh" if measure == SUPPORTED else measure)
    mean, std, evidence = scores.pair_mean, scores.pair_std, result.evidence
    errors = None if rule == "interval" or measure == "eah" else _score_errors(result)
    sources = ("draws",) * (scores.n_draws > 1) + ("points",) * (errors is not None)
    low, high = gaussian_interval(mean, total_std(std, errors), level)
    accepted = None
    if rule == "interval":
        p_value = bayesian_p_value(mean, std)
        # Scores are not negative, so an interval excludes 0 exactly if its low end is positive.
        if scores.n_draws > 1:
            accepted = (low > 0) & (discoveries(p_value, rate) if rate else True)
    else:
        rate, low = rate or DEFAULT_FDR, np.maximum(low, 0.0)
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


def _score_errors(result: PairResult) -> Floats | None:
    """Return the standard errors (P,) of GEH or AEH due to the finite choice of points, None if they are unknown.

    The error of a group of one point is unknown. It gets the variance per point of the other groups.
    """
    errors = _known_errors(result)
    if errors is None:
        return None
    sizes, known = result.sizes[:, None], ~np.isnan(errors)
    per_point = np.where(known, sizes * np.nan_to_num(errors) ** 2, 0.0)
    pooled = (sizes * per_point).sum(axis=0) / np.maximum((sizes * known).sum(axis=0), 1)
    variances = np.where(known, np.nan_to_num(errors) ** 2, pooled / np.maximum(sizes, 1))
    return np.asarray(np.sqrt((result.sizes / result.sizes.sum()) ** 2 @ variances))


def _known_errors(result: PairResult) -> Floats | None:
    """Return the standard errors (M, P) of the group means, None if all are unknown."""
    errors = result.point_errors
    return None if errors is None or np.isnan(errors).all() else errors


def compute_sign_p(result: PairResult) -> Floats:
    """Return the p-values (P,) of the sign rule, NaN if there is one draw and no error of the points."""
    return sign_p_value(*result.signed_means, result.scores("geh").n_draws, _known_errors(result), result.sizes)
