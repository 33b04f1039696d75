"""The account of one row from start to end: smoothing, draws, warnings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from geh_explain._process import cached_property
from geh_explain._types import Floats
from geh_explain.data.points import InMemoryPoints
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Limits
from geh_explain.engines.difference import Difference
from geh_explain.engines.exact import Exact, ExactRun, NoSecondDerivative
from geh_explain.engines.smoothing.view import Smoothing
from geh_explain.engines.twice_differentiable import DoubleBackwardView
from geh_explain.errors import GEHValueError
from geh_explain.local.account import AccountMoments
from geh_explain.local.baselines import Baseline, ReferenceData
from geh_explain.local.differences import switch_units
from geh_explain.local.explanation import DIFFERENCES, INTEGRATED, LocalExplanation
from geh_explain.local.integrated_hessians import PathAccount, apply_rule, integrate_path, with_own_gradients
from geh_explain.local.smoothing import LocalView, smoothing_from_data, view_of_path
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
    options, points
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
    points: int | None
    shared_smoothing: list[Smoothing | None] = field(default_factory=list)

    def explain(self, row: Rows, advance: Callable[[], Any]) -> LocalExplanation:
        """Return the account of one row; ``advance`` is called after each draw."""
        cut, options = self.cut, self.options
        row = self.baseline.prepared_row(row)
        with fixed(self.posterior, cut.model, options.seed):
            row = self._with_kept_values(row)
            account = RowAccount(self, row)
            account.prepare()
        first: list[Tensor] = []
        below = cut.below

        def first_forward() -> None:
            first[:] = [output_of_row(cut, row, below)]

        with enter_draws(self.posterior, cut.model, options.draws, options.seed, first_forward) as draws:
            for number in draws:
                if number == 0:
                    check_row_independence(cut, account.compared_rows(), first[0])
                account.add_draw()
                advance()
        if not account.moments.n_draws:
            raise GEHValueError(f"posterior={self.posterior!r} gave no draws.")
        return account.result()

    def _with_kept_values(self, row: Rows) -> Rows:
        """Return the row with what the part below the layer passes on, where that is possible."""
        self.cut.below = None
        if self.cut.layer is None or not keeps_below(self.posterior):
            return row
        kept = keep_below(self.cut, InMemoryPoints(row.repeat(_COPIES)), None).first[:1]
        return replace(kept, repeats=row.repeats)

    @property
    def own_kinks(self) -> bool:
        """Whether each draw is another network, with kinked calls of its own."""
        return bool(getattr(self.posterior, "inputs_only", False))

    def smoothing(self, row: Rows) -> Smoothing | None:
        """Return the view that smooths the current network; the same for all rows, unless they have own arguments."""
        if self.own_kinks or any(row.forward_args.per_row[1:]):
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


class RowAccount:
    """The account of one row while draws are added to it.

    Attributes
    ----------
    moments
        Mean and spread of the account over the draws so far.
    """

    def __init__(self, run: LocalRun, row: Rows) -> None:
        self.run = run
        self.row = row
        self.moments = AccountMoments(run.members.n_units)
        self._baselines: Tensor | None = None
        self._values: tuple[Floats, Floats] | None = None
        self._view: LocalView | None = None
        self._method: str | None = None
        self._reason: str | None = None
        #: Nodes of the rule of the first draw, and of the others.
        self._points = 0
        self._later_points = 0
        self._error = 0.0

    def prepare(self) -> None:
        """Choose account and smoothing by the network outside of draws."""
        path = self._path()
        self._method, self._reason = self._choose_method(path)
        if self._method == INTEGRATED and not self.run.own_kinks:
            self._view = view_of_path(self.run.smoothing(self.row), path)
        if self.run.cut.layer is not None and self.run.cut.below is None:
            # Draws may change the values of the layer.
            self._baselines = None

    def compared_rows(self) -> Rows:
        """Return the row with other rows behind it, which must not change its output."""
        path = self._path()
        if self.run.cut.layer is None and path.members.are_disjoint:
            return path.switched(torch.zeros(_COPIES, dtype=torch.long), torch.tensor([[1.0], [0.0], [1.0]]))
        others = self.run.data.with_arguments_of(self.row)
        shapes = [x.shape[1:] for x in self.row.inputs]
        if others is None or [x.shape[1:] for x in others.first.inputs] != shapes:
            return self.row.repeat(_COPIES)
        pairs = zip(self.row.inputs, others.first.inputs, strict=True)
        batch = replace(self.row, inputs=tuple(torch.cat([own, other]) for own, other in pairs), below=())
        return replace(batch, forward_args=self.row.forward_args.take([0] * len(batch)))

    def add_draw(self) -> None:
        """Add the account of the draw that is entered."""
        path = self._path()
        n_baselines = len(path.baselines)
        each = torch.arange(n_baselines)
        prediction = path.outputs(each, torch.ones(n_baselines, 1)).numpy()
        reference = path.outputs(each, torch.zeros(n_baselines, 1)).numpy()
        difference = float((prediction - reference).mean())
        account = switch_units(path) if self._method == DIFFERENCES else self._integrated(path, difference)
        self.moments.add(account, prediction, reference)

    def _path(self) -> UnitPath:
        """Return the path in the current draw; the baselines are computed again where draws change them."""
        run, cut = self.run, self.run.cut
        with torch.no_grad():
            own = cut.activations(self.row).flatten(1)
        if self._baselines is None or not (cut.layer is None or cut.below is not None):
            self._baselines = run.baseline.values(cut, self.row, run.data)
        path = UnitPath(cut, self.row, run.members, own, self._baselines, run.options.batch_size)
        if self._values is None:
            means = (run.members.means(values.double()).mean(dim=0) for values in (own, self._baselines))
            row_values, baseline_values = (mean.cpu().numpy() for mean in means)
            self._values = row_values, baseline_values
        return path

    def _choose_method(self, path: UnitPath) -> tuple[str, str | None]:
        """Return the account to make, and why differences replace derivatives that were asked for, if they do."""
        engine, cut = self.run.setup.engine, self.run.cut
        chosen = engine == "difference" or isinstance(engine, Difference) or isinstance(cut.model, EstimatorModel)
        if chosen or cut.units.has_levels:
            return DIFFERENCES, None
        coded = set() if self.row.frame is None else set(self.row.frame.coded)
        if coded & set(path.members.numbers.tolist()):
            return DIFFERENCES, None  # columns of text have no values between those of row and baseline
        reason = why_not_differentiable(path)
        return (INTEGRATED, None) if reason is None else (DIFFERENCES, reason)

    def _integrated(self, path: UnitPath, difference: float) -> PathAccount:
        """Return the account of F(1) - F(0), the ``difference``, by integrated Hessians.

        The first draw chooses the rule for the others.
        """
        run, cut = self.run, self.run.cut
        if run.own_kinks:
            self._view = view_of_path(run.smoothing(self.row), path)
        assert self._view is not None
        engine = path.engine() if run.own_kinks else run.engine
        with cut.viewed(self._view.view):
            if self.moments.n_draws == 0:
                account = integrate_path(path, run.points, engine)
                self._points, self._error = account.points, account.error
                # Where the rule was chosen, one with half the points agreed with it to many digits.
                self._later_points = account.points // (1 if run.points is not None or self._view.smooths else 2)
            else:
                account = PathAccount(*apply_rule(path, self._later_points, engine), self._later_points)
        if self._view.smooths:
            # Second derivatives are those of the smoothed network, gradients those of the network itself.
            with cut.viewed(DoubleBackwardView()):
                return with_own_gradients(path, account, difference)
        return account

    def result(self) -> LocalExplanation:
        """Return the account over all draws, and its warnings."""
        assert self._method is not None
        assert self._values is not None
        run, moments = self.run, self.moments
        prediction, reference, remainder = moments.ends
        local = LocalExplanation(
            names=run.names,
            prediction=prediction,
            reference=reference,
            remainder=remainder,
            main_effects=moments.main,
            pair_effects=moments.pairs,
            row_values=self._values[0],
            baseline_values=self._values[1],
            method=self._method,
            baseline=run.baseline.description,
            place=run.cut.place,
            points=self._points,
            error=self._error,
        )
        if self._view is not None:
            local = replace(local, smoothed=self._view.describe(local.scale))
        return replace(local, warnings=tuple(self._warnings(local)))

    def _warnings(self, local: LocalExplanation) -> list[str]:
        """Return what is legal and suspicious."""
        messages = []
        if self._reason is not None:
            messages.append(f"engine: explain_row takes differences in place of derivatives: {self._reason}")
        rounding = _ROUNDING * max(abs(local.prediction), abs(local.reference))
        if abs(local.remainder) > rounding and local.remainder_share > _MAX_REMAINDER[local.method]:
            messages.append(_remainder_warning(local))
        if local.smoothed is not None and local.smoothed["change"] > _MAX_CHANGE:
            messages.append(_smoothing_warning(local.smoothed))
        return messages


def _remainder_warning(local: LocalExplanation) -> str:
    """Return the warning of a large remainder: its size, cause, and way out."""
    size = f"remainder: {local.remainder:.3g} ({local.remainder_share:.0%} of what is to explain) is left over"
    if local.method == DIFFERENCES:
        return f"{size}: three or more units act together. The listed contributions are not the whole account."
    return (
        f"{size}, because the output has jumps or kinks along the path, which derivatives do not see, or bends too "
        f"sharply for {local.points} points; use smooth='auto', engine='difference', which needs no derivatives, or "
        "more points=."
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
