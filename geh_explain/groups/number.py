"""The number of groups M: the smallest one whose scores reach most of those with the largest number.

For the vector of scores w_M (P,) of all pairs with M groups, normalised to sum to 1, and its ranks pi_M, the paper
looks at the rank weighted distance ::

    Delta^2_M = sum_i (w_M(i) - w_{M-1}(i))^2 (pi_M(i) - pi_{M-1}(i))^2,

which is large where one more group changes strong pairs and their order, and takes the last M at which it is not small.
A single large distance decides then, and the choice differs much between samples of points. Here the part decides that
M groups leave of the scores. Groups are nested, so that it grows with M to 1 ::

    M = min { M : mean over pairs of GEH_M / GEH_max >= 0.7, and sum over pairs of GEH_M >= 0.7 sum of GEH_max }.

In the sum strong pairs decide, in the mean all count the same. Strong pairs of one sign alone would choose a single
group for all, in which weaker ones that change their sign cancel; many weak pairs alone would hide a strong one.

Local Hessians do not depend on M, so all scores come from one pass over the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.groups.kmeans import GroupTree
from geh_explain.plots.group_number import draw_group_number

#: The part of the scores with the largest number of groups that the chosen number reaches.
_MIN_SHARE = 0.7
#: Pairs whose score is less than this part of the largest do not count in the mean.
_MIN_COUNTED = 1e-3
#: Groups need this many points on average, unless there are at most so many groups: means of fewer points are noise.
_MIN_POINTS = 10
_FEW_GROUPS = 10
#: Pairs that are processed at a time, so that temporary arrays stay small for thousands of units.
_PAIRS_AT_ONCE = 65536


@dataclass(frozen=True)
class GroupChoice:
    """The rank weighted distances for 2, 3, ... groups, and the number of groups they suggest.

    Attributes
    ----------
    counts
        Numbers of groups 2, 3, ..., shape (k,).
    delta
        Delta^2_M for each of ``counts``, shape (k,).
    scores
        Mean GEH of each pair for 1, 2, ..., k + 1 groups, shape (k + 1, P); (k + 1, 0) where memory was short.
    chosen
        The smallest number of groups whose scores reach 70 % of those with the largest number, in the mean over pairs
        and in sum.

    Examples
    --------
    The interaction is the same everywhere, so one group is enough:

    >>> import torch, geh_explain as geh
    >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    >>> explainer.choose_groups(torch.randn(50, 2), max_groups=5, progress=False)
    GroupChoice(chosen=1, of 1 to 5 groups)
    """

    counts: Ints
    delta: Floats
    scores: Floats
    chosen: int

    def __repr__(self) -> str:
        return f"GroupChoice(chosen={self.chosen}, of 1 to {len(self.scores)} groups)"

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the distances against the number of groups, with the chosen number marked; return the axes."""
        return draw_group_number(self.counts, self.delta, self.chosen, ax)


def choose_group_number(scores: Floats, n_places: int | None = None) -> GroupChoice:
    """Choose the smallest M whose scores are 70 % of those with the largest number, in the mean over pairs and in sum.

    ``scores`` (M, P) are the scores of P pairs for 1, 2, ..., M nested groups. Of ``n_places`` distinct points,
    groups hold ten or more on average, or there are at most ten groups; None for any number.

    >>> choose_group_number(np.array([[1.0, 2.0], [2.0, 6.0], [3.0, 7.0]])).chosen
    2
    """
    delta = rank_weighted_distances(scores)
    largest = len(scores) if n_places is None else max(_FEW_GROUPS, n_places // _MIN_POINTS)
    finest = scores[:largest][-1]
    counted = finest > _MIN_COUNTED * finest.max(initial=0.0)
    weights = np.divide(1, finest, out=np.zeros_like(finest), where=counted)
    # Row by row, and as a product: for thousands of units each row has millions of pairs.
    parts = np.array([(row @ weights, row.sum()) for row in scores[:largest]])
    enough = _MIN_SHARE * np.array([np.count_nonzero(counted), finest.sum()])
    chosen = int((parts >= enough).all(axis=1).argmax()) + 1
    return GroupChoice(np.arange(2, len(delta) + 2), delta, scores, chosen)


def rank_weighted_distances(scores: Sequence[Floats] | Floats) -> Floats:
    """Return Delta^2_M for M = 2, 3, ..., shape (k - 1,), of the scores (k, P) for 1, 2, ..., k groups.

    A single pair has no ranks that could change; its distance is the squared change of its score, relative to its
    largest score.
    """
    # Importing scipy.stats takes longer than most calls that never get here.
    from scipy.stats import rankdata

    scores = np.asarray(scores, dtype=np.float64)
    if scores.shape[1] == 1:
        return np.diff(scores[:, 0] / (scores.max() or 1.0)) ** 2
    # Two rows at a time: for thousands of units each row has millions of pairs.
    distances = []
    previous = None
    for row in scores:
        current = row / (row.sum() or 1.0), rankdata(row)
        if previous is not None:
            distances.append(float(((current[0] - previous[0]) ** 2 * (current[1] - previous[1]) ** 2).sum()))
        previous = current
    return np.asarray(distances)


def scores_by_group_number(tree: GroupTree, sums: Floats, points: int) -> Floats:
    """Return the GEH for 1, 2, ..., M groups, shape (M, ..., P), of one pass over the data.

    Parameters
    ----------
    tree
        The tree with M groups.
    sums
        Sums of the local interactions over the finest groups, shape (M, ..., P).
    points
        The number of points N.

    Notes
    -----
    With the sums s_m = n_m * mean_m over each group, sum_m (n_m / N) |mean_m| = sum_m |s_m| / N, so group sizes are not
    needed.

    Examples
    --------
    >>> from geh_explain.groups.kmeans import grow
    >>> tree = grow(np.array([[0.0], [1.0]]), 2, standardise=False)
    >>> scores_by_group_number(tree, np.array([[3.0], [-1.0]]), points=2)  # |3 - 1| / 2, (|3| + |-1|) / 2
    array([[1.],
           [2.]])
    """
    scores = np.empty_like(sums)
    for start in range(0, sums.shape[-1], _PAIRS_AT_ONCE):
        block = sums[..., start : start + _PAIRS_AT_ONCE].copy()
        for groups in range(tree.n_groups, 0, -1):
            scores[groups - 1, ..., start : start + _PAIRS_AT_ONCE] = np.abs(block[:groups]).sum(axis=0) / points
            # Undo the last split.
            if groups > 1:
                block[tree.splits[groups - 2].parent] += block[groups - 1]
    return scores
