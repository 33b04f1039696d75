"""TODO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geh_explain.data.points import Points
from geh_explain.engines import Engine, GroupSums
from geh_explain.model.cut import Cut
from geh_explain.posterior import Posterior
from geh_explain.run.accumulate import DrawAccumulator
from geh_explain.run.checkpoint import Checkpoint
from geh_explain.run.distributed import RankGroup
from geh_explain.run.interrupt import defer_interrupt


@dataclass(frozen=True)
class Job:
    """What one call of the explainer works on, with whom it shares the work, and where draws are kept."""

    points: Points
    cut: Cut
    posterior: Posterior
    engine: Engine
    reason: str
    collected: DrawAccumulator
    smoothed: dict[str, Any] | None
    budget: int
    ranks: RankGroup
    checkpoint: Checkpoint | None = None

    def take(self, start: int, sums: GroupSums) -> None:
        """Keep and take the sums of the draws from number ``start`` on, all of it or nothing."""
        with defer_interrupt():
            if self.checkpoint is not None and self.ranks.first:
                self.checkpoint.keep(start, sums)
            self.collected.take(sums)

    def take_kept(self, start: int) -> bool:
        """Take the sums of the draws from number ``start`` on from the checkpoint, if they are there."""
        if self.checkpoint is None:
            return False
        sums = None
        if self.ranks.first:
            sums = self.checkpoint.find(start, self.cut.count, self.collected.expected - start)
        if not self.ranks.broadcast(sums is not None):
            return False
        sums = self.ranks.collect(sums, 0, 1)
        with defer_interrupt():
            self.collected.take(sums)
        return True
