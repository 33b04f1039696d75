"""TODO."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import monotonic

import numpy as np

from geh_explain._memory import trim_heap
from geh_explain._types import Floats
from geh_explain.engines import GroupSums
from geh_explain.groups.grouping import Grouping, from_tree
from geh_explain.groups.number import GroupChoice, choose_group_number, scores_by_group_number
from geh_explain.groups.tree import GroupTree
from geh_explain.scores.draws import DrawMoments, Draws

#: How many draws settle the number of groups: the mean score needs far fewer than its spread.
PILOT_DRAWS = 20
#: Pairs that are looked at together where there are very many.
_PAIRS = 65536


@dataclass
class DrawAccumulator:
    """The sums of the draws so far, and the groups they are over.

    With a ``tree`` the number of groups is open: sums are over its finest regions until ``pilot`` draws are
    there, which settle it. ``factors`` (D,) are what units are multiplied by. Where ``expected`` draws would take more
    than ``limit`` bytes, only their ``moments`` are kept.
    """

    grouping: Grouping
    tree: GroupTree | None = None
    factors: Floats | None = None
    pilot: int = PILOT_DRAWS
    expected: int = 1
    limit: float = float("inf")
    choice: GroupChoice | None = None
    sampled: bool = False
    interrupted: bool = False
    tidied: float = field(default_factory=monotonic)
    moments: DrawMoments | None = None
    _signed: list[Floats] = field(default_factory=list)
    _absolute: list[Floats] = field(default_factory=list)
    _variance: list[Floats] = field(default_factory=list)
    _slopes: list[Floats] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many draws are there."""
        return len(self._signed) + (0 if self.moments is None else self.moments.geh.count)

    def next_stop(self) -> int:
        """Return up to which draw the groups stay what they are: pilot draws settle them."""
        return self.expected if self.tree is None else min(self.expected, self.pilot)

    def take(self, sums: GroupSums) -> None:
        """Take the sums of one more draw, or of several."""
        counted = len(self.grouping.labels) - sums.skipped
        self.sampled |= sums.skipped > 0
        for draw in range(len(sums.signed)):
            self._signed.append(sums.signed[draw].numpy())
            self._absolute.append(sums.absolute[draw].numpy() / counted)
            if sums.variance is not None:
                self._variance.append(sums.variance[draw].numpy())
            if sums.slopes is not None:
                self._slopes.append(sums.slopes[draw].numpy())
            if self.count == self.pilot:
                self.settle()
        if self.tree is None:
            self._fold()

    def settle(self) -> None:
        """Choose the number of groups from the draws so far, if it is still open, and merge to it."""
        tree, self.tree = self.tree, None
        if tree is None:
            return
        # Draw by draw, and in place: for thousands of units each array is a large one.
        scores = scores_by_group_number(tree, self._signed[0], len(self.grouping.labels))
        for signed in self._signed[1:]:
            scores += scores_by_group_number(tree, signed, len(self.grouping.labels))
        scores *= np.abs(self._pair_factors()) / len(self._signed)
        self.choice = choose_group_number(scores)
        if self.limit < 8 * scores.nbytes:
            self.choice = replace(self.choice, scores=scores[:, :0])  # they are for the curve only
        del scores
        self._signed = [tree.merge(signed, self.choice.chosen) for signed in self._signed]
        self._variance = [tree.merge(variance, self.choice.chosen) for variance in self._variance]
        self._slopes = [tree.merge(slopes, self.choice.chosen) for slopes in self._slopes]
        self.grouping = from_tree(tree, self.grouping.labels, self.choice.chosen)
        trim_heap()

    def _fold(self) -> None:
        """Keep the moments of the draws only, if all of them would not fit."""
        if self.moments is None and self.expected * self._signed[0].nbytes > self.limit:
            self.moments = DrawMoments()
        while self.moments is not None and self._signed:
            self.moments.add(self._take_means(1), self.grouping.sizes)

    def _pair_factors(self) -> Floats | float:
        if self.factors is None or (self.factors == 1).all():
            return 1.0
        return np.asarray(np.outer(self.factors, self.factors)[np.triu_indices(len(self.factors), 1)])

    def result(self) -> Draws | DrawMoments:
        """Hand over the means of all draws, or their moments; each unit is multiplied by its factor."""
        return self._take_means(len(self._signed)) if self.moments is None else self.moments

    def spread(self) -> tuple[float, float]:
        """Return the largest absolute interaction, and the largest difference of it between draws."""
        if self.moments is not None:
            return float(self.moments.eah.mean.max()), float(self.moments.eah.squares.max())
        first, *others = self._absolute
        largest = max(float(absolute.max()) for absolute in self._absolute)
        return largest, max((float(np.abs(absolute - first).max()) for absolute in others), default=0.0)

    def _take_means(self, count: int) -> Draws:
        pair_factors = self._pair_factors()
        sizes = np.maximum(self.grouping.sizes, 1)[:, None]
        # All in place: for thousands of units each array is a large one.
        signed, absolute = _taken(self._signed, count), _taken(self._absolute, count)
        signed /= sizes
        if not isinstance(pair_factors, float):
            signed *= pair_factors
            absolute *= np.abs(pair_factors)
        slopes = _taken(self._slopes, count) / sizes if self._slopes else None
        if slopes is not None and self.factors is not None:
            slopes = slopes * self.factors
        noise = _taken(self._variance, count) if self._variance else None
        if noise is not None:
            noise = np.sqrt(noise) / sizes * np.abs(pair_factors)
        if self.sampled:
            # An estimate from some of the points, which the group means bound from below.
            shares = self.grouping.sizes / len(self.grouping.labels)
            for start in range(0, absolute.shape[1], _PAIRS):
                some = absolute[:, start : start + _PAIRS]
                bound = np.einsum("kmp,m->kp", np.abs(signed[:, :, start : start + _PAIRS]), shares)
                np.maximum(some, bound, out=some)
        return Draws(signed, absolute, noise, slopes)


def _taken(arrays: list[Floats], count: int) -> Floats:
    """Take the first ``count`` arrays out of a list, as one array."""
    taken = arrays[:count]
    del arrays[:count]
    return taken[0][None] if count == 1 else np.stack(taken)
