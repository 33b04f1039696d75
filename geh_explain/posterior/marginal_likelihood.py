"""Prior precision and noise of a linear layer by the marginal likelihood of the data (MacKay, 1992).

With weights w (d,), as distances from the mean of their prior, residual sum of squares R_c and noise s_c of each
output, eigenvalues l_i of the curvature of all outputs, and prior precision t, the Laplace approximation of the log
marginal likelihood is, up to a constant::

    log p(y | w, s) + d/2 log t - t/2 |w|^2 - 1/2 sum_i log(l_i + t).

With g = sum_i l_i / (l_i + t), the number of weights that the data determine, its maximum in t is where t |w|^2 = g,
and that in s_c where s_c^2 = R_c / (N - g_c), with g_c the part of g of output c.
"""

from __future__ import annotations

import math

from torch import Tensor

#: Exponents of 10 between which the prior precision is searched, beyond those of its scale.
_DECADES = 30
#: Halvings of that interval: the result has all digits of double precision.
_HALVINGS = 100
#: Rounds in which noise and precision are determined in turn, and the change at which they end.
_MAX_ROUNDS = 1000
_TOLERANCE = 1e-10


def determined(eigenvalues: Tensor, precision: float) -> Tensor:
    """Return l / (l + t) for each eigenvalue: 1 for weights that the data determine, 0 for those of the prior."""
    return eigenvalues / (eigenvalues + precision)


def best_precision(eigenvalues: Tensor, squared_norm: float) -> float:
    """Return the prior precision with the largest marginal likelihood.

    It is the root of g(t) / t = ``squared_norm``, the squared length of the weights. The left side decreases in t, so
    that there is one root, which is found by bisection of log t.

    >>> import torch
    >>> eigenvalues = torch.tensor([1.0, 3.0], dtype=torch.double)
    >>> t = best_precision(eigenvalues, 2.0)
    >>> round(float(determined(eigenvalues, t).sum()) / t, 12)
    2.0
    """
    total = float(eigenvalues.sum())
    centre = 0.5 * math.log10(max(total, 1e-300) / max(squared_norm, 1e-300))
    low, high = centre - _DECADES, centre + _DECADES
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        precision = 10.0**middle
        if float(determined(eigenvalues, precision).sum()) > precision * squared_norm:
            low = middle
        else:
            high = middle
    return float(10.0 ** ((low + high) / 2))


def best_noise(
    unit_eigenvalues: Tensor, residuals: Tensor, n_rows: int, squared_norm: float, precision: float | None
) -> Tensor:
    """Return the noise variances (C,) of a regression with the largest marginal likelihood.

    Parameters
    ----------
    unit_eigenvalues
        Eigenvalues (C, F) of the curvature for noise 1.
    residuals
        Residual sums of squares (C,).
    n_rows
        Number of rows N.
    squared_norm
        Squared length of all weights.
    precision
        The prior precision; None for the best one.
    """
    noise = residuals / n_rows
    for _ in range(_MAX_ROUNDS):
        eigenvalues = unit_eigenvalues / noise[:, None]
        found = best_precision(eigenvalues, squared_norm) if precision is None else precision
        before = noise
        noise = residuals / (n_rows - determined(eigenvalues, found).sum(1)).clamp_min(1e-9)
        if bool(((noise - before).abs() <= _TOLERANCE * before).all()):
            break
    return noise
