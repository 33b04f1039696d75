"""Between what a user asks and the work: data read, the model cut, groups, engine and smoothing chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from geh_explain._hashing import digest, short
from geh_explain._memory import budget_bytes
from geh_explain._validation import check_int
from geh_explain.data.points import Points
from geh_explain.data.reader import Reader
from geh_explain.data.targets import Target
from geh_explain.engines import Engine
from geh_explain.engines.default import choose_engine, wants_smoothing
from geh_explain.engines.smoothing.kernels import Kernels
from geh_explain.engines.smoothing.view import describe_change, smoothing_for
from geh_explain.errors import GEHValueError
from geh_explain.groups.assignment import MAX_GROUPS, find_groups
from geh_explain.model.borrow import device_and_dtype
from geh_explain.model.cut import Cut
from geh_explain.model.layers import LayerRef
from geh_explain.model.outputs import Output
from geh_explain.model.unit_values import unit_factors
from geh_explain.posterior import Posterior
from geh_explain.posterior.default import default_posterior
from geh_explain.posterior.protocols import fixed
from geh_explain.run.accumulate import PILOT_DRAWS, DrawAccumulator
from geh_explain.run.checkpoint import Checkpoint, digest_points, versions
from geh_explain.run.distributed import RankGroup
from geh_explain.run.loop import run
from geh_explain.run.plan import Job
from geh_explain.units.base import Units


@dataclass(frozen=True)
class Workbench:
    """A model, and how it is to be explained; what the arguments of the explainer say."""

    model: nn.Module
    site: LayerRef
    units: Units | None
    output: Output
    posterior: Posterior | None
    smooth: str | float | None
    engine: str | Engine

    def cut(
        self, inputs: Any, target: Target, additional_forward_args: Any, budget: int | None = None
    ) -> tuple[Points, Cut]:
        """Read the data and cut the model."""
        device, dtype = device_and_dtype(self.model)
        reader = Reader(floating=self.site.module is None, device=device, dtype=dtype, budget=budget)
        points = reader.gather(inputs, target, additional_forward_args)
        columns = points.columns if self.site.module is None else None
        return points, Cut(self.model, self.site, self.units, self.output, points.first, columns)

    def prepare(
        self,
        inputs: Any,
        target: Target,
        additional_forward_args: Any,
        groups: Any,
        batch_size: int | None,
        seed: int,
        most_groups: int | None = None,
        eah_points: int | None = None,
        memory: float | None = None,
        checkpoint: Checkpoint | None = None,
        ranks: RankGroup | None = None,
    ) -> Job:
        """Read the data, cut the model, and look at both."""
        batch_size = None if batch_size is None else check_int("batch_size", batch_size, 1)
        eah_points = None if eah_points is None else check_int("eah_points", eah_points, 1)
        budget = budget_bytes(memory)
        if checkpoint is not None and memory is None:
            budget = checkpoint.budget(budget)
        points, cut = self.cut(inputs, target, additional_forward_args, None if memory is None else budget)
        if cut.count < 2:
            missing = cut.layer is None and points.first.inputs[0].ndim == 1
            raise GEHValueError(
                f"units={cut.units!r} at {cut.place}: there is only 1 unit, and an interaction needs two. "
                + ("Is the batch dimension missing?" if missing else "Choose another layer or other units.")
            )
        _check_size(cut, budget)
        posterior = self.posterior_of(cut, points)
        with fixed(posterior, self.model, seed):
            most = most_groups or min(MAX_GROUPS, max(2, budget // (112 * _pairs(cut))))
            collected = DrawAccumulator(*find_groups(cut, points, groups, batch_size, seed, most, budget))
            # A quarter of the memory is for what is kept of the draws, and as much for one chunk of work.
            collected.limit = budget / 4
            collected.pilot = max(1, min(PILOT_DRAWS, budget // (4 * 8 * _pairs(cut) * len(collected.grouping.names))))
            smooth = self.smooth if wants_smoothing(self.engine) else None
            smoothing = smoothing_for(cut, points, smooth, batch_size)
            cut.view = smoothing or Kernels()
            engine, reason = choose_engine(self.engine, cut, points.first)
            if not engine.smooth:
                cut.view = smoothing = None
            smoothed = None if smoothing is None else describe_change(cut, points, smoothing, batch_size)
            engine.absolute_points = eah_points
            engine.memory = budget if memory is not None or checkpoint is not None else None
            engine.prepare(cut, points, batch_size)
        return Job(
            points, cut, posterior, engine, reason, collected, smoothed, budget, ranks or RankGroup(), checkpoint
        )

    def run(self, job: Job, draws: int, scale: Any, batch_size: int | None, seed: int, progress: bool) -> None:
        """Compute all draws."""
        with fixed(job.posterior, self.model, seed):
            job.collected.factors = unit_factors(job.cut, job.points, scale, batch_size)

        def adapt() -> None:
            job.cut.view = smoothing_for(job.cut, job.points, self.smooth, batch_size) or Kernels()

        # Each member of an ensemble has kinks of its own.
        each = adapt if job.engine.smooth and getattr(job.posterior, "inputs_only", False) else None
        run(job, draws, seed, progress, each)

    def about(self, job: Job, **asked: Any) -> dict[str, Any]:
        """Return all that the draws of a run depend on, in short names, to tell runs apart."""
        return {
            **versions(),
            "model": digest(self.model),
            "layer": job.cut.place,
            "units": short(self.units),
            "output": short(self.output),
            "posterior": digest(job.posterior),
            "smooth": self.smooth,
            "engine": repr(job.engine),
            "inputs": digest_points(job.points),
            **{name: short(value) for name, value in asked.items()},
        }

    def posterior_of(self, cut: Cut, points: Points) -> Posterior:
        """Return the posterior asked for, or what the model itself offers."""
        if self.posterior is not None:
            return self.posterior
        return default_posterior(self.model, lambda: cut.outputs(points.first[:1]))


def _pairs(cut: Cut) -> int:
    return cut.count * (cut.count - 1) // 2


def _check_size(cut: Cut, budget: int) -> None:
    """Refuse so many units that not even the means of a few groups fit into memory."""
    if 8 * _pairs(cut) * 24 > budget:
        raise GEHValueError(
            f"units={cut.units!r} at {cut.place}: {cut.count:,} units have {_pairs(cut):,} pairs, which do not fit "
            f"into memory ({budget / 1e9:.1f} GB). Choose fewer: units=explainer.screen(inputs) finds those that "
            "matter; or take Channels() or Patches(size), or a later layer."
        )
