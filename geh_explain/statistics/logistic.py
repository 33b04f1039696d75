"""Logistic regression by Newton's method with a line search."""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats

#: Newton steps at most; a few are enough unless classes can be separated.
_MAX_STEPS = 100
#: Halvings of one step at most.
_MAX_HALVINGS = 40
#: The fit ends where a step promises less than this decrease of the negative log likelihood.
_CONVERGED = 1e-10


def sigmoid(values: Floats) -> Floats:
    """Return 1 / (1 + exp(-values)), without overflow."""
    from scipy.special import expit

    return np.asarray(expit(values))


def fit_logistic(
    columns: Floats,
    labels: Floats,
    known: Floats,
    precision: float,
    start: Floats | None = None,
    case_weights: Floats | None = None,
) -> Floats:
    """Return the coefficients (c,) of a logistic regression with log-odds ``columns @ coefficients + known``.

    The negative log likelihood is convex, so that steps which decrease it lead to its minimum from any start: also
    where outputs of a network are far too confident.

    Parameters
    ----------
    columns
        Columns (n, c).
    labels
        Labels (n,), 0 or 1.
    known
        Log-odds (n,) that are added as they are.
    precision
        Precision of a normal prior around ``start``, which keeps coefficients finite where classes can be separated.
    start
        Coefficients (c,) at which the fit starts; 0 by default.
    case_weights
        Weights (n,) of the rows in the likelihood; 1 by default.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.repeat([0.0, 1.0], 100)
    >>> y = np.concatenate([np.tile([1.0, 0.0, 0.0, 0.0], 25), np.tile([1.0, 1.0, 1.0, 0.0], 25)])
    >>> fit_logistic(np.column_stack([np.ones(200), x]), y, np.zeros(200), 1e-9).round(3).tolist()  # -log 3, 2 log 3
    [-1.099, 2.197]
    """
    start = np.zeros(columns.shape[1]) if start is None else start
    coefficients = start
    case_weights = np.ones_like(labels) if case_weights is None else case_weights
    loss = _loss(columns, labels, known, coefficients, case_weights) + _prior(coefficients, start, precision)
    for _ in range(_MAX_STEPS):
        probability = sigmoid(columns @ coefficients + known)
        gradient = columns.T @ (case_weights * (labels - probability)) - precision * (coefficients - start)
        weights = case_weights * probability * (1 - probability)
        curvature = (columns * weights[:, None]).T @ columns + precision * np.eye(len(start))
        # Columns of very different sizes are brought to one size.
        scale = 1 / np.sqrt(np.maximum(curvature.diagonal(), 1e-300))
        step = scale * np.linalg.lstsq(curvature * scale[:, None] * scale, scale * gradient, rcond=1e-12)[0]
        promised = float(gradient @ step)
        if not promised > _CONVERGED:
            break
        for halving in range(_MAX_HALVINGS):
            candidate = coefficients + step / 2**halving
            decreased = _loss(columns, labels, known, candidate, case_weights) + _prior(candidate, start, precision)
            if decreased < loss - 1e-4 * promised / 2**halving:
                break
        else:
            break
        coefficients, loss = candidate, decreased
    return coefficients


def _loss(columns: Floats, labels: Floats, known: Floats, coefficients: Floats, case_weights: Floats) -> float:
    """Return the negative log likelihood."""
    log_odds = columns @ coefficients + known
    return float(np.sum(case_weights * (np.logaddexp(0, log_odds) - labels * log_odds)))


def _prior(coefficients: Floats, start: Floats, precision: float) -> float:
    """Return the negative log density of the normal prior around ``start``, without its constant."""
    return precision * float(np.sum((coefficients - start) ** 2)) / 2
