"""The held-out test of all pairs: do labels that training never used support the network's interactions?

The hypothesis for units i and j is that they do not interact in the world: E[y | x] = a(x without i) + b(x without j).
With the network's local and mean interactions G and h (:mod:`~geh_explain.evidence.pair_functions`), the residual
r = y - (g - G) has a mean of the same form under the hypothesis. Its slope on h, beside nuisance columns
(:mod:`~geh_explain.evidence.nuisance`), is then 0; it is 1 where the labels contain the interaction at the network's
size. The network is a fixed function here, so nothing is assumed about it or about how it was trained, except that the
labels are new to it.

For classes the test is that of the score of a logistic regression, with p = sigmoid(c_0 + c_1 q + s), calibrated to
the labels. s is a correction of main effects, which is the same for all pairs. With weights w = p (1 - p), the residual
is (y - p) / w, and all columns are weighted by w.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from geh_explain._types import Floats, Ints
from geh_explain.data.targets import Target
from geh_explain.errors import GEHTypeError, GEHValueError, warn
from geh_explain.evidence.explained import Explained
from geh_explain.evidence.labels import Labels, read_labels, sigmoid
from geh_explain.evidence.nuisance import Nuisance, choose_degrees
from geh_explain.evidence.pair_functions import HeldOutFunctions
from geh_explain.evidence.training_rows import count_common_rows
from geh_explain.evidence.true_scores import UNKNOWN, TrueScore, TrueScores
from geh_explain.posterior.protocols import fixed
from geh_explain.run.options import AnalysisOptions
from geh_explain.run.setup import ModelSetup
from geh_explain.scores.evidence import Evidence, TrueScoreEstimates
from geh_explain.statistics.slopes import NO_DIRECTION, Slope, project_off, slope_test

#: Functions of pairs are held for at most this many rows times pairs at once (1 GB).
_MAX_NUMBERS = 2**26
#: Pairs that are tested where the user does not choose.
MAX_TESTED = 1000
#: Newton steps of a logistic regression.
_NEWTON_STEPS = 30
_CONVERGED = 1e-6
#: Precision of the prior of main effects, whose columns have variance 1.
_MAIN_EFFECT_PRECISION = 1.0
#: Weights of rows whose class is certain are set to this.
_MIN_WEIGHT = 1e-4


@dataclass(frozen=True)
class HeldOutRows:
    """Held-out rows as users pass them: inputs, labels, and how the model takes and predicts them.

    ``train`` are the inputs of the training rows, if they are known; held-out rows that are among them are reported.
    ``argument`` is the argument by which the user passed the rows, for error messages.
    """

    inputs: Any
    y: Any
    target: Target = None
    additional_forward_args: Any = None
    link: str = "auto"
    train: Any = None
    argument: str = "inputs"

    @classmethod
    def of(cls, evidence: Any, target: Target, additional_forward_args: Any) -> HeldOutRows:
        """Return the rows of ``explain(evidence=(X_held, y_held))``."""
        if not isinstance(evidence, (tuple, list)) or len(evidence) != 2:
            raise GEHTypeError(
                f"evidence is a {type(evidence).__name__}, and must be two things, held-out rows and their labels: "
                "evidence=(X_held, y_held)."
            )
        inputs, y = evidence
        return cls(inputs, y, target, additional_forward_args, argument="evidence")


@dataclass(frozen=True)
class HeldOutTest:
    """The test of one network, with everything checked before any long work.

    Attributes
    ----------
    functions
        Evaluates the network at the held-out rows.
    labels
        The labels of these rows.
    columns
        Names of the columns of the rows, if they came as a data frame.
    """

    functions: HeldOutFunctions
    labels: Labels
    columns: list[str] | None = None

    @classmethod
    def prepare(cls, setup: ModelSetup, rows: HeldOutRows, options: AnalysisOptions) -> HeldOutTest:
        """Read held-out rows and labels.

        Raises
        ------
        GEHValueError, GEHTypeError
            If labels and rows do not fit together or to the model, or if there are too few rows for the units.
        """
        points, cut = setup.read(rows.inputs, rows.target, rows.additional_forward_args, argument=rows.argument)
        posterior = setup.posterior_for(cut, points)
        with torch.no_grad(), fixed(posterior, setup.model, options.seed):
            outputs = cut.all_outputs(points.first)
        labels = read_labels(rows.y, len(points), outputs, rows.target, setup.output, rows.link)
        points.check_matched("y")
        choose_degrees(len(points), cut.n_units)
        if rows.train is not None:
            train, _ = setup.read(rows.train, rows.target, None)
            _warn_of_training_rows(count_common_rows(points, train), len(points))
        functions = HeldOutFunctions(
            cut, points, posterior, labels.read, batch_size=options.batch_size, seed=options.seed
        )
        return cls(functions, labels, points.columns)

    def check_columns(self, columns: list[str] | None) -> None:
        """Raise if the held-out rows have the same columns as the explained points in another order."""
        if self.columns and columns and self.columns != columns and sorted(self.columns) == sorted(columns):
            raise GEHValueError(
                f"evidence: the held-out rows have the columns {self.columns}, and the explained ones {columns}; give "
                "them in the same order."
            )

    @property
    def n_units(self) -> int:
        """Number of units D."""
        return int(self.functions.values.shape[1])

    def run(self, pairs: Ints, explained: Explained | None, progress: bool) -> Evidence:
        """Test some pairs, and return the evidence of all pairs.

        Parameters
        ----------
        pairs
            Indices of the pairs to test, in row-major order i < j.
        explained
            The points whose true scores are estimated; None leaves these out.
        progress
            Show a progress bar.
        """
        n_rows, n_units = self.functions.values.shape
        first, second = np.triu_indices(n_units, 1)
        slopes = np.full((len(first), 3), np.nan)
        estimates = np.full((len(first), 4), np.nan)
        outputs = self.functions.outputs()
        link = self.labels.decide(outputs)
        tests = _PairTests(self.functions, self.labels.values, outputs, link, explained)
        chunk = max(1, _MAX_NUMBERS // n_rows)
        with tqdm(
            total=len(pairs) * self.functions.n_functions,
            desc="testing",
            unit="pair",
            disable=not progress,
            leave=False,
        ) as bar:
            for start in range(0, len(pairs), chunk):
                part = pairs[start : start + chunk]
                tested = [(int(first[pair]), int(second[pair])) for pair in part]
                functions = self.functions.pairs(tested, bar.update)
                for column, pair in enumerate(part):
                    local, mean = functions.local[:, column], functions.mean[:, column]
                    slopes[pair], estimates[pair] = tests.pair(*tested[column], int(pair), local, mean)
        true_scores = None if np.isnan(estimates).all() else TrueScoreEstimates(*estimates.T)
        slope, slope_se, p_value = slopes.T
        return Evidence(slope, slope_se, p_value, n_rows, link, true_scores)


def _warn_of_training_rows(common: int, rows: int) -> None:
    """Warn if held-out rows were used for training."""
    if common:
        warn(
            f"evidence: {common:,} of {rows:,} held-out rows are also in train=; the network has seen their labels, so "
            "that p-values from them are too small. Leave them out."
        )


class _PairTests:
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
        The points whose true scores are estimated, for the identity link; None leaves these out.
    """

    def __init__(
        self, functions: HeldOutFunctions, labels: Floats, outputs: Floats, link: str, explained: Explained | None
    ) -> None:
        self._labels = labels
        self._outputs = outputs
        self._logit = link == "logit"
        # Smaller interactions are rounding errors of differences of outputs.
        self._rounding = functions.rounding * float(np.abs(outputs).max())
        values = functions.values
        degrees = choose_degrees(*values.shape)
        self._root_weights = np.ones(len(labels))
        self._nuisance = Nuisance(values, degrees, self._root_weights)
        self._main_effects = np.zeros(len(labels))
        if self._logit:
            probability, self._main_effects = _fit_main_effects(outputs, labels, self._nuisance.common)
            # All pairs share the weights of the whole network, so that the common columns are computed once.
            self._root_weights = np.sqrt(np.maximum(probability * (1 - probability), _MIN_WEIGHT))
            self._nuisance = Nuisance(values, degrees, self._root_weights)
        self._true_scores = None
        if explained is not None and not self._logit:
            self._true_scores = TrueScores(values, labels - outputs, self._nuisance.common, explained)

    def pair(self, i: int, j: int, pair: int, local: Floats, mean: Floats) -> tuple[Slope, TrueScore]:
        """Test units i and j, the pair with index ``pair``, from the network's functions G and h (n,)."""
        offset = self._outputs - local
        own = self._nuisance.pair(i, j, offset)
        common = self._nuisance.common
        true_score = UNKNOWN
        if self._true_scores is not None:
            true_score = self._true_scores.estimate(i, j, pair, local, own)
        if np.abs(mean).max() <= self._rounding:
            return NO_DIRECTION, true_score
        if not self._logit:
            return slope_test(mean, self._labels - offset, common, own), true_score
        probability = _calibrated(offset, self._labels, self._main_effects)
        residual = (self._labels - probability) / self._root_weights
        score = slope_test(mean * self._root_weights, residual, common, own)
        return self._likely_slope(score, mean, offset, common, own), true_score

    def _likely_slope(self, score: Slope, mean: Floats, offset: Floats, *bases: Floats) -> Slope:
        """Return the p-value of a score test with the most likely slope and its robust standard error.

        The score test is a first step from slope 0, whose size is not that of a large effect on the log-odds. The
        likelihood is maximised over the slope beside the calibration and the nuisance part of the direction.
        """
        if np.isnan(score.slope):
            return score
        remainder = project_off(mean * self._root_weights, *bases) / self._root_weights
        columns = np.column_stack([remainder, mean - remainder, np.ones_like(mean), offset])
        start = np.array([0.0, 0.0, 0.0, 1.0])
        ridge = 1e-9 * float(np.square(columns).sum())
        coefficients = _logistic_fit(columns, self._labels, self._main_effects, start, ridge)
        probability = sigmoid(columns @ coefficients + self._main_effects)
        curvature = (columns * (probability * (1 - probability))[:, None]).T @ columns + ridge * np.eye(len(start))
        influence = np.linalg.solve(curvature, (columns * (self._labels - probability)[:, None]).T)[0]
        return Slope(float(coefficients[0]), float(np.sqrt(influence @ influence)), score.p_value)


def _calibrated(log_odds: Floats, labels: Floats, known: Floats) -> Floats:
    """Return the probabilities sigmoid(c_0 + c_1 log_odds + known) with the most likely c_0 and c_1.

    A network that is too confident on new rows has c_1 < 1.
    """
    columns = np.column_stack([np.ones_like(log_odds), log_odds])
    coefficients = _logistic_fit(columns, labels, known, np.array([0.0, 1.0]), ridge=1e-9 * len(labels))
    return sigmoid(columns @ coefficients + known)


def _fit_main_effects(log_odds: Floats, labels: Floats, common: Floats) -> tuple[Floats, Floats]:
    """Return probabilities (n,) of the calibrated network with corrected main effects, and these corrections (n,).

    ``common`` are orthonormal functions (n, c) of single units. Their coefficients have a normal prior, in units of log
    odds, so that classes that can be separated have finite ones.
    """
    scaled = common * np.sqrt(len(labels))
    columns = np.column_stack([log_odds, scaled])
    start = np.zeros(columns.shape[1])
    start[0] = 1.0
    coefficients = _logistic_fit(columns, labels, np.zeros_like(log_odds), start, ridge=_MAIN_EFFECT_PRECISION)
    return sigmoid(columns @ coefficients), np.asarray(scaled @ coefficients[1:])


def _logistic_fit(columns: Floats, labels: Floats, known: Floats, start: Floats, ridge: float) -> Floats:
    """Return coefficients of a logistic regression with log-odds ``columns @ coefficients + known``.

    ``ridge`` is the precision of a normal prior around ``start``.
    """
    coefficients = start
    for _ in range(_NEWTON_STEPS):
        probability = sigmoid(columns @ coefficients + known)
        weights = probability * (1 - probability)
        curvature = (columns * weights[:, None]).T @ columns + ridge * np.eye(len(start))
        gradient = columns.T @ (labels - probability) - ridge * (coefficients - start)
        # Newton's step may overshoot where the classes are nearly separated.
        step = np.clip(np.linalg.solve(curvature, gradient), -1, 1)
        coefficients = coefficients + step
        if np.abs(step).max() < _CONVERGED:
            break
    return coefficients
