"""Results made of given or random draws, without a network."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import geh_explain as geh
from geh_explain.run.record import RunRecord
from geh_explain.scores.draws import DrawMoments, Draws
from geh_explain.units import PairSet

#: The name of a unit deep in a network, which is too long for one line of a plot.
LONG_NAME = "features.denseblock4.denselayer16.conv2[1024]"


def result_of(
    signed: np.ndarray, names: Sequence[str], labels: Any, point_errors: np.ndarray | None = None, **record: Any
) -> geh.Interactions:
    """Return the result whose group means have the draws ``signed`` (K, M, P); EAH is the mean of their sizes."""
    groups = [str(group) for group in range(signed.shape[1])]
    draws = Draws(signed, np.abs(signed).mean(axis=1), point_errors=point_errors)
    return geh.Interactions(draws, np.asarray(labels), list(names), groups, RunRecord(**record))


def random_result(
    units: int = 5,
    draws: int = 30,
    groups: int = 2,
    *,
    names: Sequence[str] | None = None,
    noise: float = 0.5,
    points: int = 20,
    **record: Any,
) -> geh.Interactions:
    """Return a result whose later pairs are stronger; the first ones are not stable."""
    pairs = units * (units - 1) // 2
    signed = np.random.default_rng(0).normal(np.linspace(0, 3, pairs), noise, size=(draws, groups, pairs))
    return result_of(signed, names or [f"unit {i}" for i in range(units)], np.arange(points) % groups, **record)


def partial_result(known: PairSet, draws: int = 30, groups: int = 2) -> geh.Interactions:
    """Return a result of some pairs; later pairs are stronger."""
    means = np.linspace(1, 3, len(known))
    signed = np.random.default_rng(0).normal(means, 0.5, size=(draws, groups, len(known)))
    names = [f"unit {i}" for i in range(known.n_units)]
    labels, group_names = np.arange(20) % groups, [str(group) for group in range(groups)]
    all_draws = Draws(signed, np.abs(signed).mean(axis=1))
    return geh.Interactions(all_draws, labels, names, group_names, RunRecord(), pairs=known)


def evidence_result(result: geh.Interactions, untested: int = 0, n_rows: int = 1000) -> geh.Interactions:
    """Return the result with evidence: every third pair is confirmed, the last ``untested`` pairs were not tested."""
    pairs = len(result.geh.pair_mean)
    number = np.arange(pairs)
    slope = np.where(number % 3 == 1, 1.1 - 0.01 * number, 0.4 * np.cos(number))
    p_value = np.where(number % 3 == 1, 1e-6, 0.5 - 0.4 * np.cos(number))
    slope_se = np.where(number % 3 == 1, 0.1, 0.5)
    for values in (slope, slope_se, p_value):
        values[pairs - untested :] = np.nan
    return result.with_evidence(geh.Evidence(slope, slope_se, p_value, n_rows))


def without_draws(result: geh.Interactions) -> geh.Interactions:
    """Return the result as if its draws had not fitted into memory."""
    moments = DrawMoments()
    moments.add(Draws(result.signed, result.absolute, result.noise), result.sizes)
    return geh.Interactions(moments, result.labels, result.names, result.group_names, RunRecord(draws_kept=False))
