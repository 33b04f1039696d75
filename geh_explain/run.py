"""One run: every draw of the posterior, over all points, summed by group."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
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
    there, which settle it.
    """

    grouping: Grouping
    tree: RegionTree | None = None
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
        draws = np.stack(self.signed, axis=1)  # (regions, draws, pairs), all of which the curve takes at once
        self.choice = groups.choose(groups.curve(tree, draws, len(self.grouping.labels)).mean(axis=1))
        self.signed = [tree.merge(signed, self.choice.chosen) for signed in self.signed]
        self.variance = [tree.merge(variance, self.choice.chosen) for variance in self.variance]
        self.grouping = groups.from_tree(tree, self.grouping.labels, self.choice.chosen)

    def means(self, factors: Floats) -> tuple[Floats, Floats, Floats | None]:
        """Return signed group means (K, M, P), absolute means (K, P) and the former's standard errors, if any.

        Each unit is multiplied by its factor.
        """
        pair_factors = np.outer(factors, factors)[np.triu_indices(len(factors), 1)]
        sizes = np.maximum(self.grouping.sizes, 1)[:, None]
        signed = np.stack(self.signed) / sizes * pair_factors
        absolute = np.stack(self.absolute) / len(self.grouping.labels) * np.abs(pair_factors)
        if not self.variance:
            return signed, absolute, None
        return signed, absolute, np.sqrt(np.stack(self.variance)) / sizes * np.abs(pair_factors)


def run(
    cut: Cut,
    points: Points,
    posterior: Posterior,
    engine: Engine,
    into: Collected,
    draws: int,
    seed: int,
    progress: bool,
) -> None:
    """Compute up to ``draws`` draws and put their sums ``into`` a collection."""
    known = posterior.__len__() if hasattr(posterior, "__len__") else draws
    total = min(draws, known) * len(points)
    with tqdm(total=total, desc="explaining", unit="row", unit_scale=True, disable=not progress, leave=False) as bar:
        for number, draw in enumerate(posterior.draws(cut.model, draws, seed) or ()):
            if not isinstance(draw, AbstractContextManager):
                raise GEHTypeError(
                    f"posterior={posterior!r}: draw {number} is a {type(draw).__name__}; draws must yield context "
                    "managers (see contextlib.contextmanager), inside which the model is one function."
                )
            with draw:
                engine.start(seed_of_draw(seed, number))
                # The first forward of a draw has one row, see Posterior.
                cut.outputs(points.first[:1])
                if number == 0:
                    cut.check_rows(points.first)
                into.take(_sums(cut, points, engine, into.grouping, bar))
            bar.set_postfix_str(f"draw {number + 1}", refresh=False)
    if not into.signed:
        raise GEHValueError(f"posterior={posterior!r} gave no draws for n={draws}; it must yield at least one.")
    into.settle()


def _sums(cut: Cut, points: Points, engine: Engine, grouping: Grouping, bar: Any) -> GroupSums:
    sums = GroupSums.zeros(len(grouping.names), cut.count)
    for rows in points.batches():
        for chunk in rows.split(engine.chunk_rows(cut, rows)):
            engine.add(sums, cut, chunk, grouping.labels[chunk.start : chunk.start + len(chunk)])
            bar.update(len(chunk))
    return sums
