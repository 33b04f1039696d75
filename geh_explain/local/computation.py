"""The accounts of rows from start to end: smoothing, draws, warnings."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._process import cached_property
from geh_explain._types import Floats
from geh_explain.data.points import InMemoryPoints
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Limits
from geh_explain.engines.difference import Difference
from geh_explain.engines.exact import Exact, ExactRun, NoSecondDerivative
from geh_explain.engines.smoothing.sharpness import Sharpened
from geh_explain.engines.smoothing.view import Smoothing
from geh_explain.engines.twice_differentiable import DoubleBackwardView
from geh_explain.errors import GEHValueError
from geh_explain.local.account import AccountMoments
from geh_explain.local.baselines import Baseline, ReferenceData
from geh_explain.local.differences import switch_units
from geh_explain.local.explanation import DIFFERENCES, INTEGRATED, LocalExplanation
from geh_explain.local.integrated_hessians import PathAccount, integrate_path, integrate_rows, with_own_gradients
from geh_explain.local.smoothing import LocalView, smoothing_from_data, views_of_rows
from geh_explain.local.unit_path import Members, UnitPath
from geh_explain.model.cut import Cut
from geh_explain.model.estimators import EstimatorModel
from geh_explain.model.kept_points import keep_below, output_of_row
from geh_explain.model.row_independence import check_row_independence
from geh_explain.posterior import Posterior
from geh_explain.posterior.protocols import enter_draws, fixed, keeps_below
from geh_explain.run.options import AnalysisOptions
from geh_explain.run.setup import ModelSetup

#: Remainder that is warned of, as a part of the larger one of the difference to explain and the largest contribution.
_MAX_REMAINDER = {INTEGRATED: 0.01, DIFFERENCES: 0.1}
#: Remainders up to this part of the output are rounding.
_ROUNDING = 1e-6
#: Change of the output by smoothing that is warned of, as a part of the same.
_MAX_CHANGE = 0.25
#: Copies of a row from which dimensions of rows are recognised.
_COPIES = 3
#: Paths that are computed together, and numbers in their Hessians, at most.
_MAX_PATHS = 128
_MAX_NUMBERS = 2**23


@dataclass(frozen=True)
class LocalRun:
    """What the accounts of all rows of one call share.

    Attributes
    ----------
    setup, cut, posterior
        The explainer's arguments, the model as a function of the units' shifts, and where draws come from.
    names
        Names of the units.
    baseline, data
        Where paths begin, and the data that the mean and the sharpness of smoothing are taken from.
    options, steps
        Draws, batch size, seed; and nodes of the rule on the path, None to choose them.
    shared_smoothing
        The smoothing that rows without arguments of their own share, once it is known.
    """

    setup: ModelSetup
    cut: Cut
    posterior: Posterior
    names: list[str]
    baseline: Baseline
    data: ReferenceData
    options: AnalysisOptions
    steps: int | None
    shared_smoothing: list[Smoothing | None] = field(default_factory=list)

    def rows_at_once(self, rows: Rows) -> int:
        """Return how many rows like ``rows`` are computed together; 1 where each has a network or smoothing of its own.

        The account of a row depends on those beside it by rounding only.
        """
        cut, smooth = self.cut, self.setup.smooth
        base = smooth.smooth if isinstance(smooth, Sharpened) else smooth
        # A sharpness without data smooths the kinks that the row meets.
        smoothed_alone = self.data.values is None and isinstance(base, numbers.Real)
        if cut.layer is not None or cut.frame is not None or any(rows.forward_args.per_row[1:]) or smoothed_alone:
            return 1
        n_baselines = 1 if self.baseline.points is None else len(self.baseline.points)
        return max(1, min(_MAX_PATHS, _MAX_NUMBERS // cut.n_units**2) // n_baselines)

    def explain(self, rows: Rows, advance: Callable[[int], Any]) -> list[LocalExplanation]:
        """Return the accounts of rows; ``advance`` is called after each draw with their number.

        There may be several where :meth:`rows_at_once` allows it.
        """
        cut, options = self.cut, self.options
        rows = self.baseline.prepared_row(rows)
        with fixed(self.posterior, cut.model, options.seed):
            rows = self._with_kept_values(rows)
            accounts = RowAccounts(self, rows)
            accounts.prepare()
        first: list[Tensor] = []
        below = cut.below

        def first_forward() -> None:
            first[:] = [output_of_row(cut, rows[:1], below)]

        with enter_draws(self.posterior, cut.model, options.draws, options.seed, first_forward) as draws:
            for number in draws:
                if number == 0:
                    check_row_independence(cut, accounts.compared_rows(), first[0])
                accounts.add_draw()
                advance(len(rows))
        if not accounts.n_draws:
            raise GEHValueError(f"posterior={self.posterior!r} gave no draws.")
        return accounts.results()

    def _with_kept_values(self, row: Rows) -> Rows:
        """Return the row with what the part below the layer passes on, where that is possible."""
        self.cut.below = None
        if self.cut.layer is None or not keeps_below(self.posterior):
            return row
        kept = keep_below(self.cut, InMemoryPoints(replace(row, start=0).repeat(_COPIES)), None).first[:1]
        return replace(kept, repeats=row.repeats, start=row.start)

    @property
    def own_kinks(self) -> bool:
        """Whether each draw is another network, with kinked calls of its own."""
        return bool(getattr(self.posterior, "inputs_only", False))

    def smoothing(self, row: Rows) -> Smoothing | None:
        """Return the view that smooths the current network; the same for all rows, unless they have own arguments."""
        if self.own_kinks or any(row.forward_args.per_row[1:]) or self.data.values is None:
            return smoothing_from_data(self.setup, self.cut, row, self.data)
        if not self.shared_smoothing:
            self.shared_smoothing.append(smoothing_from_data(self.setup, self.cut, row, self.data))
        return self.shared_smoothing[0]

    @cached_property
    def engine(self) -> ExactRun:
        """The engine of second derivatives, which measures the memory of a row once for all rows and draws."""
        return Exact().start(self.cut, Limits(1, self.options.batch_size))

    @cached_property
    def members(self) -> Members:
        """The numbers of the layer that belong to each unit."""
        return Members.of(self.cut.units, self.cut.shape, self.cut.device)


class RowAccounts:
    """The accounts of N rows while draws are added to them.

    All rows have the same network in a draw, and the same smoothing. Their paths are computed together; the number of
    nodes on a path is that which the row needs by itself.

    Parameters
    ----------
    run
        What the accounts of all rows of one call share.
    rows
        The rows, as many as :meth:`LocalRun.rows_at_once` allows.
    """

    def __init__(self, run: LocalRun, rows: Rows) -> None:
        self.run = run
        self.rows = rows
        self._moments = [AccountMoments(run.members.n_units) for _ in range(len(rows))]
        self._baselines: Tensor | None = None
        #: Values of the units at the rows (N, D), and at the baselines (D,).
        self._values: tuple[Floats, Floats] | None = None
        self._views: list[LocalView] = []
        self._method: str | None = None
        self._reason: str | None = None
        #: Accounts of the first draw, whose rules the others take.
        self._first: list[PathAccount] = []

    @property
    def n_draws(self) -> int:
        """Number of draws so far."""
        return self._moments[0].n_draws

    def prepare(self) -> None:
        """Choose account and smoothing by the network outside of draws."""
        path = self._path()
        self._method, self._reason = self._choose_method(path)
        if self._method == INTEGRATED and not self.run.own_kinks:
            self._views = views_of_rows(self.run.smoothing(self.rows), path)
        if self.run.cut.layer is not None and self.run.cut.below is None:
            # Draws may change the values of the layer.
            self._baselines = None

    def compared_rows(self) -> Rows:
        """Return the first row with other rows behind it, which must not change its output."""
        path = self._path()
        if self.run.cut.layer is None and path.members.are_disjoint:
            return path.switched(torch.zeros(_COPIES, dtype=torch.long), torch.tensor([[1.0], [0.0], [1.0]]))
        row = self.rows[:1]
        others = self.run.data.with_arguments_of(row)
        shapes = [x.shape[1:] for x in row.inputs]
        if others is None or [x.shape[1:] for x in others.first.inputs] != shapes:
            return row.repeat(_COPIES)
        pairs = zip(row.inputs, others.first.inputs, strict=True)
        batch = replace(row, inputs=tuple(torch.cat([own, other]) for own, other in pairs), below=())
        return replace(batch, forward_args=row.forward_args.take([0] * len(batch)))

    def add_draw(self) -> None:
        """Add the accounts of the draw that is entered."""
        path = self._path()
        n_paths = len(path.baselines)
        each = torch.arange(n_paths)
        prediction = path.outputs(each, torch.ones(n_paths, 1)).numpy()
        reference = path.outputs(each, torch.zeros(n_paths, 1)).numpy()
        if self._method == DIFFERENCES:
            switched = switch_units(path)
            of_rows = map(path.of_row, range(path.n_rows))
            accounts = [PathAccount(switched.main[of_row], switched.pairs[of_row]) for of_row in of_rows]
        else:
            accounts = self._integrated(path, (prediction - reference).reshape(path.n_rows, -1).mean(axis=1))
        self._first = self._first or accounts
        for row, (moments, account) in enumerate(zip(self._moments, accounts, strict=True)):
            moments.add(account, prediction[path.of_row(row)], reference[path.of_row(row)])

    def _path(self) -> UnitPath:
        """Return the paths in the current draw; the baselines are computed again where draws change them."""
        run, cut = self.run, self.run.cut
        with torch.no_grad():
            own = cut.activations(self.rows).flatten(1)
        if self._baselines is None or not (cut.layer is None or cut.below is not None):
            self._baselines = run.baseline.values(cut, self.rows, run.data)
        if self._values is None:
            of_rows, of_baselines = (run.members.means(values.double()) for values in (own, self._baselines))
            self._values = of_rows.cpu().numpy(), of_baselines.mean(dim=0).cpu().numpy()
        return UnitPath.of_rows(cut, self.rows, run.members, own, self._baselines, run.options.batch_size)

    def _choose_method(self, path: UnitPath) -> tuple[str, str | None]:
        """Return the account to make, and why differences replace derivatives that were asked for, if they do."""
        engine, cut = self.run.setup.engine, self.run.cut
        chosen = engine == "difference" or isinstance(engine, Difference) or isinstance(cut.model, EstimatorModel)
        if chosen or cut.units.has_levels:
            return DIFFERENCES, None
        coded = set() if self.rows.frame is None else set(self.rows.frame.coded)
        if coded & set(path.members.numbers.tolist()):
            return DIFFERENCES, None  # columns of text have no values between those of row and baseline
        reason = why_not_differentiable(path)
        return (INTEGRATED, None) if reason is None else (DIFFERENCES, reason)

    def _integrated(self, path: UnitPath, differences: Floats) -> list[PathAccount]:
        """Return the accounts of F(1) - F(0), the ``differences`` (N,), by integrated Hessians.

        The first draw chooses the rules for the others.
        """
        run, cut = self.run, self.run.cut
        if run.own_kinks:
            self._views = views_of_rows(run.smoothing(self.rows), path)
        engine = path.engine() if run.own_kinks else run.engine
        with cut.viewed(self._views[0].view):
            accounts = self._later_draw(path, engine) if self._first else integrate_path(path, run.steps, engine)
        if self._views[0].smooths:
            # Second derivatives are those of the smoothed network, gradients those of the network itself.
            with cut.viewed(DoubleBackwardView()):
                return with_own_gradients(path, accounts, differences, engine.chunk_rows(self.rows))
        return accounts

    def _later_draw(self, path: UnitPath, engine: ExactRun) -> list[PathAccount]:
        """Return the accounts by the rules of the first draw."""
        # Where the rule was chosen, one with half the nodes agreed with it to many digits.
        divisor = 1 if self.run.steps is not None or self._views[0].smooths else 2
        steps = np.array([account.steps // divisor for account in self._first])
        accounts = list(self._first)
        for count in np.unique(steps):
            rows = np.flatnonzero(steps == count).tolist()
            for row, account in zip(rows, integrate_rows(path.part(rows), int(count), engine), strict=True):
                accounts[row] = account
        return accounts

    def results(self) -> list[LocalExplanation]:
        """Return the accounts over all draws, and their warnings."""
        return [self._result(row) for row in range(len(self.rows))]

    def _result(self, row: int) -> LocalExplanation:
        """Return the account of one row by its number."""
        assert self._method is not None
        assert self._values is not None
        run, moments = self.run, self._moments[row]
        prediction, reference, remainder = moments.ends
        local = LocalExplanation(
            names=run.names,
            prediction=prediction,
            reference=reference,
            remainder=remainder,
            main_effects=moments.main,
            pair_effects=moments.pairs,
            row_values=self._values[0][row],
            baseline_values=self._values[1],
            method=self._method,
            baseline=run.baseline.description,
            place=run.cut.place,
            steps=self._first[row].steps,
            error=self._first[row].error,
        )
        if self._views:
            local = replace(local, smoothed=self._views[row].describe(local.scale))
        return replace(local, warnings=tuple(self._warnings(local)))

    def _warnings(self, local: LocalExplanation) -> list[str]:
        """Return what is legal and suspicious."""
        messages = []
        # An estimator has no gradients that could be meant.
        if self._reason is not None and not isinstance(self.run.cut.model, EstimatorModel):
            messages.append(f"engine: explain_row takes differences in place of derivatives: {self._reason}")
        rounding = _ROUNDING * max(abs(local.prediction), abs(local.reference))
        if abs(local.remainder) > rounding and local.remainder_share > _MAX_REMAINDER[local.method]:
            messages.append(_remainder_warning(local))
        if local.smoothed is not None and local.smoothed["change"] > _MAX_CHANGE:
            messages.append(_smoothing_warning(local.smoothed))
        return messages


def _remainder_warning(local: LocalExplanation) -> str:
    """Return the warning of a large remainder: its size, cause, and way out."""
    difference = abs(local.prediction - local.reference)
    of_what = "the difference" if local.scale == difference else "the largest contribution"
    size = f"remainder: {local.remainder:.3g} ({local.remainder_share:.0%} of {of_what}) is left over"
    if local.method == DIFFERENCES:
        return f"{size}: three or more units act together. The listed contributions are not the whole account."
    return (
        f"{size}, because the output has jumps or kinks along the path, which derivatives do not see, or bends too "
        f"sharply for {local.steps} steps; use smooth='auto', engine='difference', which needs no derivatives, or "
        "more steps=."
    )


def _smoothing_warning(smoothed: dict[str, Any]) -> str:
    """Return the warning of a smoothed network that differs much from the network itself."""
    step = smoothed["step"]
    sharper = f"{2 * smoothed['beta'][1]:.3g}" if step is None else f"geh_explain.engines.Step({step / 2:.3g})"
    return (
        f"smooth: smoothing the kinks ({', '.join(smoothed['functions'])}) changes the difference of prediction and "
        f"reference by {smoothed['change']:.0%} of what is to explain, and pairs are those of the smoothed network; "
        f"pass smooth={sharper}, or engine='difference'."
    )


def why_not_differentiable(path: UnitPath) -> str | None:
    """Return why the output has no second derivatives in the units; None where it has them, or does not depend on them.

    They are tried in the middle of the path from the first baseline.
    """
    cut, rows = path.at(torch.zeros(1, dtype=torch.long), torch.full((1, 1), 0.5))
    try:
        products = Exact().start(cut, Limits(1)).probe(rows, torch.ones_like(cut.zeros(rows)))
    except NoSecondDerivative as error:
        return str(error)
    except RuntimeError as error:
        # A model that calls x.numpy() fails for tensors that require gradients: a black box.
        if "numpy()" not in str(error):
            raise
        products = None
    return "the model's output has no gradients" if products is None else None
