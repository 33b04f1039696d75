"""Nuisance columns of the held-out test: everything that a pair may do without interacting.

Under the hypothesis for units i and j the labels' mean is a(x without i) + b(x without j). A direction h is projected
off columns that span such functions, so that errors of the network in main effects and in other pairs do not pass for
an interaction of i and j. Two kinds of columns do this:

- for all pairs: polynomials of the ranks and of the values of every unit and covariate
  (:mod:`~geh_explain.evidence.covariates`), and with many rows also indicators of fine quantile bins of them;
- for one pair: the network's own predictions without i, without j and without both, and its interactions of i or j with
  other units; indicators of quantile bins of i and of j, for main effects with steps; products of polynomials of i, j
  and two *indices*, the linear predictions of i and of j from all other units; and, if there are rows enough, products
  of i and of j with one and with two other units.

What remains of h must be orthogonal to all functions of x without i and of x without j, so E[h | x without i] and
E[h | x without j] must be in the span. If units and covariates have a Gaussian copula, the first one depends on x_j and
the indices alone, the second one on x_i and the indices. So the indices are enough then, for any number of units.
Products with other units are for dependence of other kinds. Covariates count as other units.

Covariates can explain nearly all of a unit, as the differences between members of a group or pixels beside the mean of
their patch do. Little of h remains then, and errors of the polynomials would be as large. So where there are
covariates, both conditional means are computed (:mod:`~geh_explain.evidence.copula`) and are columns themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from geh_explain._types import Floats
from geh_explain.errors import GEHValueError
from geh_explain.evidence.copula import GaussianCopula, PairFunction
from geh_explain.evidence.covariates import Covariates
from geh_explain.statistics.additive import polynomials, scaled_ranks
from geh_explain.statistics.slopes import orthonormal

#: Nuisance columns may be this share of the rows; with more of them the test is not reliable. Columns that cost power
#: and are needed for unusual dependence only may be a smaller share.
_MAX_SHARE = 0.3
_MAX_SHARE_OF_MANY = 0.2
#: More columns than this take too much time and memory; they are needed only where the poorest columns are more.
_MAX_COLUMNS = 1500
#: Fine bins of every unit: one for so many rows, up to a largest number, and none if they are fewer than a smallest.
_ROWS_PER_FINE_BIN = 150
_FINE_BINS = (8, 64)
#: Added to the diagonal of the correlation matrix, so that units that are copies of others have finite predictions.
_RIDGE = 1e-3
#: Decimals of predictions of normal scores; those beyond are rounding errors.
_DECIMALS = 9
#: Values beyond these quantiles are set to them before polynomials of values are taken.
_VALUE_QUANTILES = (0.01, 0.99)


@dataclass(frozen=True)
class Degrees:
    """How rich the nuisance columns are.

    ``ranks`` and ``values`` are degrees of polynomials of every unit, ``indices`` the degree of both factors of
    products with an index, ``bins`` the number of quantile bins of i and j. ``others`` says what there is of i and j
    with other units: 0 nothing, 1 the network's interactions and products of values, 2 also products of polynomials of
    ranks, 3 also products with two other units. ``fine_bins`` is the number of quantile bins of every unit, 0 for none.
    ``covariates`` is the degree of polynomials of the ranks of every covariate; None treats covariates like units.
    """

    ranks: int
    values: int
    indices: int
    bins: int
    others: int = 0
    fine_bins: int = 0
    covariates: int | None = None

    def n_columns(self, n_units: int, n_covariates: int = 0) -> int:
        """Return the number of columns of one pair's test."""
        if n_covariates and self.covariates is None:
            return self.n_columns(n_units + n_covariates) + _CONDITIONAL_MEANS
        columns = 4 + n_units * (self.ranks + self.values + self.fine_bins)
        columns += 2 * self.bins + self.indices * (5 * self.indices + 2)
        if n_covariates:
            # Their main effects, and products of values with i and with j.
            columns += _CONDITIONAL_MEANS + n_covariates * ((self.covariates or 0) + (2 if self.others else 0))
        rest = n_units - 2
        columns += 4 * rest if self.others else 0
        columns += 2 * _OTHER_DEGREE**2 * rest if self.others > 1 else 0
        return columns + (rest * (rest - 1) if self.others > 2 else 0)


#: Columns of conditional means of a pair's interaction, where there are covariates.
_CONDITIONAL_MEANS = 3
#: Degree of both factors of products with one other unit.
_OTHER_DEGREE = 2
#: From rich to poor; the first one is taken whose columns are few enough for the rows.
_LADDER = (
    Degrees(ranks=5, values=3, indices=3, bins=16, others=3),
    Degrees(ranks=5, values=3, indices=3, bins=16, others=2),
    Degrees(ranks=4, values=2, indices=2, bins=8, others=2),
    Degrees(ranks=5, values=3, indices=3, bins=16, others=1),
    Degrees(ranks=5, values=3, indices=3, bins=8, others=1),
    Degrees(ranks=4, values=2, indices=3, bins=8, others=1),
    Degrees(ranks=3, values=2, indices=2, bins=5, others=1),
    Degrees(ranks=3, values=0, indices=2, bins=5, others=1),
    Degrees(ranks=3, values=0, indices=2, bins=5),
    Degrees(ranks=1, values=0, indices=2, bins=5),
)
#: Columns from this one on have products of values with other units at most. Covariates have poorer columns of their
#: own there, so that main effects of the units keep theirs.
_POORER_COVARIATES = 3
_COVARIATE_DEGREES = (3, 2, 1)
#: Covariates that are retained at least, before columns of the units become poorer.
_MIN_COVARIATES = 10
#: Units are predicted from at most so many covariates for each row.
_MAX_PREDICTORS = 0.2


def choose_degrees(n_rows: int, n_units: int) -> Degrees:
    """Return the richest columns that the number of rows allows; raises if there are too few rows.

    >>> choose_degrees(3000, 8).bins, choose_degrees(300, 8).bins
    (16, 5)
    """
    for degrees in _LADDER:
        share = _MAX_SHARE_OF_MANY if degrees.others > 1 else _MAX_SHARE
        poorest = degrees is _LADDER[-1]
        if degrees.n_columns(n_units) <= min(share * n_rows, np.inf if poorest else _MAX_COLUMNS):
            return replace(degrees, fine_bins=_fine_bins(n_rows, n_units, degrees.n_columns(n_units)))
    raise GEHValueError(
        f"evidence: {n_rows} held-out rows are too few to test pairs of {n_units} units; at least "
        f"{rows_needed(n_units)} are needed, because the effects of all units are estimated beside the pair's. Give "
        "more rows, or fewer units: units=explainer.screen(inputs) finds those that matter."
    )


def rows_needed(n_units: int) -> int:
    """Return the smallest number of rows with which pairs are tested."""
    return int(np.ceil(_LADDER[-1].n_columns(n_units) / _MAX_SHARE))


def allows_test(n_rows: int, n_units: int) -> bool:
    """Return whether there are rows enough for the poorest columns.

    >>> allows_test(1000, 8), allows_test(40, 8)
    (True, False)
    """
    return n_rows >= rows_needed(n_units)


def _fine_bins(n_rows: int, n_units: int, n_columns: int) -> int:
    """Return the number of bins of every unit beside other nuisance columns."""
    allowed = int(min(_MAX_SHARE_OF_MANY * n_rows, _MAX_COLUMNS) - n_columns) // n_units
    smallest, largest = _FINE_BINS
    count = min(n_rows // _ROWS_PER_FINE_BIN, largest, allowed)
    return count if count >= smallest else 0


def choose_with_covariates(n_rows: int, n_units: int, n_covariates: int) -> tuple[Degrees, int]:
    """Return the columns where rows have covariates, and how many of these, or of their components, are accounted for.

    Main effects of the units and what one unit does beside the other come first: with poor columns of these, curved
    main effects pass for interactions of units that depend on each other.

    >>> choose_with_covariates(3000, 4, 4)[0].others, choose_with_covariates(1000, 4, 60)
    (3, (Degrees(ranks=5, values=3, indices=3, bins=8, others=1, fine_bins=0, covariates=1), 60))
    """
    limit = min(_MAX_SHARE * n_rows, _MAX_COLUMNS)
    for degrees in _LADDER[: _POORER_COVARIATES + 1]:
        share = _MAX_SHARE_OF_MANY if degrees.others > 1 else _MAX_SHARE
        count = degrees.n_columns(n_units, n_covariates)
        if count <= min(share * n_rows, _MAX_COLUMNS):
            return replace(degrees, fine_bins=_fine_bins(n_rows, n_units + n_covariates, count)), n_covariates
    for degree in _COVARIATE_DEGREES:
        for degrees in _LADDER[_POORER_COVARIATES : _POORER_COVARIATES + 2]:
            degrees = replace(degrees, covariates=degree)
            if degrees.n_columns(n_units, n_covariates) <= limit:
                return degrees, n_covariates
    for degrees in _LADDER[_POORER_COVARIATES + 1 :]:
        degrees = replace(degrees, covariates=_COVARIATE_DEGREES[-1])
        per_covariate = degrees.n_columns(n_units, 2) - degrees.n_columns(n_units, 1)
        count = 1 + int(limit - degrees.n_columns(n_units, 1)) // per_covariate
        if count >= min(_MIN_COVARIATES, n_covariates):
            return degrees, min(count, n_covariates)
    return replace(_LADDER[-1], covariates=_COVARIATE_DEGREES[-1]), max(0, min(count, n_covariates))


def max_predictors(n_rows: int) -> int:
    """Return from how many covariates units are predicted at most."""
    return int(_MAX_PREDICTORS * n_rows)


def allows_members(degrees: Degrees, n_rows: int, n_units: int, n_covariates: int, n_members: int) -> bool:
    """Return whether the rows allow main effects of members beside all other columns."""
    return degrees.n_columns(n_units, n_covariates) + degrees.ranks * n_members <= _MAX_SHARE * n_rows


class Nuisance:
    """Nuisance columns of all pairs of D units.

    Parameters
    ----------
    values
        Values (n, D) of the units in the held-out rows.
    degrees
        How rich the columns are, see :func:`choose_degrees`.
    root_weights
        Roots (n,) of the rows' weights, by which all columns are multiplied.
    covariates
        What rows contain beside the units, as many columns as :func:`choose_with_covariates` says.

    Attributes
    ----------
    common
        Orthonormal columns (n, c) of all pairs.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.random.default_rng(0).normal(size=(500, 4))
    >>> nuisance = Nuisance(values, choose_degrees(500, 4), np.ones(500))
    >>> own = nuisance.pair(0, 1, functions=values[:, 2:])
    >>> bool(np.abs(nuisance.common.T @ own).max() < 1e-8)
    True
    """

    def __init__(
        self, values: Floats, degrees: Degrees, root_weights: Floats, covariates: Covariates | None = None
    ) -> None:
        self._degrees = degrees
        self._root_weights = root_weights[:, None]
        n_units = values.shape[1]
        everything = values if covariates is None else np.concatenate([values, covariates.columns], axis=1)
        self._ranks = scaled_ranks(everything)
        self._bounded = bounded(everything, *value_bounds(everything))
        # Columns with the degrees of units; covariates may have poorer ones.
        rich = slice(None) if degrees.covariates is None else slice(n_units)
        columns = [np.ones((len(values), 1)), polynomials(self._ranks[:, rich], degrees.ranks)]
        if degrees.values:
            columns.append(polynomials(self._bounded[:, rich], degrees.values))
        if degrees.covariates is not None:
            columns.append(polynomials(self._ranks[:, n_units:], degrees.covariates))
        if covariates is not None and covariates.members.size:
            columns.append(polynomials(scaled_ranks(covariates.members), degrees.ranks))
        if degrees.fine_bins:
            columns += [self._bins(unit, degrees.fine_bins) for unit in range(everything.shape[1])]
        self.common = orthonormal(np.concatenate(columns, axis=1) * self._root_weights)
        self._scores = _normal_scores(self._ranks)
        if covariates is not None and covariates.further is not None:
            self._scores = np.concatenate([self._scores, _normal_scores(scaled_ranks(covariates.further))], axis=1)
        correlations = self._scores.T @ self._scores / len(values)
        self._precision: Floats = np.asarray(
            np.linalg.inv(correlations + _RIDGE * np.eye(len(correlations))), dtype=np.float64
        )
        self._copula = None if covariates is None else GaussianCopula(values, self._scores, self._precision)

    def pair(self, i: int, j: int, functions: Floats) -> Floats:
        """Return orthonormal columns (n, e) of the pair i, j, orthogonal to :attr:`common`.

        ``functions`` (n, k) are the network's own functions of x without i and of x without j.
        """
        degree = self._degrees.indices
        own = [polynomials(self._ranks[:, [unit]], degree) for unit in (i, j)]
        predicted = [polynomials(column[:, None], degree) for column in scaled_ranks(self._indices(i, j)).T]
        products = [_products(first, second) for first in own for second in predicted]
        columns = [
            functions,
            *(self._bins(unit, self._degrees.bins) for unit in (i, j)),
            *predicted,
            _products(*predicted),
            *products,
            *self._with_others(i, j),
        ]
        return orthonormal(np.concatenate(columns, axis=1) * self._root_weights, beside=self.common)

    def conditional_slopes(self, i: int, j: int, slopes: Floats) -> Floats:
        """Return columns (n, c) for dependence of i or j on other units that was not found.

        With ``slopes`` (2, n) of the interaction over i and over j, functions of x without i and without j. If the mean
        of unit i given all others is linear in their ranks, that of the interaction is the product of both, about.
        """
        others = [np.delete(self._ranks, unit, axis=1) for unit in (i, j)]
        columns = [
            slope[:, None] * np.column_stack([np.ones(len(slope)), ranks])
            for slope, ranks in zip(slopes, others, strict=True)
        ]
        return np.concatenate(columns, axis=1)

    def conditional_means(self, i: int, j: int, function: PairFunction) -> Floats:
        """Return conditional means (n, 3) of a function of i and j, see :mod:`~geh_explain.evidence.copula`.

        Without covariates there are none of them, (n, 0).
        """
        if self._copula is None:
            return self._ranks[:, :0]
        return self._copula.conditional_means(i, j, function)

    def unexplained(self, i: int, j: int) -> float:
        """Return the smaller share of the variances of i and j that all other units and covariates leave.

        Explained is what linear functions of normal scores explain.
        """
        # The inverse of a diagonal entry of the precision matrix is the variance that others do not explain.
        return float(1 / self._precision[[i, j], [i, j]].max())

    def triple_products(self, i: int, j: int) -> Floats:
        """Return the products (n, N - 2) of i, j and each other unit or covariate, with mean 0.

        Where there are covariates, i and j enter minus their conditional means given all others, so that products with
        functions of others are no part of these.
        """
        others = [unit for unit in range(self._bounded.shape[1]) if unit not in (i, j)]
        first, second = self._bounded[:, [i]], self._bounded[:, [j]]
        if self._copula is not None:
            first = self._copula.centred(i, j, first[:, 0])[:, None]
            second = self._copula.centred(j, i, second[:, 0])[:, None]
        products = first * second * self._bounded[:, others]
        return np.asarray(products - products.mean(axis=0))

    def _with_others(self, i: int, j: int) -> Iterator[Floats]:
        """Yield products of i and of j with one other unit, and with two."""
        others = [unit for unit in range(self._ranks.shape[1]) if unit not in (i, j)]
        if self._degrees.others:
            yield from (self._bounded[:, [unit]] * self._bounded[:, others] for unit in (i, j))
        if self._degrees.others > 1:
            own = [polynomials(self._ranks[:, [unit]], _OTHER_DEGREE) for unit in (i, j)]
            rest = polynomials(self._ranks[:, others], _OTHER_DEGREE)
            yield from (_products(first, rest) for first in own)
        if self._degrees.others > 2:
            first, second = np.triu_indices(len(others), 1)
            pairs = self._ranks[:, others][:, first] * self._ranks[:, others][:, second]
            yield from (self._ranks[:, [unit]] * pairs for unit in (i, j))

    def _indices(self, i: int, j: int) -> Floats:
        """Return the linear predictions (n, 2) of the normal scores of i and j from all other units.

        With the precision matrix Q of the scores z, the prediction of z_A from the others is z_A - Q_AA^-1 Q_A z.
        """
        pair = [i, j]
        rows = self._precision[pair]
        predictions = self._scores[:, pair] - np.linalg.solve(rows[:, pair], rows @ self._scores.T).T
        # Predictions that are equal but for rounding errors, as those of units with few values, must have equal ranks.
        return np.asarray(np.round(predictions, _DECIMALS), dtype=np.float64)

    def _bins(self, unit: int, count: int) -> Floats:
        """Return indicators (n, count) of equally filled bins of a unit."""
        places = np.minimum(((self._ranks[:, unit] + 1) / 2 * count).astype(int), count - 1)
        return np.asarray(np.eye(count)[places])


def _normal_scores(ranks: Floats) -> Floats:
    """Return the normal quantiles (n, D) of ranks on (-1, 1)."""
    from scipy.special import ndtri

    return np.asarray(ndtri((ranks + 1) / 2))


def value_bounds(values: Floats) -> tuple[Floats, Floats]:
    """Return the outer quantiles (D,) of values (n, D), between which polynomials of values are taken."""
    low, high = np.quantile(values, _VALUE_QUANTILES, axis=0)
    return low, high


def bounded(values: Floats, low: Floats, high: Floats) -> Floats:
    """Return values (n, D) on [-1, 1], those beyond ``low`` and ``high`` (D,) set to -1 and 1; constants are 0."""
    width = high - low
    scaled = (2 * values - low - high) / np.where(width > 0, width, 1)
    return np.asarray(np.where(width > 0, np.clip(scaled, -1, 1), 0))


def _products(first: Floats, second: Floats) -> Floats:
    """Return the products (n, a * b) of all columns of ``first`` (n, a) and ``second`` (n, b)."""
    return np.asarray((first[:, :, None] * second[:, None, :]).reshape(len(first), -1))
