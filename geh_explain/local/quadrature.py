"""Gauss quadrature with the weight -ln s on (0, 1).

Integrated Hessians weight gradients by -ln s and second derivatives by -s ln s. Both are this weight times a smooth
function, so that one rule serves both and converges exponentially for analytic networks. Rules of the weight 1 would
converge like 1 / n^2, because of the logarithm.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from geh_explain._types import Floats

#: The rule is computed on (0, 4), where monic orthogonal polynomials neither vanish nor overflow for high degrees.
_LENGTH = 4.0


@cache
def log_rule(points: int) -> tuple[Floats, Floats]:
    """Return nodes and weights (n,) of the Gauss rule: exact for polynomials h up to degree 2n - 1.

    The rule is sum_k w_k h(s_k) = int_0^1 -ln(s) h(s) ds.

    The modified Chebyshev algorithm gives the three-term recurrence of the orthogonal polynomials from the moments of
    shifted Legendre polynomials P_l, int_0^1 -ln(s) P_l(s) ds = (-1)^l / (l (l + 1)) for l > 0 and 1 for l = 0. Nodes
    and weights are the eigenvalues, and squared first components of the eigenvectors, of the tridiagonal matrix of the
    recurrence (Golub and Welsch).

    >>> nodes, weights = log_rule(4)
    >>> float((weights * nodes**7).sum().round(12)) == round(1 / 64, 12)  # int -ln(s) s^7 = 1 / 8^2
    True
    """
    from scipy.linalg import eigh_tridiagonal

    diagonal, squares = _recurrence(points)
    nodes, vectors = eigh_tridiagonal(diagonal, np.sqrt(squares[1:]))
    return np.asarray(nodes / _LENGTH), np.asarray(vectors[0] ** 2)


def _recurrence(points: int) -> tuple[Floats, Floats]:
    """Return the coefficients (n,) of the recurrence p_k+1 = (x - a_k) p_k - b_k p_k-1, by the Chebyshev algorithm."""
    degrees = np.arange(1, 2 * points)
    # Leading coefficients 4^l (l!)^2 / (2l)! of the monic Legendre polynomials on (0, 4).
    leading = np.cumprod(2 * degrees / (2 * degrees - 1))
    moments = np.concatenate([[1.0], (-1.0) ** degrees * leading / (degrees * (degrees + 1))])
    legendre_a = np.full(2 * points, _LENGTH / 2)
    legendre_b = np.concatenate([[0.0], 4 * degrees**2 / (4 * degrees**2 - 1)])
    a, b = np.empty(points), np.empty(points)
    a[0], b[0] = legendre_a[0] + moments[1] / moments[0], moments[0]
    before, current = np.zeros_like(moments), moments
    for k in range(1, points):
        inner = slice(k, 2 * points - k)
        following = np.zeros_like(moments)
        following[inner] = (
            current[k + 1 : 2 * points - k + 1]
            - (a[k - 1] - legendre_a[inner]) * current[inner]
            - b[k - 1] * before[inner]
            + legendre_b[inner] * current[k - 1 : 2 * points - k - 1]
        )
        a[k] = legendre_a[k] + following[k + 1] / following[k] - current[k] / current[k - 1]
        b[k] = following[k] / current[k - 1]
        before, current = current, following
    return a, b
