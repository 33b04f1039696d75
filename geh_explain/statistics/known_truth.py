"""Decisions and scores against a known truth: error rates, ROC curves, coverage. Pure functions of arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain.errors import GEHValueError


def error_rates(significant: NDArray[np.bool_], truth: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the shares of false positives among null pairs, and of misses among true ones; NaN where there are none.

    >>> import numpy as np
    >>> error_rates(np.array([True, True, False, False]), np.array([True, False, False, True]))
    (0.5, 0.5)
    """
    significant, truth = _same_length("significant", significant, truth)
    return _share(significant[~truth]), _share(~significant[truth])


def roc(scores: Floats, truth: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return false and true positive rates for every threshold, from the strictest to none.

    >>> import numpy as np
    >>> [rates.tolist() for rates in roc(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]))]
    [[0.0, 0.0, 1.0, 1.0], [0.0, 0.5, 0.5, 1.0]]
    """
    scores, truth = np.asarray(scores, dtype=float), np.asarray(truth, dtype=bool)
    _both_kinds(scores, truth)
    order = np.argsort(-scores, kind="stable")
    # Equal scores pass a threshold together.
    last = np.append(np.diff(scores[order]) != 0, True)
    hits, alarms = np.cumsum(truth[order])[last], np.cumsum(~truth[order])[last]
    return np.append(0.0, alarms / (~truth).sum()), np.append(0.0, hits / truth.sum())


def auc(scores: Floats, truth: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve: how often a true pair scores above a null one.

    >>> import numpy as np
    >>> auc(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]))
    0.5
    """
    alarms, hits = roc(scores, truth)
    return float(np.sum(np.diff(alarms) * (hits[1:] + hits[:-1]) / 2))


def coverage(low: Floats, high: Floats, truth: Floats) -> float:
    """Return the share of intervals that hold the truth.

    >>> import numpy as np
    >>> coverage(np.array([0.0, 1.0]), np.array([2.0, 3.0]), np.array([1.0, 4.0]))
    0.5
    """
    return _share((np.asarray(low) <= truth) & (truth <= np.asarray(high)))


def _share(values: NDArray[np.bool_]) -> float:
    return float(np.mean(values)) if values.size else float("nan")


def _same_length(
    name: str, values: NDArray[np.bool_], truth: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    values, truth = np.asarray(values, dtype=bool), np.asarray(truth, dtype=bool)
    if values.shape != truth.shape:
        raise GEHValueError(f"{name} has shape {values.shape} and truth {truth.shape}; they are over the same pairs.")
    return values, truth


def _both_kinds(scores: Floats, truth: NDArray[np.bool_]) -> None:
    if scores.shape != truth.shape or scores.ndim != 1:
        raise GEHValueError(f"scores has shape {scores.shape} and truth {truth.shape}; give one entry per pair.")
    if np.isnan(scores).any():
        raise GEHValueError("scores has NaN, which cannot be ranked.")
    if truth.all() or not truth.any():
        raise GEHValueError("truth must name some pairs that interact and some that do not.")
