"""One run: every draw of the posterior, over all points, summed by group."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from geh_explain import groups
from geh_explain.cut import Cut
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.groups import GroupChoice, Grouping, RegionTree
from geh_explain.hessian import Engine, GroupSums
from geh_explain.points import Points
from geh_explain.posterior import Posterior
from geh_explain.posterior.base import seed_of_draw

Floats = NDArray[np.float64]

#: How many draws settle the number of groups: the mean score needs far fewer than its spread.
PILOT_DRAWS = 20


@dataclass
class Collected:
    """The sums of the draws so far, and the groups they are over.

    With a ``tree`` the number of groups is open: sums are over its finest regions until ``pilot`` draws are
    there, which settle it. ``factors`` (D,) are what units are multiplied by.
    """

    grouping: Grouping
    tree: RegionTree | None = None
    factors: Floats | None = None
    pilot: int = PILOT_DRAWS
    signed: list[Floats] = field(default_factory=list)
    absolute: list[Floats] = field(default_factory=list)
    variance: list[Floats] = field(default_factory=list)
    choice: GroupChoice | None = None

    def take(self, sums: GroupSums) -> None:
        """Take the sums of one more draw."""
        self.signed.append(sums.signed.numpy())
        self.absolute.append(sums.absolute.numpy())
        if sums.variance is not None:
            self.variance.append(sums.variance.numpy())
        if len(self.signed) == self.pilot:
            self.settle()

    def settle(self) -> None:
        """Choose the number of groups from the draws so far, if it is still open, and merge to it."""
        tree, self.tree = self.tree, None
        if tree is None:
            return
        # (regions, draws, pairs), all of which the curve takes at once
        draws = np.stack(self.signed, axis=1) * self._pair_factors()
        self.choice = groups.choose(groups.curve(tree, draws, len(self.grouping.labels)).mean(axis=1))
        self.signed = [tree.merge(signed, self.choice.chosen) for signed in self.signed]
        self.variance = [tree.merge(variance, self.choice.chosen) for variance in self.variance]
        self.grouping = groups.from_tree(tree, self.grouping.labels, self.choice.chosen)

    def _pair_factors(self) -> Floats | float:
        if self.factors is None:
            return 1.0
        return np.asarray(np.outer(self.factors, self.factors)[np.triu_indices(len(self.factors), 1)])

    def means(self) -> tuple[Floats, Floats, Floats | None]:
        """Return signed group means (K, M, P), absolute means (K, P) and the former's standard errors, if any.

        Each unit is multiplied by its factor.
        """
        pair_factors = self._pair_factors()
        sizes = np.maximum(self.grouping.sizes, 1)[:, None]
        signed = np.stack(self.signed) / sizes * pair_factors
        absolute = np.stack(self.absolute) / len(self.grouping.labels) * np.abs(pair_factors)
        if not self.variance:
            return signed, absolute, None
        return signed, absolute, np.sqrt(np.stack(self.variance)) / sizes * np.abs(pair_factors)


@dataclass(frozen=True)
class Job:
    """What one call of the explainer works on: data, cut model, posterior, engine, groups."""

    points: Points
    cut: Cut
    posterior: Posterior
    engine: Engine
    reason: str
    collected: Collected
    smoothed: dict[str, Any] | None


def run(job: Job, draws: int, seed: int, progress: bool, adapt: Callable[[], None] | None = None) -> None:
    """Compute up to ``draws`` draws and collect their sums.

    ``adapt`` is called inside each draw, for what depends on the network that answers in it.
    """
    known = job.posterior.__len__() if hasattr(job.posterior, "__len__") else draws
    total = min(draws, known) * len(job.points)
    with tqdm(total=total, desc="explaining", unit="row", unit_scale=True, disable=not progress, leave=False) as bar:
        for number, draw in enumerate(islice(job.posterior.draws(job.cut.model, draws, seed) or (), draws)):
            if not isinstance(draw, AbstractContextManager):
                raise GEHTypeError(
                    f"posterior={job.posterior!r}: draw {number} is a {type(draw).__name__}; draws must yield context "
                    "managers (see contextlib.contextmanager), inside which the model is one function."
                )
            with draw:
                job.engine.start(seed_of_draw(seed, number))
                # The first forward of a draw has one row, see Posterior.
                job.cut.outputs(job.points.first[:1])
                if number == 0:
                    job.cut.check_rows(job.points.first)
                if adapt is not None:
                    adapt()
                job.collected.take(_sums(job, bar))
            bar.set_postfix_str(f"draw {number + 1}", refresh=False)
    if not job.collected.signed:
        raise GEHValueError(f"posterior={job.posterior!r} gave no draws for n={draws}; it must yield at least one.")
    job.collected.settle()


def _sums(job: Job, bar: Any) -> GroupSums:
    labels = job.collected.grouping.labels
    sums = GroupSums.zeros(len(job.collected.grouping.names), job.cut.count)
    for rows in job.points.batches():
        for chunk in rows.split(job.engine.chunk_rows(job.cut, rows)):
            job.engine.add(sums, job.cut, chunk, labels[chunk.start : chunk.start + len(chunk)])
            bar.update(len(chunk))
    return sums
