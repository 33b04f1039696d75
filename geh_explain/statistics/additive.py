"""Additive functions of units, fitted by least squares and evaluated at rows that were not fitted.

An additive function is a sum of functions of one unit each, g(u) = c + sum_i g_i(u_i). Each g_i is a combination of the
unit's value, Legendre polynomials of its rank and of its value over its range, and indicators of quantile bins, which
follow steps. Polynomials of ranks are flexible where most rows are, those of values in the tails. Units that are
categories come first; their values are codes, and g_i is a combination of indicators of their levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import legendre

from geh_explain._types import Floats, Ints
from geh_explain.statistics.slopes import orthonormal

#: Added to the diagonal of normal equations, whose entries are 1: a column that few rows determine stays bounded.
_RIDGE = 1e-4
#: Levels of a category that have an indicator at most, the most frequent ones.
MAX_INDICATORS = 50


@dataclass(frozen=True)
class AdditiveDegrees:
    """How flexible an additive function is in each unit.

    ``ranks`` and ``values`` are degrees of polynomials, 0 for none; ``bins`` is the number of quantile bins. The value
    itself is always a column.
    """

    ranks: int
    values: int
    bins: int = 0

    @property
    def n_columns(self) -> int:
        """Number of columns of one unit."""
        return 1 + self.ranks + self.values + self.bins


#: From rigid to flexible.
LADDER = (
    AdditiveDegrees(0, 0),
    AdditiveDegrees(2, 2),
    AdditiveDegrees(4, 3),
    AdditiveDegrees(6, 4),
    AdditiveDegrees(8, 6),
    AdditiveDegrees(8, 6, 16),
)


def additive_basis(
    values: Floats, degrees: AdditiveDegrees, n_categories: int = 0, weights: Floats | None = None
) -> Floats:
    """Return an orthonormal basis (n, c) of additive functions of units with ``values`` (n, D), constants included.

    The first ``n_categories`` units are codes of levels. With case ``weights`` (n,) all rows of the basis are
    multiplied by their roots: fits of targets that are multiplied so, too, are weighted least squares.

    >>> values = np.random.default_rng(0).normal(size=(200, 3))
    >>> basis = additive_basis(values, AdditiveDegrees(ranks=3, values=2))
    >>> target = values[:, 0] - 2 * values[:, 2] + 5
    >>> bool(np.allclose(basis @ (basis.T @ target), target))
    True
    """
    codes, values = values[:, :n_categories].T, values[:, n_categories:]
    ranks = scaled_ranks(values)
    spread = values.std(axis=0)
    columns = [np.ones((len(values), 1)), (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1)]
    columns += [indicators(code) for code in codes]
    if degrees.ranks:
        columns.append(polynomials(ranks, degrees.ranks))
    if degrees.values:
        columns.append(polynomials(scaled_values(values), degrees.values))
    if degrees.bins:
        places = np.minimum(((ranks + 1) / 2 * degrees.bins).astype(int), degrees.bins - 1)
        columns.append(np.eye(degrees.bins)[places].reshape(len(values), -1))
    return orthonormal(weigh_rows(np.concatenate(columns, axis=1), weights))


def weigh_rows(columns: Floats, weights: Floats | None) -> Floats:
    """Return ``columns`` (n, ...) times the roots of case weights (n,); None leaves them as they are."""
    return columns if weights is None else np.asarray((columns.T * np.sqrt(weights)).T)


def indicators(codes: Floats, most: int = MAX_INDICATORS) -> Floats:
    """Return indicators (n, L) of the most frequent levels of a category with these codes (n,).

    >>> indicators(np.array([4.0, 4.0, 7.0])).tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    levels, counts = np.unique(codes, return_counts=True)
    kept = np.sort(np.argsort(-counts, kind="stable")[:most])
    return np.asarray(codes[:, None] == levels[kept], dtype=np.float64)


def product_columns(
    first: Floats,
    second: Floats,
    degree: int,
    categories: tuple[bool, bool] = (False, False),
    max_levels: int = MAX_INDICATORS,
) -> Floats:
    """Return products (n, c) of functions of two units with values (n,) each.

    They are polynomials of ranks and of values, and indicators of the ``max_levels`` most frequent levels for those
    that are ``categories``.

    >>> product_columns(np.arange(9.0), np.arange(9.0)[::-1], degree=2).shape
    (9, 8)
    >>> product_columns(np.arange(9.0) % 3, np.arange(9.0), 2, (True, False)).shape
    (9, 12)
    """
    parts = []
    for scaled in (scaled_ranks,) if all(categories) else (scaled_ranks, scaled_values):
        one, other = (
            indicators(values, max_levels) if is_category else polynomials(scaled(values[:, None]), degree)
            for values, is_category in zip((first, second), categories, strict=True)
        )
        parts.append((one[:, :, None] * other[:, None, :]).reshape(len(one), -1))
    return np.concatenate(parts, axis=1)


def cross_fitted(basis: Floats, targets: Floats, folds: Ints) -> Floats:
    """Return predictions (n, K) of ``targets`` (n, K) at each row, fitted to the rows of all other folds.

    Parameters
    ----------
    basis
        Orthonormal columns (n, c).
    targets
        Numbers (n, K) to fit, by K separate fits.
    folds
        Fold (n,) of each row.

    Examples
    --------
    >>> values = np.random.default_rng(0).normal(size=(500, 2))
    >>> basis = additive_basis(values, AdditiveDegrees(2, 2))
    >>> predicted = cross_fitted(basis, values.sum(axis=1, keepdims=True), np.arange(500) % 5)
    >>> bool(np.abs(predicted[:, 0] - values.sum(axis=1)).max() < 0.01)
    True
    """
    predicted = np.empty(targets.shape)
    products, gram = basis.T @ targets, (1 + _RIDGE) * np.eye(basis.shape[1])
    for fold in np.unique(folds):
        own = folds == fold
        part = basis[own]
        # Columns are orthonormal over all rows, so those of the other rows have the Gram matrix 1 - part' part.
        coefficients = np.linalg.solve(gram - part.T @ part, products - part.T @ targets[own])
        predicted[own] = part @ coefficients
    return predicted


def scaled_ranks(values: Floats) -> Floats:
    """Return ranks (n, D) on (-1, 1), the same for equal values."""
    from scipy.stats import rankdata

    return np.asarray((2 * rankdata(values, axis=0) - 1) / len(values) - 1)


def scaled_values(values: Floats) -> Floats:
    """Return values (n, D) scaled to [-1, 1]; constants are 0."""
    low, high = values.min(axis=0), values.max(axis=0)
    width = high - low
    return np.asarray(np.where(width > 0, (2 * values - low - high) / np.where(width > 0, width, 1), 0))


def polynomials(values: Floats, degree: int) -> Floats:
    """Return Legendre polynomials (n, D * degree) of degrees 1 to ``degree`` of values (n, D) on [-1, 1]."""
    return np.asarray(legendre.legvander(values, degree)[..., 1:].reshape(len(values), -1))
