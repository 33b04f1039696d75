"""TODO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.groups.tree import RegionTree

#: Pairs that are looked at together where there are very many.
_PAIRS = 65536


def distances(curve: Sequence[Floats] | Floats) -> Floats:
    """Return the rank weighted distances Delta^2_M for M = 2, 3, ... of the score vectors of M = 1, 2, ...

    Scores are normalised to sum to 1, as in the authors' notebook. A single pair has no ranks to change;
    its distance is the squared change relative to its largest score.
    """
    from scipy.stats import rankdata

    scores = np.asarray(curve, dtype=np.float64)
    if scores.shape[1] == 1:
        return np.diff(scores[:, 0] / (scores.max() or 1.0)) ** 2
    # Two numbers of groups at a time: for thousands of units each row of scores is a large one.
    found, before = [], None
    for row in scores:
        now = row / (row.sum() or 1.0), rankdata(row)
        if before is not None:
            found.append(float(((now[0] - before[0]) ** 2 * (now[1] - before[1]) ** 2).sum()))
        before = now
    return np.asarray(found)


def curve(tree: RegionTree, signed: Floats, points: int) -> Floats:
    """Return the GEH (count, ...) for 1, 2, ..., count regions, from the sums (count, ...) over the finest."""
    scores = np.empty_like(signed)
    for start in range(0, signed.shape[-1], _PAIRS):
        sums = signed[..., start : start + _PAIRS].copy()
        for groups in range(tree.count, 0, -1):
            scores[groups - 1, ..., start : start + _PAIRS] = np.abs(sums[:groups]).sum(axis=0) / points
            if groups > 1:
                sums[tree.splits[groups - 2].parent] += sums[groups - 1]
    return scores


@dataclass(frozen=True)
class GroupChoice:
    """How many regions: the rank weighted distances and the number they suggest.

    ``delta[k]`` is Delta^2 for M = ``counts[k]`` groups, 2, 3, ...; ``scores[k]`` (P,) are the mean scores
    for k + 1 groups.

    >>> import torch, geh_explain as geh
    >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    >>> explainer.choose_groups(torch.randn(50, 2), max_groups=5, progress=False).chosen  # the same everywhere
    1
    """

    counts: Ints
    delta: Floats
    scores: Floats
    chosen: int

    def __repr__(self) -> str:
        return f"GroupChoice(chosen={self.chosen}, of 1 to {len(self.scores)} groups)"

    def plot(self, ax: Any = None) -> Any:
        """Draw the distances against the number of groups, with the chosen one marked."""
        from geh_explain.plots.delta import delta

        return delta(self, ax=ax)


def choose(scores: Floats) -> GroupChoice:
    """Choose the smallest M after which the scores and their ranks hardly change.

    ``scores`` (M, P) are the scores for 1, 2, ..., M groups. Hardly means that no later distance exceeds a
    twentieth of the largest one, or 1e-4: a hundredth of all interaction moving by one rank.
    """
    delta = distances(scores)
    moving = np.flatnonzero(delta > max(1e-4, 0.05 * delta.max(initial=0)))
    chosen = int(moving[-1]) + 2 if len(moving) else 1
    return GroupChoice(np.arange(2, len(delta) + 2), delta, scores, chosen)
