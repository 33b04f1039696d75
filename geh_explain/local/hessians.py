"""Local Hessians of single rows, which do not depend on the other rows of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain.data.points import InMemoryPoints, Points
from geh_explain.data.rows import Rows
from geh_explain.data.targets import Target
from geh_explain.engines.base import EngineRun, Limits, check_finite
from geh_explain.engines.difference import DifferenceRun
from geh_explain.engines.exact import Exact, ExactRun
from geh_explain.engines.selection import REQUESTED, choose_engine, needs_smoothing
from geh_explain.engines.smoothing.radius import RadiusSmoothing
from geh_explain.engines.smoothing.sharpness import Radius, Step, is_by_row
from geh_explain.engines.smoothing.survey import smoothing_for, survey_kinks
from geh_explain.engines.smoothing.view import Smoothing
from geh_explain.engines.structured.engine import StructuredRun
from geh_explain.engines.sums import GroupSums
from geh_explain.engines.twice_differentiable import DoubleBackwardView
from geh_explain.engines.zero import explain_zero
from geh_explain.errors import GEHValueError, warn
from geh_explain.local.baselines import ReferenceData, SharedArguments
from geh_explain.local.row_sharpness import row_smoothings
from geh_explain.model.autograd_graph import custom_functions
from geh_explain.model.cut import Cut
from geh_explain.model.preserve import preserved
from geh_explain.model.row_independence import check_row_independence
from geh_explain.run.setup import ModelSetup
from geh_explain.units.pair_set import PairSet

#: Numbers in the Hessians of one chunk of rows, at most.
CHUNK_NUMBERS = 2**23


def row_hessians(
    setup: ModelSetup, inputs: Any, target: Target, additional_forward_args: Any, reference: Any
) -> tuple[Tensor, int]:
    """Return the interactions (N, P) of all pairs at each row, in double precision, and the number of units.

    The sharpness of smoothed kinks, and steps of differences, come from ``reference``. Without it each
    row sets the sharpness by itself, as ``Radius()`` does, and engines that need the spread of the units are refused.

    Parameters
    ----------
    setup
        The arguments of an explainer.
    inputs, target, additional_forward_args
        As in :meth:`~geh_explain.GEHExplainer.explain`.
    reference
        Rows like those of the training data; None where there are none.
    """
    with preserved(setup.model):
        points, cut, computed = read_rows(setup, inputs, target, additional_forward_args, reference)
        if not computed.has_reference and not computed.share_smoothing(points):
            parts = [computed.hessians_alone(rows) for rows in points.batches()]
        else:
            parts = [computed.hessians(rows) for rows in computed.parts(points)]
        found = torch.cat(parts)
        if cut.n_units > 1 and not bool(found.any()):
            warn(explain_zero(cut, points.first, PairSet.all(cut.n_units), computed.smoothed))
        computed.warn()
    return found, cut.n_units


def read_rows(
    setup: ModelSetup, inputs: Any, target: Target, additional_forward_args: Any, reference: Any
) -> tuple[Points, Cut, RowHessians]:
    """Return the rows of :func:`row_hessians`, the model, and what computes Hessians.

    Raises if outputs of a row depend on other rows, or the reference does not fit.
    """
    points, cut = setup.read(inputs, target, additional_forward_args)
    with torch.no_grad():
        check_row_independence(cut, points.first, cut.outputs(points.first[:1]))
    data = ReferenceData(setup, reference, "data", "inputs")
    data.check(points.first, None)
    return points, cut, RowHessians(setup, cut, data, points.first)


class RowHessians:
    """Computes the Hessians of groups of rows that share a view.

    Parameters
    ----------
    setup, cut, data
        The arguments of an explainer, the model as a function of the units' shifts, and the reference.
    first
        A few rows.

    Attributes
    ----------
    smoothed
        Whether kinked functions were smoothed.
    """

    def __init__(self, setup: ModelSetup, cut: Cut, data: ReferenceData, first: Rows) -> None:
        self._setup = setup
        self._cut = cut
        self._data = data
        self._smooth = setup.smooth
        if isinstance(setup.smooth, str) and data.points is None and self._finds_rows(first):
            # Each row sets by itself how far its kinks are smoothed.
            self._smooth = Radius()
        self._reason = REQUESTED
        self._doubtful = False
        #: Rows of which double backward fits into memory; 0 where it is not used.
        self._chunk_rows = 0
        self.smoothed = False

    @property
    def has_reference(self) -> bool:
        """Whether a reference sets the sharpness of all rows."""
        return self._data.points is not None

    def _finds_rows(self, rows: Rows) -> bool:
        """Return whether all kinked functions can be smoothed in each row by itself."""
        survey = survey_kinks(self._cut, rows) if needs_smoothing(self._setup.engine) else None
        return survey is not None and not survey.calls_without_rows(self._cut, rows)

    def has_kinks(self, rows: Rows) -> bool:
        """Return whether functions above the cut are to be smoothed."""
        if self._smooth is None or not needs_smoothing(self._setup.engine):
            return False
        survey = survey_kinks(self._cut, rows)
        return survey is not None and any(call.depends_on_units for call in survey.calls)

    def share_smoothing(self, points: Points) -> bool:
        """Return whether rows of a batch may share a view: without kinks, by a reference, or with one of each row."""
        if is_by_row(self._smooth) or not self.has_kinks(points.first):
            return True
        # Arguments of a row are those of the reference, too.
        return self._data.points is not None and not any(points.first.forward_args.per_row[1:])

    def parts(self, points: Points) -> Iterable[Rows]:
        """Return the rows that share a view, batch by batch or one by one."""
        return points.batches() if self.share_smoothing(points) else points.split(1)

    @contextmanager
    def started(self, rows: Rows) -> Iterator[EngineRun]:
        """Start the engine for rows that share a view, within which the cut is viewed.

        Afterwards :meth:`warn` knows what the engine found doubtful.

        Parameters
        ----------
        rows
            Rows of one of the :meth:`parts`.
        """
        cut = self._cut
        points = None if self._data.points is None else SharedArguments(self._data.points, rows)
        view = self._smoothing(rows, points) or DoubleBackwardView()
        self.smoothed |= isinstance(view, Smoothing)
        with cut.viewed(view), view.measured(rows) if isinstance(view, RadiusSmoothing) else nullcontext():
            limits = Limits(len(rows) if points is None else len(points))
            run, self._reason = choose_engine(self._setup.engine, cut, rows[:8], limits)
            if run.needs_values:
                self._observe(run, points)
            yield run
        self._doubtful |= run.doubtful
        self._reason = self._reason if isinstance(run, DifferenceRun) else REQUESTED

    def hessians(self, rows: Rows) -> Tensor:
        """Return the interactions (n, P) of all pairs at each row."""
        with self.started(rows) as run:
            found = _sums(run, rows)
            if run.refuted:
                run.fall_back()
                found = _sums(run, rows)
            exact = run.exact if isinstance(run, StructuredRun) else run
            self._chunk_rows = exact.chunk_rows(rows[:4]) if isinstance(exact, ExactRun) else 0
        return found

    def hessians_alone(self, rows: Rows) -> Tensor:
        """Return the interactions (n, P) of all pairs at each row, smoothed as the row by itself would be.

        The first row chooses and checks the engine. Where that is double backward, or one that agrees with it, the
        others are computed together.
        """
        parts = [self.hessians(rows[:1])]
        together = len(rows) > 2 and self._chunk_rows > 1 and not self._doubtful and not self.has_custom_functions(rows)
        size = min(self._chunk_rows, max(2, CHUNK_NUMBERS // self._cut.n_units**2)) if together else 1
        for chunk in rows[1:].split(size):
            found = None if len(chunk) == 1 else self._hessians_together(chunk)
            parts += [self.hessians(row) for row in chunk.split(1)] if found is None else [found]
        return torch.cat(parts)

    def _hessians_together(self, rows: Rows) -> Tensor | None:
        """Return the same for two rows or more at once; None where that is not possible."""
        cut = self._cut
        smoothings = row_smoothings(cut, rows, self._smooth)
        if smoothings is None:
            return None
        first, second = np.triu_indices(cut.n_units, 1)
        found = torch.zeros(len(rows), len(first), dtype=torch.double)
        directions = torch.eye(cut.n_units, device=cut.device, dtype=cut.dtype)
        for members, view in smoothings:
            some = rows.take(members)
            with cut.viewed(view):
                products = Exact().start(cut, Limits(len(some))).products(some, directions)
            found[members] = products[first, :, second].mT.double().cpu()
        check_finite(found, rows)
        return found

    def has_custom_functions(self, rows: Rows) -> bool:
        """Return whether the model has functions with a backward pass of their own, which are examined row by row."""
        t = self._cut.zeros(rows[:1]).requires_grad_()
        with self._cut.viewed(DoubleBackwardView()):
            return bool(custom_functions(self._cut.outputs(rows[:1], t), t))

    def _smoothing(self, rows: Rows, points: Points | None) -> Smoothing | None:
        """Return the smoothing of rows that share it: by the reference, else by the only row itself."""
        smooth = self._smooth
        if not self.has_kinks(rows[:8]):
            return None
        if points is None and isinstance(smooth, Step):
            raise GEHValueError(
                f"smooth={smooth!r} is measured in standard deviations of the units, which a single row does not have; "
                "pass data=, rows like those of the training data."
            )
        if points is None or is_by_row(smooth):
            points = InMemoryPoints(rows)
        return smoothing_for(self._cut, points, smooth, None)

    def _observe(self, run: EngineRun, points: Points | None) -> None:
        """Show the units' values over the reference to an engine that steps by their spread."""
        if isinstance(run, DifferenceRun) and run.has_fixed_baseline:
            return
        if points is None:
            raise GEHValueError(
                f"engine={run.name!r} steps by the spread of the units, which a row does not have by itself; pass "
                "data=, rows like those of the training data."
            )
        for rows in points.split(None):
            run.observe(self._cut.units.values(self._cut.activations(rows)))

    def warn(self) -> None:
        """Warn of an engine that was not asked for, and of derivatives that contradict each other."""
        if self._reason != REQUESTED:
            warn(f"engine='auto' takes mixed differences: {self._reason}")
        if self._doubtful:
            warn(
                "engine: second derivatives by double backward contradict differences of gradients; a function inside "
                "the model hides a part of its derivative from autograd. Use engine='difference' with data=."
            )


def _sums(run: EngineRun, rows: Rows) -> Tensor:
    """Return the interactions (n, P) of each row: sums over groups of one row."""
    parts = []
    for chunk in rows.split(max(1, run.chunk_rows(rows))):
        run.begin_draw(0)
        sums = GroupSums.zeros(len(chunk), run.cut.n_units, 1, 0)
        run.add(sums, chunk, torch.arange(len(chunk)).numpy())
        run.end_draw(sums)
        parts.append(sums.signed[0])
    return torch.cat(parts)
