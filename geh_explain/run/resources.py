"""Resources of a run: memory, the ranks that share it, and its checkpoint folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from geh_explain._memory import budget_bytes
from geh_explain.data.case_weights import CaseWeights
from geh_explain.data.points import Points
from geh_explain.engines.base import Limits
from geh_explain.run.checkpoint import Checkpoint
from geh_explain.run.distributed import RankGroup, find_rank_group
from geh_explain.run.options import RunOptions
from geh_explain.storage.lock import FileLock
from geh_explain.units.pair_set import PairSet


@dataclass(frozen=True)
class Resources:
    """What a run may use, and with whom it shares the work; :func:`run_resources` makes it."""

    budget: int
    ranks: RankGroup
    checkpoint: Checkpoint | None

    def limits(self, options: RunOptions, points: Points, pairs: PairSet, weights: CaseWeights) -> Limits:
        """Return the limits of the engine; without a checkpoint or ``memory=`` it asks for the free memory itself.

        Where a run searches for pairs, it does so among all of them.
        """
        fixed_budget = options.memory is not None or self.checkpoint is not None
        memory = self.budget if fixed_budget else None
        some = None if pairs.complete or options.request.searches else pairs
        # EAH that was asked for by name is measured at all points.
        everywhere = options.eah_points is None and options.measures is not None and options.measures_eah
        eah_points = points.represented if everywhere else options.eah_points
        limits = Limits(points.represented, options.batch_size, memory, eah_points, some, weights.values)
        return replace(limits, measures_eah=options.measures_eah)


@contextmanager
def run_resources(options: RunOptions) -> Iterator[Resources]:
    """Find the ranks, lock the checkpoint until the end of the context, and take its budget.

    How rows are chunked depends on the budget. Only rank 0 locks, as it alone writes.
    """
    ranks = find_rank_group(options.distributed)
    checkpoint = None if options.checkpoint is None else Checkpoint(options.checkpoint)
    budget = budget_bytes(options.memory)
    with ExitStack() as stack:
        if checkpoint is not None:
            ranks.on_rank0(partial(_enter, stack, checkpoint.lock()))
            stored = checkpoint.budget(budget)
            budget = stored if options.memory is None else budget
        yield Resources(budget, ranks, checkpoint)


def _enter(stack: ExitStack, lock: FileLock) -> None:
    """Lock a folder until the stack is closed."""
    stack.enter_context(lock)
