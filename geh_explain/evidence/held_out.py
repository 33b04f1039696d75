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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm.auto import tqdm

from geh_explain._types import Floats, Ints
from geh_explain.data.case_weights import read_weights
from geh_explain.data.points import Points
from geh_explain.data.targets import Target
from geh_explain.errors import GEHTypeError, GEHValueError, warn
from geh_explain.evidence.explained import Explained, GroupMeans
from geh_explain.evidence.fit_check import describe_misfit
from geh_explain.evidence.label_arrays import check_varies
from geh_explain.evidence.labels import Labels, read_labels
from geh_explain.evidence.nuisance import allows_test, choose_degrees, rows_needed
from geh_explain.evidence.pair_functions import HeldOutFunctions, Pair
from geh_explain.evidence.pair_tests import PairTests
from geh_explain.evidence.training_rows import count_common_rows, count_copied_rows
from geh_explain.model.estimators import EstimatorModel
from geh_explain.posterior.protocols import fixed
from geh_explain.run.options import AnalysisOptions
from geh_explain.run.setup import ModelSetup
from geh_explain.scores.evidence import Evidence, TrueScoreEstimates
from geh_explain.scores.pair_names import join_names
from geh_explain.units.categorical import refuse_categories
from geh_explain.units.pair_set import PairSet, count_pairs

#: Functions of pairs are held for at most this many rows times pairs at once (1 GB).
_MAX_NUMBERS = 2**26
#: Share of the variance of what the units leave that principal components should retain.
_MIN_COVARIATE_SHARE = 0.9
#: Pairs that are tested where the user does not choose.
MAX_TESTED = 1000
#: Ways to test pairs that other units determine, without and with covariates.
_FEWER_FEATURES = (
    "To test them, explain a function of fewer features that computes the others inside, for instance of one code "
    "instead of all columns of a category."
)
_OTHER_UNITS = (
    "To test them, take a layer with fewer numbers, for instance after pooling, or units that leave less of it, for "
    "instance single features instead of groups."
)
#: More copies of rows than this share of all rows are reported.
_MAX_COPIED = 0.05
#: Level of both tests of a pair, of all such pairs together, where its interaction is said to depend on a third unit,
#: and the share of the score below which this part is averaged out.
_SURELY = 0.05
_MIN_SHARE_OF_SCORE = 0.5
#: Log-odds are tested with the columns that this many rows for each one of the rarer class allow, if all are more.
_ROWS_PER_RARE_ROW = 4


@dataclass(frozen=True)
class HeldOutRows:
    """Held-out rows as users pass them: inputs, labels, and how the model takes and predicts them.

    ``train`` are the inputs of the training rows, if they are known; held-out rows that are among them are reported.
    ``argument`` is the argument by which the user passed the rows, for error messages. ``sample_weight`` are the case
    weights of the rows, None for 1.
    """

    inputs: Any
    y: Any
    target: Target = None
    additional_forward_args: Any = None
    link: str = "auto"
    train: Any = None
    argument: str = "inputs"
    sample_weight: Any = None

    @classmethod
    def of(cls, evidence: Any, target: Target, additional_forward_args: Any) -> HeldOutRows:
        """Return the rows of ``explain(evidence=(X_held, y_held))``, which may have forward arguments as a third entry.

        ``additional_forward_args`` are those of the explained rows. They are used where evidence has none of its own,
        unless they belong to rows, see :func:`check_shared_arguments`.
        """
        if not isinstance(evidence, (tuple, list)) or len(evidence) not in (2, 3):
            raise GEHTypeError(
                f"evidence is a {type(evidence).__name__}, and must be two things, held-out rows and their labels: "
                "evidence=(X_held, y_held)."
            )
        inputs, y, *arguments = evidence
        forward_args = arguments[0] if arguments else additional_forward_args
        return cls(inputs, y, target, forward_args, argument="evidence")


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
    warnings
        What was found suspicious about the rows.
    case_weights
        Weights (n,) of the rows, with mean 1; None for 1.
    """

    functions: HeldOutFunctions
    labels: Labels
    columns: list[str] | None = None
    warnings: tuple[str, ...] = ()
    case_weights: Floats | None = None

    @classmethod
    def prepare(cls, setup: ModelSetup, rows: HeldOutRows, options: AnalysisOptions) -> HeldOutTest:
        """Read held-out rows and labels.

        Raises
        ------
        GEHValueError, GEHTypeError
            If labels and rows do not fit together or to the model, or if there are too few rows for the units.
        """
        refuse_categories(
            setup.units,
            f"{rows.argument}: the test on held-out labels",
            "Its error rates are known for numeric units only. Test with units=None, or units=FeatureGroups(...).",
        )
        points, cut = setup.read(rows.inputs, rows.target, rows.additional_forward_args, argument=rows.argument)
        posterior = setup.posterior_for(cut, points)
        with torch.no_grad(), fixed(posterior, setup.model, options.seed):
            outputs = cut.all_outputs(points.first)
        y = setup.model.class_indices(rows.y) if isinstance(setup.model, EstimatorModel) else rows.y
        target = setup.target_index(rows.target)
        labels = read_labels(y, len(points), outputs, target, setup.output, rows.link)
        points.check_matched("y")
        _check_index(rows.inputs, rows.y)
        weights = read_weights(rows.sample_weight, points)
        if weights.kept is not None:
            points, labels = weights.points(points), replace(labels, values=labels.values[weights.kept])
            check_varies(labels.values)
        effective = _effective_rows(len(points), weights.values)
        if weights.values is not None and not allows_test(effective, cut.n_units):
            raise GEHValueError(
                f"sample_weight: {len(points)} held-out rows with these weights tell as much as {effective} of equal "
                f"weight, too few to test pairs of {cut.n_units} units; at least {rows_needed(cut.n_units)} are "
                "needed. Give more rows, less unequal weights, or fewer units."
            )
        choose_degrees(effective, cut.n_units)
        functions = HeldOutFunctions(
            cut, points, posterior, labels.read, batch_size=options.batch_size, seed=options.seed
        )
        held_out = cls(functions, labels, points.columns, case_weights=weights.values)
        warnings = [_copied_rows(count_copied_rows(points, labels.values), len(points))]
        if rows.train is not None:
            train = setup.read_points(rows.train, rows.target, None, None, "train")
            _check_shapes(points, train)
            held_out.check_columns(train.columns, "rows of train=")
            warnings.append(_training_rows(*count_common_rows(points, train), len(points)))
        return replace(held_out, warnings=_issue(warnings))

    def check_units(self, units: str) -> None:
        """Raise if ``units``, the repr of a unit set, is another one than that of the test."""
        if units and units != self.functions.units:
            raise GEHValueError(
                f"result: it is about units={units}, and this explainer about units={self.functions.units}; use the "
                "explainer that made it."
            )

    def check_columns(self, columns: Sequence[str] | None, rows: str = "explained ones") -> None:
        """Raise if the held-out rows have other columns than other rows, where both are known."""
        if self.columns and columns and self.columns != list(columns):
            pairs = zip_longest(self.columns, columns, fillvalue="none")
            place, (own, other) = next((place, pair) for place, pair in enumerate(pairs) if pair[0] != pair[1])
            raise GEHValueError(
                f"evidence: column {place} is {own!r} in the held-out rows and {other!r} in the {rows}; give the same "
                "columns in the same order."
            )

    @property
    def n_units(self) -> int:
        """Number of units D."""
        return int(self.functions.values.shape[1])

    def run(self, known: PairSet, pairs: Ints, explained: Explained | GroupMeans | None, progress: bool) -> Evidence:
        """Test some pairs, and return the evidence of all pairs of a result.

        Parameters
        ----------
        known
            The pairs of the result.
        pairs
            Indices among them of the pairs to test.
        explained
            The points whose true scores are estimated, or the group means without them; None without an explanation.
        progress
            Show a progress bar.
        """
        functions, n_rows = self.functions, len(self.functions.values)
        units = list(zip(*(index.tolist() for index in known.ends), strict=True))
        tested = [units[pair] for pair in pairs]
        slopes = np.full((len(units), 3), np.nan)
        estimates = np.full((len(units), 4), np.nan)
        outputs = functions.outputs()
        link, labels = self.labels.decide(outputs)
        warnings = [describe_misfit(labels, outputs, link, self.labels.classes)]
        names, counted = tuple(functions.unit_names), _effective_rows(n_rows, self.case_weights)
        if link == "logit":
            rarer = min(
                _effective_rows(int(chosen.sum()), self.case_weights, chosen) for chosen in (labels > 0, labels == 0)
            )
            counted = min(counted, _ROWS_PER_RARE_ROW * rarer)
            if not allows_test(counted, self.n_units):
                warnings.append(_rare_class(rarer, n_rows, self.n_units))
                slope, slope_se, p_value = slopes.T
                return Evidence(slope, slope_se, p_value, n_rows, link, None, names, self.warnings + _issue(warnings))
        on_grids = _with_neighbours(tested, self.n_units)
        steps = (len(tested) + len(on_grids)) * functions.n_functions
        with tqdm(total=steps, desc="testing", unit="pair", disable=not progress, leave=False) as bar:
            interactions = functions.mean_interactions(on_grids, bar.update)
            tests = PairTests(functions, labels, outputs, link, explained, counted, self.case_weights)
            chunk = max(1, _MAX_NUMBERS // n_rows)
            for start in range(0, len(pairs), chunk):
                part = slice(start, start + chunk)
                without = functions.without(tested[part], bar.update, tests.independent)
                for column, pair in enumerate(pairs[part]):
                    slopes[pair], estimates[pair] = tests.pair(units[pair], pair, without[:, :, column], interactions)
        averaged_out = None if explained is None else self._averaged_out(tests)
        warnings += [*self._lost_pairs(tests), averaged_out, _covariates(tests.covariates.share)]
        true_scores = None if np.isnan(estimates).all() else TrueScoreEstimates(*estimates.T)
        slope, slope_se, p_value = slopes.T
        issued = self.warnings + _issue(warnings)
        return Evidence(slope, slope_se, p_value, n_rows, link, true_scores, names, issued)

    def _lost_pairs(self, tests: PairTests) -> Iterator[str]:
        """Yield warnings if interactions can hardly, or not, be told from effects of other units or covariates."""
        has_covariates = tests.covariates.count > 0
        others = "other units, or what the units leave of the layer's output," if has_covariates else "other units"
        advice = _OTHER_UNITS if has_covariates else _FEWER_FEATURES
        if tests.lost:
            yield (
                f"evidence: {len(tests.lost)} pair(s) cannot be tested, since {others} nearly determine what their "
                f"interaction would do: {self._name_pairs(tests.lost)}; they have no p-value, and half of their score "
                f"counts as supported. {advice}"
            )
        if tests.determined:
            yield (
                f"evidence: {len(tests.determined)} pair(s) cannot be tested, since {others} determine what their "
                f"interaction does at these rows: {self._name_pairs(tests.determined)}; their p-value is 1, and their "
                f"supported score 0. {advice}"
            )

    def _averaged_out(self, tests: PairTests) -> str | None:
        """Return a warning if labels contain interactions whose sign depends on a third unit, and scores do not."""
        level = _SURELY / max(1, len(tests.third_order))
        pairs = [
            entry.pair
            for entry in tests.third_order
            if entry.p_third < level and entry.p_mean > _SURELY and entry.share < _MIN_SHARE_OF_SCORE
        ]
        if not pairs:
            return None
        return (
            f"evidence: the labels contain an interaction of {len(pairs)} pair(s) whose sign depends on a third unit: "
            f"{self._name_pairs(pairs)}. Their p-values count it, but the groups average most of it out, so that slope "
            "and supported score are about the rest. More groups show it: explain(..., groups=20) for instance."
        )

    def _name_pairs(self, pairs: list[Pair]) -> str:
        """Return the names of the first pairs."""
        names = self.functions.unit_names
        return ", ".join(join_names(names[i], names[j]) for i, j in pairs[:3]) + (", ..." if len(pairs) > 3 else "")


def _with_neighbours(tested: list[Pair], n_units: int) -> list[Pair]:
    """Return the tested pairs and all that share a unit with one of them, whose effects are projected off.

    Of very many pairs only the tested ones, so that those are the same for any choice of tested pairs.
    """
    if count_pairs(n_units) > MAX_TESTED:
        return tested
    touched = sorted({unit for pair in tested for unit in pair})
    return list(zip(*(ends.tolist() for ends in PairSet.touching(touched, n_units).ends), strict=True))


def check_shared_arguments(explained: Points) -> None:
    """Raise if forward arguments of the explained points belong to rows, so that held-out rows need their own."""
    if any(explained.first.forward_args.per_row[1:]):
        raise GEHValueError(
            "evidence: additional_forward_args has entries of the explained rows; give those of the held-out rows as a "
            "third entry, evidence=(X_held, y_held, additional_forward_args)."
        )


def _effective_rows(rows: int, weights: Floats | None, chosen: NDArray[np.bool_] | None = None) -> int:
    """Return the number of rows, or with weights (n,) that of rows of equal weight that tell as much, after Kish.

    ``chosen`` (n,) are the rows that count, ``rows`` of them; None for all.

    >>> _effective_rows(3, np.array([1.0, 1.0, 2.0])), _effective_rows(3, None)
    (2, 3)
    """
    if weights is None:
        return rows
    part = weights if chosen is None else weights[chosen]
    return int(part.sum() ** 2 / (part**2).sum()) if len(part) else 0


def _check_shapes(points: Points, train: Points) -> None:
    """Raise if training rows have other shapes than held-out rows, so that none of them could be the same."""
    own, others = ([tuple(x.shape[1:]) for x in part.first.inputs] for part in (points, train))
    if own != others:
        raise GEHValueError(
            f"train: its rows have the shape {others}, and held-out rows {own}; give the inputs of the training rows, "
            "without labels."
        )


def _check_index(inputs: Any, y: Any) -> None:
    """Raise if rows and labels are tables of pandas with the same index in another order: rows match by position."""
    first, second = getattr(inputs, "index", None), getattr(y, "index", None)
    # Lists and tuples have a method of this name.
    if first is None or second is None or callable(first) or callable(second) or first.equals(second):
        return
    if first.sort_values().equals(second.sort_values()):
        raise GEHValueError(
            "y has the index of the held-out rows in another order, and rows are matched by position; give "
            "y.loc[X_held.index]."
        )


def _issue(messages: Iterable[str | None]) -> tuple[str, ...]:
    """Issue the warnings that are not None, and return them."""
    issued = tuple(message for message in messages if message is not None)
    for message in issued:
        warn(message)
    return issued


def _covariates(share: float) -> str | None:
    """Return a warning if effects of numbers beside the units are not accounted for."""
    if share >= _MIN_COVARIATE_SHARE:
        return None
    return (
        "evidence: the units do not determine the layer's output, and there are too few rows to account for the "
        f"effects of all that they leave: principal components with {share:.0%} of its variance are used. p-values "
        "may be too small; give more rows, or units that determine more."
    )


def _rare_class(rarer: int, rows: int, n_units: int) -> str:
    """Return the warning that the rarer class has too few rows to test anything."""
    needed = -(-rows_needed(n_units) // _ROWS_PER_RARE_ROW)
    return (
        f"evidence: one of the two classes has {rarer} of {rows:,} held-out rows, too few to test pairs of {n_units} "
        f"units; at least {needed} are needed. No pair was tested; give more rows of this class, or fewer units: "
        "units=explainer.screen(inputs) finds those that matter."
    )


def _training_rows(common: int, by_chance: float, rows: int) -> str | None:
    """Return a warning if held-out rows were used for training: if more are training rows than chance explains."""
    if common <= by_chance + 3 * by_chance**0.5:
        return None
    return (
        f"evidence: {common:,} of {rows:,} held-out rows are also in train=; the network has seen their labels, so "
        "that p-values from them are too small. Leave them out."
    )


def _copied_rows(copied: int, rows: int) -> str | None:
    """Return a warning if held-out rows are copies of others."""
    if copied <= _MAX_COPIED * rows:
        return None
    return (
        f"evidence: {copied:,} of {rows:,} held-out rows repeat the inputs and the label of another row, as after "
        "oversampling; the test takes rows for independent, so that p-values are too small. Keep one of each, as "
        "drop_duplicates of pandas does."
    )
