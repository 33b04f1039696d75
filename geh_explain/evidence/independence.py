"""Units that are independent of all others, as far as the held-out rows can tell.

The local interaction G of a pair has the mean 0 given x without i, and given x without j, if both units are independent
of all others. Any function that is the sum of one without i and one without j is uncorrelated with it then, and the
whole of G can be tested, interactions of any order included. With dependent units that does not hold. Background values
are quantiles, which must stand for the distribution of a unit.
"""

from __future__ import annotations

import numpy as np

from geh_explain._types import Bools, Floats
from geh_explain.statistics.additive import polynomials, scaled_ranks
from geh_explain.statistics.slopes import orthonormal

#: Functions of a unit that others must not explain, and functions of the others: polynomials of ranks of this degree.
_DEGREE = 3
#: There are at least this many rows for each of the functions of the others.
_ROWS_PER_COLUMN = 5
#: Units with a value in more than this share of the rows are left out.
_MAX_TIED = 0.02
#: So are those whose mean differs from that of their quantiles by more than this number of its standard errors.
_MAX_BIAS = 0.5
#: Level of all tests of one kind together. A unit that is wrongly called dependent costs power only.
_LEVEL = 0.05


def independent_units(values: Floats, n_quantiles: int) -> Bools:
    """Return whether each unit (D,) is independent of all others, given their values (n, D).

    Three kinds of tests look for dependence, each at a level for all units together: correlations of polynomials of the
    ranks of two units; F-tests of those of a unit on those of all others and on products of two of them; and
    Chatterjee's rank correlation of two units, which finds any function of another unit. Units with frequent values,
    or whose mean is not that of ``n_quantiles`` quantiles, are left out. Without rows enough for the F-tests, no unit
    is independent.

    Examples
    --------
    >>> x, y, z = np.random.default_rng(0).normal(size=(3, 1000))
    >>> independent_units(np.stack([x, y, x**2 + z], axis=1), 34)
    array([False,  True, False])
    """
    n_rows, n_units = values.shape
    ranks = scaled_ranks(values)
    columns = (n_units - 1) * _DEGREE + (n_units - 1) * (n_units - 2) // 2
    if n_units < 2 or columns * _ROWS_PER_COLUMN > n_rows:
        return np.zeros(n_units, dtype=bool)
    functions = [_centred_basis(polynomials(column[:, None], _DEGREE)) for column in ranks.T]
    found = np.array([_is_represented(column, n_quantiles) for column in values.T])
    found[found] = _unrelated(values[:, found])
    found &= _uncorrelated(functions)
    for unit in np.flatnonzero(found):
        found[unit] = _unexplained(int(unit), functions, ranks)
    return found


def _is_represented(column: Floats, n_quantiles: int) -> bool:
    """Return whether quantiles stand for the distribution of a unit: no value is frequent, and the means agree."""
    if np.unique(column, return_counts=True)[1].max() > _MAX_TIED * len(column):
        return False
    quantiles = np.quantile(column, (np.arange(n_quantiles) + 0.5) / n_quantiles)
    bias = abs(quantiles.mean() - column.mean()) / (column.std() / len(column) ** 0.5)
    return bool(bias <= _MAX_BIAS)


def _uncorrelated(functions: list[Floats]) -> Bools:
    """Return which units (D,) have functions without a correlation with those of any other unit."""
    from scipy.special import ndtri

    columns = np.hstack(functions)
    units = np.repeat(np.arange(len(functions)), [part.shape[1] for part in functions])
    # Functions have mean 0 and length 1; times the root of the rows, correlations are normal with variance 1.
    found = np.abs(columns.T @ columns) * len(columns) ** 0.5
    found[units[:, None] == units] = 0
    count = max(1, int(np.count_nonzero(found)) // 2)
    strongest = np.zeros(len(functions))
    np.maximum.at(strongest, units, found.max(axis=1, initial=0.0))
    return np.asarray(strongest < ndtri(1 - _LEVEL / (2 * count)))


def _unrelated(values: Floats) -> Bools:
    """Return which units (D,) are neither a function of another unit nor the reverse.

    Chatterjee's rank correlation of y with x is 1 - 3 sum |r_k+1 - r_k| / (n^2 - 1), with the ranks r of y in the order
    of x. Of independent units it is normal with variance 2 / (5 n).
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata

    n_rows, n_units = values.shape
    ranks = rankdata(values, axis=0)
    limit = ndtri(1 - _LEVEL / max(1, n_units * (n_units - 1))) * (2 / (5 * n_rows)) ** 0.5
    related = np.zeros((n_units, n_units), dtype=bool)
    for unit, order in enumerate(np.argsort(values, axis=0, kind="stable").T):
        steps = np.abs(np.diff(ranks[order], axis=0)).sum(axis=0)
        related[unit] = 1 - 3 * steps / (n_rows**2 - 1) > limit
    np.fill_diagonal(related, False)
    return np.asarray(~(related.any(axis=0) | related.any(axis=1)))


def _unexplained(unit: int, functions: list[Floats], ranks: Floats) -> bool:
    """Return whether functions of all other units explain none of the functions of a unit."""
    from scipy.stats import f

    responses = functions[unit]
    columns = [*functions[:unit], *functions[unit + 1 :], _products(np.delete(ranks, unit, axis=1))]
    basis = _centred_basis(np.hstack(columns))
    if not basis.shape[1]:
        return True  # all others are constant
    explained = ((basis.T @ responses) ** 2).sum(axis=0)
    freedom = len(ranks) - 1 - basis.shape[1]
    ratios = explained / basis.shape[1] / ((1 - explained) / freedom)
    smallest = f.sf(ratios, basis.shape[1], freedom).min()
    return bool(smallest > _LEVEL / (len(functions) * _DEGREE))


def _products(ranks: Floats) -> Floats:
    """Return products (n, c) of the ranks of two units and, if there are rows enough, of one squared and another."""
    n_rows, count = ranks.shape
    first, second = np.triu_indices(count, 1)
    products = [ranks[:, first] * ranks[:, second]]
    if (count * _DEGREE + 3 * len(first)) * _ROWS_PER_COLUMN <= n_rows:
        products += [ranks[:, one] ** 2 * ranks[:, other] for one, other in ((first, second), (second, first))]
    return np.hstack(products)


def _centred_basis(columns: Floats) -> Floats:
    """Return an orthonormal basis of ``columns`` (n, c) minus their means."""
    ones = np.full((len(columns), 1), len(columns) ** -0.5)
    return orthonormal(columns, ones)
