"""The test of one pair after the other: regression of residuals, or the score test of a logistic regression."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from geh_explain._types import Floats
from geh_explain.evidence.covariates import Covariates
from geh_explain.evidence.explained import Explained, GroupMeans
from geh_explain.evidence.independence import independent_units
from geh_explain.evidence.nuisance import (
    Degrees,
    Nuisance,
    allows_members,
    choose_degrees,
    choose_with_covariates,
    max_predictors,
)
from geh_explain.evidence.pair_functions import (
    BACKGROUND_VALUES_IF_INDEPENDENT,
    HeldOutFunctions,
    MeanInteractions,
    Pair,
)
from geh_explain.evidence.third_order import ThirdOrderShares
from geh_explain.evidence.true_scores import UNKNOWN, TrueScore, TrueScores
from geh_explain.statistics.combination import cauchy_combination
from geh_explain.statistics.logistic import fit_logistic, sigmoid
from geh_explain.statistics.slopes import NO_DIRECTION, UNTESTABLE, Slope, orthonormal, project_off, slope_test

#: Directions of which projection leaves less than this share of the variance are not tested: other units determine what
#: the interaction does, and errors of the nuisance columns would decide. The share grows, up to a limit, where other
#: units leave less of the variance of one of the two; it is larger still where they determine it, because any function
#: of both can then be written in another way.
_LOST = 0.003
_MAX_LOST = 0.03
_DETERMINED = 0.01
_LOST_IF_DETERMINED = 0.1
#: A direction of which less than this is left is a sum of nuisance columns at these rows, as with units of few values.
_NOTHING = 1e-8
#: Units have few values if there are this many rows for each of them.
_ROWS_PER_LEVEL = 5
#: Where conditional means are among the nuisance columns, their errors are smaller, and so is the share.
_LOST_BESIDE_MEANS = 1 / 3
#: Products of three units, and what they leave, are tested if they have at least this share of the variance that
#: projection leaves of the network's interaction.
_MIN_THIRD_ORDER = 0.2
#: Means over background rows and at all rows differ in size by this factor at most, or are not comparable.
_MAX_FACTOR = 5.0
#: Products of three units that are linear combinations of others to this relative size share their coefficients.
_RANK_TOLERANCE = 1e-3
#: Precision of a prior that is flat, per row and for columns of variance 1.
_FLAT = 1e-9
#: Precision of the prior of main effects, whose columns have variance 1.
_MAIN_EFFECT_PRECISION = 1.0
#: Weights of rows whose class is certain are set to this.
_MIN_WEIGHT = 1e-4


@dataclass(frozen=True)
class ThirdOrder:
    """A pair with two directions, the mean interaction and products of three units.

    ``share`` is the weight of the slope of the second; ``p_mean`` and ``p_third`` are the p-values of both.
    """

    pair: Pair
    share: float
    p_mean: float
    p_third: float


class _Direction(NamedTuple):
    """A direction (n,) of a test, and the sum of squares that nuisance columns leave of it."""

    values: Floats
    left: float


class PairTests:
    """The test of one pair after the other, with what all pairs share.

    Parameters
    ----------
    functions
        Evaluates the network at the held-out rows.
    labels, outputs
        Labels and outputs of the network (n,) at these rows.
    link
        ``"identity"`` or ``"logit"``.
    explained
        The points whose true scores are estimated, for the identity link, or what is known without them; None if
        there is no explanation.
    n_counted
        Number of rows that decides how rich the nuisance columns are; fewer than all where one class is rare, or where
        rows have case weights.
    case_weights
        Weights (n,) of the rows, with mean 1; None for 1.

    Attributes
    ----------
    covariates
        What the rows contain beside the units, as far as the number of rows allows.
    lost, determined
        Pairs so far whose interaction can hardly be told from effects of other units, and those whose interaction is
        nothing else at these rows.
    independent
        Whether each unit (D,) is independent of all others, so that the whole of the network's interaction is tested.
    third_order
        Pairs so far with a test of products of three units beside that of the mean interaction.
    """

    def __init__(
        self,
        functions: HeldOutFunctions,
        labels: Floats,
        outputs: Floats,
        link: str,
        explained: Explained | GroupMeans | None,
        n_counted: int,
        case_weights: Floats | None = None,
    ) -> None:
        self._weighted = case_weights is not None
        self._case_weights = np.ones(len(labels)) if case_weights is None else case_weights
        self._labels = labels
        self._outputs = outputs
        self._logit = link == "logit"
        # Smaller interactions are rounding errors of differences of outputs.
        self._rounding = functions.rounding * float(np.abs(outputs).max())
        n_units = functions.values.shape[1]
        self.covariates, self._degrees = _with_degrees(functions.covariates, n_counted, n_units)
        covariates = self.covariates if functions.covariates.count else None
        self.lost: list[Pair] = []
        self.determined: list[Pair] = []
        self.third_order: list[ThirdOrder] = []
        self._levels = _Levels(functions.values)
        self._root_weights = np.sqrt(self._case_weights)
        self._nuisance = Nuisance(functions.values, self._degrees, self._root_weights, covariates)
        self._main_effects = np.zeros(len(labels))
        if self._logit:
            common = self._nuisance.common / self._root_weights[:, None]
            probability, self._main_effects = _fit_main_effects(outputs, labels, common, self._case_weights)
            # All pairs share the weights of the whole network, so that the common columns are computed once.
            variance = np.maximum(probability * (1 - probability), _MIN_WEIGHT)
            self._root_weights = np.sqrt(self._case_weights * variance)
            self._nuisance = Nuisance(functions.values, self._degrees, self._root_weights, covariates)
        self._true_scores = None
        if isinstance(explained, Explained) and not self._logit:
            self._true_scores = TrueScores(
                functions.values, labels - outputs, self._nuisance.common, explained, self._root_weights
            )
        self._explained = explained
        # Log-odds are no sums of the effects of labels, background values have no case weights, and draws share them.
        simple = functions.n_functions == 1 and not (self._logit or self._weighted or functions.covariates.count)
        self.independent = np.zeros(n_units, dtype=bool)
        if simple:
            self.independent = independent_units(functions.values, BACKGROUND_VALUES_IF_INDEPENDENT)
        self._third_order_shares = (
            ThirdOrderShares(functions.values, explained) if isinstance(explained, Explained) else None
        )

    def pair(self, pair: Pair, index: int, without: Floats, interactions: MeanInteractions) -> tuple[Slope, TrueScore]:
        """Test one pair.

        Parameters
        ----------
        pair, index
            Units i and j, and the index of the pair.
        without
            Mean outputs (5, n) with background values, see :meth:`HeldOutFunctions.without`.
        interactions
            Mean interactions of this pair and of others.
        """
        mean = interactions.at_rows(pair)
        offset = without[0] + without[1] - without[2]
        local = self._outputs - offset
        beside = interactions.beside(pair, self._rounding) if self._degrees.others else ()
        means = self._nuisance.conditional_means(*pair, partial(interactions.at_values, pair))
        columns = [without[:3].T, *(column[:, None] for column in beside), means]
        if self.independent[list(pair)].all():
            columns.append(self._nuisance.conditional_slopes(*pair, without[3:]))
        bases = self._nuisance.common, self._nuisance.pair(*pair, np.concatenate(columns, axis=1))
        true_score = UNKNOWN
        directions, higher, left = self._directions(pair, mean, local, bases)
        determined = left is not None and (left <= _NOTHING or self._levels.determine(mean))
        if left is not None:
            (self.determined if determined else self.lost).append(pair)
        elif self._true_scores is not None:
            interaction = local if np.abs(local).max() > self._rounding else None
            true_score = self._true_scores.estimate(pair, index, interaction, bases[1])
        tests = [self._test(direction.values, offset, bases) for direction in directions]
        if len(tests) == 2:
            share = self._third_order_share(pair, index, local - mean, directions, bases)
            self.third_order.append(ThirdOrder(pair, share, tests[0].p_value, tests[1].p_value))
            slope = _combine(tests, share)
        elif tests:
            slope = tests[0]
        else:
            slope = NO_DIRECTION if left is None or determined else UNTESTABLE
        if higher is None:
            return slope, true_score
        test = self._test(higher.values, offset, bases)
        if not tests:
            return test, true_score
        p_value = float(cauchy_combination([test.p_value for test in (*tests, test)]))
        return slope._replace(p_value=p_value), true_score

    def _directions(
        self, pair: Pair, mean: Floats, local: Floats, bases: tuple[Floats, Floats]
    ) -> tuple[list[_Direction], _Direction | None, float | None]:
        """Return the directions to test.

        They are the mean interaction and, where it has a considerable part of the variance, what products of three
        units explain of the rest: an interaction whose sign depends on a third unit has the mean 0. Of two independent
        units what these leave is another one, if it is considerable: interactions of higher order. If the network has
        an interaction, and nuisance columns leave too little of it, there are none, and the share that is left is
        returned too; else None.
        """
        root_weights = self._root_weights
        products = orthonormal(project_off(self._nuisance.triple_products(*pair) * root_weights[:, None], *bases))
        rest = project_off((local - mean) * root_weights, *bases)
        third = products @ (products.T @ rest)
        higher = (rest - third) / root_weights
        third = third / root_weights
        (of_mean, left_of_mean), (_, left_of_third), (_, left_of_higher), (of_local, left_of_local) = (
            self._variances(direction, bases) for direction in (mean, third, higher, local)
        )
        # Sums of squares of rounding errors.
        rounding = self._rounding**2 * len(local)
        has_mean = np.abs(mean).max() > self._rounding
        share = _lost_share(self._nuisance.unexplained(*pair), self.covariates.count > 0)
        considerable = max(rounding, share * of_local, _MIN_THIRD_ORDER * left_of_local)
        directions = []
        if has_mean and left_of_mean > share * of_mean:
            directions.append(_Direction(mean, left_of_mean))
        if left_of_third > considerable:
            # The size of the mean over few background rows is uncertain then; that at all rows is better known.
            directions = [self._with_size_of(local, direction, bases) for direction in directions]
            directions.append(_Direction(third, left_of_third))
        if self.independent[list(pair)].all() and left_of_higher > considerable:
            return directions, _Direction(higher, left_of_higher), None
        if not directions and (has_mean or left_of_local > rounding):
            left = ((left_of_mean, of_mean), (left_of_local, of_local))
            return [], None, max(part / of if of else 0.0 for part, of in left)
        return directions, None, None

    def _with_size_of(self, local: Floats, direction: _Direction, bases: tuple[Floats, Floats]) -> _Direction:
        """Return a direction times its coefficient in the network's interaction (n,), if that is of a similar size."""
        remainders = (project_off(values * self._root_weights, *bases) for values in (direction.values, local))
        own, of_local = remainders
        factor = float(own @ of_local) / direction.left
        if not 1 / _MAX_FACTOR < factor < _MAX_FACTOR:
            return direction
        return _Direction(factor * direction.values, factor**2 * direction.left)

    def _third_order_share(
        self, pair: Pair, index: int, rest: Floats, directions: list[_Direction], bases: tuple[Floats, Floats]
    ) -> float:
        """Return the weight of the slope of products of three units beside that of the mean interaction.

        It is their share of the score at the explained points; without these, what the mean over all points does not
        explain of the groups' scores; without an explanation, the share of the variance that nuisance columns leave.
        ``rest`` (n,) is the network's interaction without its mean.
        """
        if isinstance(self._explained, GroupMeans):
            return self._explained.third_order_share(index)
        if self._third_order_shares is None:
            of_mean, of_third = (direction.left for direction in directions)
            return of_third / (of_mean + of_third)
        weights = self._root_weights
        products = project_off(self._nuisance.triple_products(*pair) * weights[:, None], *bases)
        response = project_off(rest * weights, *bases)
        coefficients = np.linalg.lstsq(products, response, rcond=_RANK_TOLERANCE)[0]
        return self._third_order_shares.of_pair(pair, index, np.asarray(coefficients, dtype=np.float64))

    def _variances(self, direction: Floats, bases: tuple[Floats, Floats]) -> tuple[float, float]:
        """Return the weighted sum of squares of a direction around its mean, and what nuisance columns leave of it."""
        weights = self._root_weights**2
        total = float(weights @ (direction - np.average(direction, weights=weights)) ** 2)
        remainder = project_off(direction * self._root_weights, *bases)
        return total, float(remainder @ remainder)

    def _test(self, direction: Floats, offset: Floats, bases: tuple[Floats, Floats]) -> Slope:
        """Return the slope of the labels' residuals on one direction."""
        test = partial(slope_test, case_weights=self._weighted)
        if not self._logit:
            return test(direction * self._root_weights, (self._labels - offset) * self._root_weights, *bases)
        log_odds = _calibrate(offset, self._labels, self._case_weights, self._main_effects)
        probability = sigmoid(log_odds + self._main_effects)
        residual = self._case_weights * (self._labels - probability) / self._root_weights
        score = test(direction * self._root_weights, residual, *bases)
        return self._likely_slope(score, direction, offset, bases)

    def _likely_slope(self, score: Slope, direction: Floats, offset: Floats, bases: tuple[Floats, Floats]) -> Slope:
        """Return the p-value of a score test with the most likely slope and its robust standard error.

        The score test is a first step from slope 0, whose size is not that of a large effect on the log-odds. The
        likelihood is maximised over the slope beside the calibration and the nuisance part of the direction.
        """
        remainder = project_off(direction * self._root_weights, *bases) / self._root_weights
        columns = np.column_stack([remainder, direction - remainder, np.ones_like(direction), offset - offset.mean()])
        scale = np.maximum(np.sqrt(np.mean(columns**2, axis=0)), 1e-300)
        columns /= scale
        flat, weights = _FLAT * len(direction), self._case_weights
        coefficients = fit_logistic(columns, self._labels, self._main_effects, flat, case_weights=weights)
        probability = sigmoid(columns @ coefficients + self._main_effects)
        curvature = (columns * (weights * probability * (1 - probability))[:, None]).T @ columns
        curvature += flat * np.eye(len(scale))
        influence = np.linalg.solve(curvature, (columns * (weights * (self._labels - probability))[:, None]).T)[0]
        return Slope(float(coefficients[0] / scale[0]), float(np.sqrt(influence @ influence) / scale[0]), score.p_value)


class _Levels:
    """Units with few values, each of them in several rows.

    >>> levels = _Levels(np.repeat([[0.0], [1.0], [2.0]], 10, axis=0))
    >>> levels.determine(np.repeat([0.3, 0.2, 0.7], 10)), levels.determine(np.arange(30.0))
    (True, False)
    """

    def __init__(self, values: Floats) -> None:
        codes = (np.unique(column, return_inverse=True)[1] for column in values.T)
        self._codes = [code for code in codes if (code.max() + 1) * _ROWS_PER_LEVEL <= len(code)]

    def determine(self, function: Floats) -> bool:
        """Return whether a function (n,) of the rows takes one value for each value of one of these units."""
        total = float(((function - function.mean()) ** 2).sum())
        for code in self._codes:
            means = np.bincount(code, weights=function) / np.bincount(code)
            if float(((function - means[code]) ** 2).sum()) <= _NOTHING * total:
                return True
        return False


def _combine(tests: list[Slope], third_order_share: float) -> Slope:
    """Return the slope of a pair with two directions: the weighted mean of both, and the p-value of both together.

    >>> _combine([Slope(1.0, 0.3, 0.01), Slope(0.0, 0.3, 0.5)], 0.25).slope
    0.75
    """
    weights = np.array([1 - third_order_share, third_order_share])
    slope = float(weights @ [test.slope for test in tests])
    se = float(np.hypot(*(weights * [test.se for test in tests])))
    return Slope(slope, se, float(cauchy_combination([test.p_value for test in tests])))


def _with_degrees(covariates: Covariates, n_rows: int, n_units: int) -> tuple[Covariates, Degrees]:
    """Return the covariates for which there are rows enough, and how rich the nuisance columns are."""
    if not covariates.count:
        return covariates, choose_degrees(n_rows, n_units)
    degrees, count = choose_with_covariates(n_rows, n_units, covariates.count)
    covariates = covariates.reduced(count, max(0, max_predictors(n_rows) - count))
    if not allows_members(degrees, n_rows, n_units, covariates.count, covariates.members.shape[1]):
        covariates = replace(covariates, members=covariates.members[:, :0])
    return covariates, degrees


def _lost_share(unexplained: float, beside_means: bool = False) -> float:
    """Return the share of a direction that nuisance columns must leave.

    ``unexplained`` is what others leave of a unit; ``beside_means`` says whether conditional means of the interaction
    are among the columns.

    >>> [_lost_share(unexplained) for unexplained in (1.0, 0.2, 0.05, 0.001)]
    [0.003, 0.015, 0.03, 0.1]
    """
    if unexplained < _DETERMINED:
        return _LOST_IF_DETERMINED
    return min(_MAX_LOST, _LOST / unexplained) * (_LOST_BESIDE_MEANS if beside_means else 1)


def _calibrate(log_odds: Floats, labels: Floats, case_weights: Floats, known: Floats | float = 0.0) -> Floats:
    """Return c_0 + c_1 log_odds with the most likely c_0 and c_1, beside ``known`` log-odds.

    A network that is too confident on new rows has c_1 < 1.
    """
    spread = float(log_odds.std()) or 1.0
    columns = np.column_stack([np.ones_like(log_odds), (log_odds - log_odds.mean()) / spread])
    flat, known = _FLAT * len(labels), log_odds * 0 + known
    return np.asarray(columns @ fit_logistic(columns, labels, known, flat, case_weights=case_weights))


def _fit_main_effects(log_odds: Floats, labels: Floats, common: Floats, case_weights: Floats) -> tuple[Floats, Floats]:
    """Return probabilities (n,) of the calibrated network with corrected main effects, and these corrections (n,).

    ``common`` are functions (n, c) of single units, orthonormal with the ``case_weights`` (n,). Their coefficients have
    a normal prior, in units of log odds, so that classes that can be separated have finite ones.
    """
    scaled = common * np.sqrt(len(labels))
    columns = np.column_stack([_calibrate(log_odds, labels, case_weights), scaled])
    start = np.zeros(columns.shape[1])
    start[0] = 1.0
    known = np.zeros_like(log_odds)
    coefficients = fit_logistic(columns, labels, known, _MAIN_EFFECT_PRECISION, start, case_weights)
    return sigmoid(columns @ coefficients), np.asarray(scaled @ coefficients[1:])
