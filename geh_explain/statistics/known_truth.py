"""Error rates, ROC curves and coverage where it is known which pairs interact.

All functions take one entry per pair, in any common order. ``truth`` is boolean (the pair interacts) except in
:func:`coverage`, where it is the true score.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain.errors import GEHValueError


def error_rates(significant: NDArray[np.bool_], truth: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the false positive rate among null pairs and the miss rate among true pairs.

    A rate is NaN if there are no such pairs.

    >>> import numpy as np
    >>> error_rates(np.array([True, True, False, False]), np.array([True, False, False, True]))
    (0.5, 0.5)
    """
    significant, truth = np.asarray(significant, dtype=bool), np.asarray(truth, dtype=bool)
    if significant.shape != truth.shape:
        raise GEHValueError(
            f"significant has shape {significant.shape} and truth {truth.shape}; give both over the same pairs."
        )
    return _share(significant[~truth]), _share(~significant[truth])


def roc(scores: Floats, truth: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return the ROC curve: false and true positive rates at every threshold, the strictest first.

    Both arrays start at 0 and end at 1 and have one entry per distinct score besides.

    >>> import numpy as np
    >>> [rates.tolist() for rates in roc(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]))]
    [[0.0, 0.0, 1.0, 1.0], [0.0, 0.5, 0.5, 1.0]]
    """
    scores, truth = np.asarray(scores, dtype=float), np.asarray(truth, dtype=bool)
    _check_rankable(scores, truth)
    order = np.argsort(-scores, kind="stable")
    # Equal scores pass a threshold together: only the last of each run of equal scores is a point of the curve.
    last = np.append(np.diff(scores[order]) != 0, True)
    true_positives, false_positives = np.cumsum(truth[order])[last], np.cumsum(~truth[order])[last]
    return np.append(0.0, false_positives / (~truth).sum()), np.append(0.0, true_positives / truth.sum())


def auc(scores: Floats, truth: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve: the probability that a true pair scores above a null pair.

    >>> import numpy as np
    >>> auc(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]))
    0.5
    """
    false_rates, true_rates = roc(scores, truth)
    # Trapezoidal rule, by which ties count one half.
    return float(np.sum(np.diff(false_rates) * (true_rates[1:] + true_rates[:-1]) / 2))


def coverage(low: Floats, high: Floats, truth: Floats) -> float:
    """Return the share of intervals [low, high] that contain the true score.

    >>> import numpy as np
    >>> coverage(np.array([0.0, 1.0]), np.array([2.0, 3.0]), np.array([1.0, 4.0]))
    0.5
    """
    return _share((np.asarray(low) <= truth) & (truth <= np.asarray(high)))


def _share(values: NDArray[np.bool_]) -> float:
    """Return the share of True, NaN for an empty array."""
    return float(np.mean(values)) if values.size else float("nan")


def _check_rankable(scores: Floats, truth: NDArray[np.bool_]) -> None:
    """Raise unless there is one score per pair, none is NaN, and both kinds of pairs occur."""
    if scores.shape != truth.shape or scores.ndim != 1:
        raise GEHValueError(f"scores has shape {scores.shape} and truth {truth.shape}; give one entry per pair.")
    if np.isnan(scores).any():
        raise GEHValueError("scores has NaN, which cannot be ranked; leave these pairs out.")
    if truth.all() or not truth.any():
        raise GEHValueError("truth must name some pairs that interact and some that do not.")
