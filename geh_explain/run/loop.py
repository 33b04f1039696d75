"""The loop over draws: each draw of the posterior, over all points, summed by group.

Draws are computed one by one. Small data sets do not keep the machine busy, so that after the first draw several draws
are computed at once where posterior and engine allow it. Under torchrun a round of draws is shared by all ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from time import monotonic

import torch
from torch import Tensor
from tqdm.auto import tqdm

from geh_explain._memory import reuse_heap, trim_heap
from geh_explain._process import SafeContext, defer_interrupt
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHValueError
from geh_explain.model.below import equal_up_to_rounding
from geh_explain.model.kept_points import output_of_row
from geh_explain.model.row_independence import check_row_independence, check_unchanged_function
from geh_explain.posterior import MCDropout, PointEstimate
from geh_explain.posterior.protocols import BatchedPosterior, enter_draws, fixed, n_available, seed_of_draw
from geh_explain.run.accumulate import DrawAccumulator
from geh_explain.run.fingerprint import identifying_numbers
from geh_explain.run.parameter_writes import check_unchanged, count_writes, explain_writes, parameters_not_written
from geh_explain.run.plan import RunPlan
from geh_explain.run.point_sums import sum_points
from geh_explain.run.stored_draws import DrawSizes

#: Freed memory is returned to the system after this many seconds.
_TRIM_SECONDS = 1.0


class _EngineRefuted(Exception):
    """A check found that the engine's interactions are wrong, on this rank or another one."""


@dataclass(frozen=True)
class DrawsDone:
    """What the loop leaves: the draws, and whether the user interrupted it before all of them were computed."""

    accumulator: DrawAccumulator
    interrupted: bool
    #: The largest absolute interaction, and its largest difference between draws.
    spread: tuple[float, float]
    #: Whether all draws were computed twice, as a check refuted the first engine.
    repeated: bool


def run_draws(plan: RunPlan) -> DrawsDone:
    """Compute the draws of a plan.

    Ctrl-C ends the loop; the draws that are finished are a result. With several ranks it is raised, as other ranks
    would wait for this one. If a check refutes the engine, all draws are computed again by the one it falls back to.
    """
    reuse_heap()
    repeated = False
    with plan.cut.viewed(plan.view):
        try:
            loop, interrupted = _run_loop(plan)
        except _EngineRefuted:
            repeated = True
            plan.engine.fall_back()
            if plan.checkpoint is not None:
                plan.ranks.on_rank0(plan.checkpoint.discard)
            loop, interrupted = _run_loop(plan)
    if not loop.accumulator.n_draws:
        raise GEHValueError(
            f"posterior={plan.posterior!r} gave no draws for n={plan.options.max_draws}; it must yield at least one."
        )
    if plan.first_outputs is not None:
        model = plan.cut.model
        check_writes = partial(check_unchanged, model, plan.versions, loop.not_written or ())
        with fixed(plan.posterior, model, plan.options.seed), explain_writes(check_writes):
            check_unchanged_function(plan.cut, plan.points.first, plan.first_outputs)
    loop.accumulator.choose_group_number()
    return DrawsDone(loop.accumulator, interrupted, loop.accumulator.spread(), repeated)


def _run_loop(plan: RunPlan) -> tuple[_DrawLoop, bool]:
    """Run the loop over all draws; return it, and whether it was interrupted after at least one draw."""
    loop = _DrawLoop(plan)
    try:
        loop.run()
    except KeyboardInterrupt:
        if not loop.accumulator.n_draws or plan.ranks.size > 1 or plan.engine.refuted:
            raise
        return loop, True
    finally:
        loop.bar.close()
    return loop, False


@dataclass
class _Round:
    """One draw, or block of draws, for each team of ranks, from number ``start`` on.

    ``sums`` is what this rank computed of it, ``entered`` counts the draws that were entered.
    """

    start: int
    teams: int
    sums: GroupSums | None = None
    entered: int = 0


class _DrawLoop:
    """State of the loop: the plan, the accumulator and the progress bar."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        draws = plan.options.max_draws
        self.accumulator = DrawAccumulator(plan, min(draws, n_available(plan.posterior, draws)))
        self.bar = tqdm(
            total=self.accumulator.expected * len(plan.points),
            desc="explaining",
            unit="row",
            unit_scale=True,
            disable=not (plan.options.progress and plan.ranks.first),
            leave=False,
        )
        self._trimmed = monotonic()
        #: Output (1,) of the first row in the current draw.
        self._first_output = torch.zeros(1)
        #: Outputs (1, n) of spread rows in each draw that is not stored yet, by its number; for the checkpoint.
        self._outputs: dict[int, Tensor] = {}
        #: Names of the parameters that the model does not write to itself; an embedding with max_norm does so.
        self.not_written: set[str] | None = None
        #: Number of writes to parameters, by name, at the begin of the current draw.
        self._versions: dict[str, int] = {}

    def run(self) -> None:
        """Compute the draws one by one; after the first one several at a time, where that is possible."""
        plan = self.plan
        self._run_single(batched=isinstance(plan.posterior, BatchedPosterior) and plan.member_view is None)

    def _run_single(self, batched: bool) -> None:
        """Compute the draws one by one, those after the first one several at a time if ``batched``."""
        plan, options = self.plan, self.plan.options
        current: _Round | None = None
        n_batched, expected = 1, torch.zeros(0)
        model = plan.cut.model
        with enter_draws(plan.posterior, model, options.max_draws, options.seed, self._first_forward) as draws:
            # Draws that are known, or another rank's, are entered too: a posterior may draw one after the other.
            for number in draws:
                self._begin_draw(number)
                if number < self.accumulator.n_draws or (
                    current is None and self._take_stored(number, self._of_draw, 1)
                ):
                    self._advance()
                else:
                    if current is None:
                        remaining = self.accumulator.next_stop() - number
                        current = _Round(number, 1 if batched else plan.ranks.teams(remaining))
                    current.entered += 1
                    self._compute(number, current)
                if current is not None and current.entered == current.teams:
                    self._finish_round(current)
                    current = None
                if self.accumulator.is_settled():
                    return
                if batched and 1 <= self.accumulator.n_draws < self.accumulator.expected:
                    n_batched = plan.ranks.all_min(self._draws_per_chunk())
                    if n_batched > 1:
                        expected = self._first_outputs()
                        break
                batched = False
        if n_batched > 1 and self._batched_agrees(expected):
            self._run_batched(n_batched)
        elif n_batched > 1:
            self._run_single(batched=False)
        elif current is not None:  # the posterior had fewer draws than it said
            self._finish_round(current)

    @torch.no_grad()
    def _first_forward(self) -> None:
        """Run the forward pass with one row that posteriors require, see Posterior."""
        plan, cut, first = self.plan, self.plan.cut, self.plan.points.first[:1]

        # Masks are at the same places in all draws.
        masks_above = isinstance(plan.posterior, MCDropout) and plan.dropout_places.above_layer is True
        unchanged = masks_above and self.not_written is not None and cut.below is not None

        def forward() -> None:
            self._first_output = output_of_row(cut, first, plan.below, unchanged=unchanged)

        # Before the pass: what another thread writes during it counts.
        self._versions = count_writes(cut.model)
        if self.not_written is None and not cut.known_layers:
            self.not_written = parameters_not_written(cut.model, forward)
        else:
            self.not_written = set(self._versions) if self.not_written is None else self.not_written
            forward()

    def _begin_draw(self, number: int) -> None:
        """Prepare the engine for a draw; at the first one check the rows and the network of the draw."""
        plan = self.plan
        plan.engine.begin_draw(seed_of_draw(plan.options.seed, number))
        if self._stores and number >= self.accumulator.n_draws:
            self._outputs[number] = self._spread_outputs(1)
        if number == 0:
            with explain_writes(self._check_unchanged):
                check_row_independence(plan.cut, plan.points.first, self._first_output)
                if plan.member_view is None and not isinstance(plan.posterior, PointEstimate):
                    plan.engine.adapt(plan.points.first)

    def _compute(self, number: int, current: _Round) -> None:
        """Compute this rank's part of a draw, if it is in the team of that draw."""
        plan = self.plan
        team, part = plan.ranks.share(current.teams, len(plan.points))
        if team != number - current.start:
            return
        view = nullcontext() if plan.member_view is None else plan.cut.viewed(plan.member_view())
        with view, explain_writes(self._check_unchanged):
            if plan.member_view is not None:
                plan.engine.adapt(plan.points.first)
            current.sums = self._sums(part, range(number, number + 1))

    def _finish_round(self, current: _Round) -> None:
        """Give all ranks the draws of a round."""
        self._check_engine()
        ranks = self.plan.ranks
        members = ranks.size // current.teams
        for number in range(current.start, current.start + current.entered):
            source = (number - current.start) * members
            self._take(number, ranks.collect(current.sums, source, members), self._of_draw)
        self._advance()

    def _check_engine(self) -> None:
        """End the loop on all ranks if a check refuted the engine of one of them."""
        if not self.plan.ranks.all_min(not self.plan.engine.refuted):
            raise _EngineRefuted

    def _advance(self) -> None:
        """Move the progress bar to the number of finished draws."""
        self.bar.n = max(self.bar.n, self.accumulator.n_draws * len(self.plan.points))
        self.bar.set_postfix_str(f"draw {self.accumulator.n_draws}", refresh=False)

    def _draws_per_chunk(self) -> int:
        """Return how many draws of all points fit into one chunk: a few points alone do not keep the machine busy."""
        plan = self.plan
        samples_points = plan.engine.n_eah_points < len(plan.points)
        if not plan.engine.batches_draws or samples_points or plan.levels is not None:
            return 1
        fitting = plan.engine.chunk_rows(plan.points.first) // len(plan.points)
        draws_at_once = getattr(plan.posterior, "draws_at_once", None)
        return fitting if draws_at_once is None or fitting < 2 else int(draws_at_once(plan.cut.model, fitting))

    @torch.no_grad()
    def _first_outputs(self, draws: int = 1) -> Tensor:
        """Return the outputs (draws, n) of the first rows in the draws that are entered."""
        rows = self.plan.points.first
        return self.plan.cut.outputs(rows.repeat(draws) if draws > 1 else rows).reshape(draws, len(rows))

    def _batched_agrees(self, expected: Tensor) -> bool:
        """Return whether the first of two draws at once has the outputs (1, n) that it has by itself.

        It does not where the rows are not the first dimension of a layer whose weights are drawn. Only posteriors
        that say how many draws they take at once are compared.
        """
        plan = self.plan
        agrees = True
        if hasattr(plan.posterior, "draws_at_once"):
            assert isinstance(plan.posterior, BatchedPosterior)
            try:
                with SafeContext(plan.posterior.batched(plan.cut.model, range(2), plan.options.seed)):
                    self._first_forward()
                    agrees = equal_up_to_rounding([self._first_outputs(2)[:1]], [expected])
            except RuntimeError:
                agrees = False
        return bool(plan.ranks.all_min(agrees))

    def _run_batched(self, n_batched: int) -> None:
        """Compute the draws after the first one, ``n_batched`` of them at a time.

        Rows are repeated once per draw; each repetition has the masks of its own draw.
        """
        plan, ranks, accumulator = self.plan, self.plan.ranks, self.accumulator
        assert isinstance(plan.posterior, BatchedPosterior)
        while not self.accumulator.is_settled() and (done := accumulator.n_draws) < accumulator.expected:
            if self._take_stored(done, self._of_block, None):
                self._advance()
                continue
            stop = accumulator.next_stop()
            current = _Round(done, ranks.teams(stop - done))
            block = min(n_batched, -(-(stop - done) // current.teams))
            starts = range(done, min(stop, done + current.teams * block), block)
            team, part = ranks.share(current.teams, len(plan.points))
            if team < len(starts):
                numbers = range(starts[team], min(stop, starts[team] + block))
                with SafeContext(plan.posterior.batched(plan.cut.model, numbers, plan.options.seed)):
                    plan.engine.begin_draw(seed_of_draw(plan.options.seed, numbers.start))
                    self._first_forward()
                    with explain_writes(self._check_unchanged):
                        current.sums = self._sums(part, numbers)
            self._check_engine()
            members = ranks.size // current.teams
            for index, start in enumerate(starts):
                self._take(start, ranks.collect(current.sums, index * members, members), self._of_block)
            self._advance()

    def _sums(self, part: slice, numbers: range) -> GroupSums:
        """Return the sums over a part of the points of the draws with these ``numbers``, which are entered."""
        sums = sum_points(self.plan, self.accumulator.grouping, part, numbers, self.bar)
        self._check_unchanged()
        if monotonic() > self._trimmed + _TRIM_SECONDS:
            trim_heap()
            self._trimmed = monotonic()
        return sums

    @property
    def _stores(self) -> bool:
        """Whether this process writes a checkpoint."""
        return self.plan.checkpoint is not None and self.plan.ranks.first

    def _spread_outputs(self, draws: int) -> Tensor:
        """Return numbers (draws, m) that identify the network in the draws that are entered, see ``fingerprint``."""
        differentiates = self.plan.engine.engine.differentiates
        return identifying_numbers(self.plan.cut, self.plan.points.spread, draws, differentiates)

    def _of_draw(self, start: int, draws: int) -> Tensor:
        """Return the outputs (1, n) of the spread rows in draw number ``start``, which was entered."""
        assert draws == 1
        return self._outputs[start]

    def _of_block(self, start: int, draws: int) -> Tensor:
        """Return the outputs (draws, n) of the spread rows in the draws from number ``start`` on, at once."""
        plan = self.plan
        assert isinstance(plan.posterior, BatchedPosterior)
        with plan.posterior.batched(plan.cut.model, range(start, start + draws), plan.options.seed):
            self._first_forward()
            return self._spread_outputs(draws)

    def _check_unchanged(self) -> None:
        """Refuse parameters that changed within a draw: the sums would mix two networks."""
        check_unchanged(self.plan.cut.model, self._versions, self.not_written or ())

    def _take(self, start: int, sums: GroupSums, outputs_of: Callable[[int, int], Tensor]) -> None:
        """Store and take the sums of the draws from number ``start`` on, all of them or none."""
        outputs = outputs_of(start, len(sums.signed)) if self._stores else None
        with defer_interrupt():
            if self.plan.checkpoint is not None and outputs is not None:
                self.plan.checkpoint.store(start, sums, outputs)
            self._outputs.pop(start, None)
            self.accumulator.take(sums)

    def _take_stored(self, start: int, outputs_of: Callable[[int, int], Tensor], max_block: int | None) -> bool:
        """Take the sums of the draws from number ``start`` on from the checkpoint, if they are there.

        ``outputs_of`` returns the outputs of the spread rows in so many draws from a number on, at most ``max_block``.
        """
        plan, found = self.plan, []
        if plan.checkpoint is None:
            return False
        load = partial(plan.checkpoint.load, start, self._sizes(start), partial(outputs_of, start), max_block)
        plan.ranks.on_rank0(lambda: found.append(load()))
        sums = found[0] if found else None
        if not plan.ranks.broadcast(sums is not None):
            return False
        # A run with another number of draws may have stored blocks that end elsewhere.
        sums = plan.ranks.collect(sums, 0, 1).first(self.accumulator.next_stop() - start)
        with defer_interrupt():
            self._outputs.pop(start, None)
            self.accumulator.take(sums)
        return True

    def _sizes(self, start: int) -> DrawSizes:
        """Return the sizes of the sums of draws from number ``start`` on."""
        plan, squared = self.plan, max(0, self.plan.point_draws - start)
        cells = 0 if plan.cells is None else len(plan.cells)
        grouping, n_slopes = self.accumulator.grouping, plan.columns.n_slopes
        counted = None if grouping.weights is None else float((grouping.weights**2).sum())
        return DrawSizes(len(plan.points), len(grouping.names), n_slopes, len(plan.columns), squared, cells, counted)
