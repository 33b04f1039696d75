"""The slope of a residual on one direction, beside nuisance columns, and its one-sided test.

With direction h, residual r and nuisance columns S of n rows, let h' and r' be what remains of h and r after projection
off S. Then ::

    slope = h'r' / h'h'
    se^2  = sum_k h'_k^2 e_k^2 / (1 - l_k) / (h'h')^2          e = r' - slope h'
    p     = P(T_f > slope / se)                                f = (h'h')^2 / sum_k h'_k^4 / 4

l_k is the leverage of row k (of S and h'), which makes the variance unbiased for errors of equal variance and nearly so
for others (HC2; MacKinnon and White, 1985). (h'h')^2 / sum h'^4 is the effective number of rows that determine the
slope; Student's t with a quarter of it as degrees of freedom has tails that are heavy enough for skewed errors and
directions. With case weights, by whose roots all rows are multiplied, rows of large weight have large leverages and
large errors, as weights are no inverse variances: errors are divided by (1 - l_k)^2 then (HC3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from geh_explain._types import Floats

#: Columns whose remainder after projection has a smaller squared norm than this, relative to theirs, are dropped.
_TOLERANCE = 1e-6
#: Columns of which projection leaves less than this, relative to their norm, are dropped: these are rounding errors.
_ROUNDING = 1e-6
#: A direction is lost if projection leaves less than this share of its squared norm.
_LOST = 1e-10
#: Leverages are cut here: a row that determines a column alone has leverage 1.
_MAX_LEVERAGE = 0.99
#: Degrees of freedom per effective row.
_FREEDOM_SHARE = 0.25
#: Nodes of the quadrature of expected shares.
_NODES = 64
#: Smaller standard errors do not change an expected share.
_NO_ERROR = 1e-9
#: Slopes further below 0 than this many standard errors are taken for this many.
_LOWEST_CENTRE = -1e6


class Slope(NamedTuple):
    """Slope of a direction, its standard error, and the one-sided p-value of the hypothesis that it is 0.

    Without a direction to test, slope and standard error are NaN and the p-value is 1. All three are NaN if there is
    one that cannot be tested.
    """

    slope: float
    se: float
    p_value: float


#: Outcome where there is nothing to test.
NO_DIRECTION = Slope(np.nan, np.nan, 1.0)
#: Outcome where nuisance columns leave too little of the direction.
UNTESTABLE = Slope(np.nan, np.nan, np.nan)


def orthonormal(columns: Floats, beside: Floats | None = None) -> Floats:
    """Return an orthonormal basis of the span of ``columns`` (n, c), without linearly dependent ones.

    Parameters
    ----------
    columns
        Columns (n, c) of any scale; constant 0 is allowed.
    beside
        Orthonormal columns (n, b), to which the basis is made orthogonal.

    Examples
    --------
    >>> import numpy as np
    >>> orthonormal(np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]])).shape
    (2, 2)
    """
    norms = np.linalg.norm(columns, axis=0)
    columns = columns[:, norms > 0] / norms[norms > 0]
    if beside is not None:
        columns = project_off(columns, beside)
        # What remains of a column may be small: a prediction, for instance, has a mean, which is projected off.
        norms = np.linalg.norm(columns, axis=0)
        columns = columns[:, norms > _ROUNDING] / norms[norms > _ROUNDING]
    # The eigenvectors of the Gram matrix are cheaper than a singular value decomposition of tall columns.
    values, vectors = np.linalg.eigh(columns.T @ columns)
    keep = values > _TOLERANCE
    return np.asarray(columns @ (vectors[:, keep] / np.sqrt(values[keep])))


def project_off(columns: Floats, *bases: Floats) -> Floats:
    """Return ``columns`` (n,) or (n, c) minus their projections on orthonormal ``bases``, orthogonal to each other."""
    for basis in bases:
        columns = columns - basis @ (basis.T @ columns)
    return columns


def slope_test(direction: Floats, residual: Floats, *bases: Floats, case_weights: bool = False) -> Slope:
    """Return the slope of ``residual`` on ``direction``, beside nuisance columns.

    Parameters
    ----------
    direction, residual
        Both (n,). For weighted least squares both are multiplied by the roots of the weights.
    bases
        Orthonormal nuisance columns, each (n, c), orthogonal to each other.
    case_weights
        Whether rows are multiplied by the roots of weights that are no inverse variances.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> h, noise = generator.normal(size=(2, 1000))
    >>> ones = np.full((1000, 1), 1000**-0.5)
    >>> test = slope_test(h, 0.5 * h + 7 + noise, ones)
    >>> round(test.slope, 1), round(test.se, 2), test.p_value < 1e-6
    (0.6, 0.03, True)
    """
    from scipy.special import stdtr

    remainder, response = project_off(direction, *bases), project_off(residual, *bases)
    squares = remainder**2
    total = float(squares.sum())
    if total <= _LOST * float(direction @ direction):
        return NO_DIRECTION
    slope = float(remainder @ response) / total
    leverage = squares / total + sum((basis**2).sum(axis=1) for basis in bases)
    left = 1 - np.minimum(leverage, _MAX_LEVERAGE)
    errors = (response - slope * remainder) ** 2 / (left**2 if case_weights else left)
    se = float(np.sqrt(squares @ errors)) / total
    if se == 0:
        # No noise at all: the residual is a multiple of the direction.
        return Slope(slope, 0.0, 0.0 if slope > 0 else 1.0)
    freedom = max(1.0, _FREEDOM_SHARE * total**2 / float(squares @ squares))
    return Slope(slope, se, float(stdtr(freedom, -slope / se)))


def expected_share(slope: Floats, se: Floats) -> Floats:
    """Return the expected share s (P,) of an interaction that labels contain, given slopes and standard errors.

    Before the labels are seen, all s in [0, 1] are equally likely. Then s is normal with mean ``slope`` and standard
    deviation ``se``, truncated to [0, 1]. Without an error its mean is the slope, cut to [0, 1]; with a very large one
    it is near 1/2. NaN where the slope is.

    >>> expected_share(np.array([1.0, 0.0, 0.6, -3.0]), np.array([0.1, 0.1, 100.0, 0.0])).round(3).tolist()
    [0.92, 0.08, 0.5, 0.0]
    """
    expected = np.clip(slope, 0, 1)
    noisy = se > _NO_ERROR
    # By symmetry: the expected rest 1 - s is that of the slope 1 - slope.
    low, width = slope[noisy] <= 0.5, se[noisy]
    with np.errstate(over="ignore"):
        centre = np.maximum(np.where(low, slope[noisy], 1 - slope[noisy]) / width, _LOWEST_CENTRE)
        # All but exp(-50) of the probability lies between these ends. Below 0, it falls like exp(-s |slope| / se^2).
        reach = np.minimum(10.0, np.divide(50, -centre, out=np.full_like(width, np.inf), where=centre < 0))
        start, end = (np.clip(edge * width, 0, 1) for edge in (centre - 10, np.maximum(centre, 0) + reach))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    shares = start[:, None] + (end - start)[:, None] * (nodes + 1) / 2
    exponent = -((shares / width[:, None] - centre[:, None]) ** 2) / 2
    density = weights * np.exp(exponent - exponent.max(axis=1, keepdims=True))
    mean = (density * shares).sum(axis=1) / density.sum(axis=1)
    expected[noisy] = np.where(low, mean, 1 - mean)
    return np.asarray(expected)
