"""Units that are independent of all others, as far as the held-out rows can tell.

The local interaction G of a pair has the mean 0 given x without i, and given x without j, if both units are independent
of all others. Any function that is the sum of one without i and one without j is uncorrelated with it then, and the
whole of G can be tested, interactions of any order included. With dependent units that does not hold. Background values
are quantiles, which stand for the distribution of a unit without frequent values.
"""

from __future__ import annotations

import numpy as np

from geh_explain._types import Bools, Floats
from geh_explain.statistics.additive import polynomials, scaled_ranks
from geh_explain.statistics.slopes import orthonormal

#: Functions of a unit that others must not explain, and functions of the others: polynomials of ranks of this degree.
_DEGREE = 3
#: There are at least this many rows for each of the functions of the others.
_ROWS_PER_COLUMN = 10
#: Units with a value in more than this share of the rows are left out.
_MAX_TIED = 0.02
#: Level of all tests of one kind together. A unit that is wrongly called dependent costs power only.
_LEVEL = 0.1


def independent_units(values: Floats) -> Bools:
    """Return whether each unit (D,) is independent of all others, given their values (n, D).

    Polynomials of the ranks of a unit are compared with those of each other unit, by correlations, and regressed on
    those of all others and, if there are rows enough, on products of two of them, by F-tests. A unit is independent if
    neither finds anything, at a level for all units together. Units with frequent values are not; without rows enough
    for polynomials of all others, none is.

    Examples
    --------
    >>> x, y, z = np.random.default_rng(0).normal(size=(3, 1000))
    >>> independent_units(np.stack([x, y, x**2 + z], axis=1))
    array([False,  True, False])
    """
    n_rows, n_units = values.shape
    if n_units < 2 or (n_units - 1) * _DEGREE * _ROWS_PER_COLUMN > n_rows:
        return np.zeros(n_units, dtype=bool)
    ranks = scaled_ranks(values)
    functions = [_centred_basis(polynomials(column[:, None], _DEGREE)) for column in ranks.T]
    found = _uncorrelated(functions)
    for unit in np.flatnonzero(found):
        found[unit] = not _has_frequent_value(values[:, unit]) and _unexplained(int(unit), functions, ranks)
    return found


def _has_frequent_value(column: Floats) -> bool:
    """Return whether one value is that of many rows."""
    return bool(np.unique(column, return_counts=True)[1].max() > _MAX_TIED * len(column))


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


def _unexplained(unit: int, functions: list[Floats], ranks: Floats) -> bool:
    """Return whether functions of all other units explain none of the functions of a unit."""
    from scipy.stats import f

    responses = functions[unit]
    others = np.delete(ranks, unit, axis=1)
    columns = [*functions[:unit], *functions[unit + 1 :], _products(others)]
    basis = _centred_basis(np.hstack(columns))
    if not basis.shape[1]:
        return True  # all others are constant
    explained = ((basis.T @ responses) ** 2).sum(axis=0)
    freedom = len(ranks) - 1 - basis.shape[1]
    ratios = explained / basis.shape[1] / ((1 - explained) / freedom)
    smallest = f.sf(ratios, basis.shape[1], freedom).min()
    return bool(smallest > _LEVEL / (len(functions) * _DEGREE))


def _products(ranks: Floats) -> Floats:
    """Return products (n, c) of the ranks of two units; none if there are too few rows for all of them."""
    n_rows, count = ranks.shape
    first, second = np.triu_indices(count, 1)
    if (count * _DEGREE + len(first)) * _ROWS_PER_COLUMN > n_rows:
        return np.empty((n_rows, 0))
    return np.asarray(ranks[:, first] * ranks[:, second])


def _centred_basis(columns: Floats) -> Floats:
    """Return an orthonormal basis of ``columns`` (n, c) minus their means."""
    ones = np.full((len(columns), 1), len(columns) ** -0.5)
    return orthonormal(columns, ones)
