"""The groups of a result: how many points they hold, and how much these count."""

from __future__ import annotations

import numpy as np

from geh_explain._process import cached_property
from geh_explain._types import Floats, Ints
from geh_explain.groups.grouping import count_labels
from geh_explain.scores.cluster_spread import ClusterErrors
from geh_explain.scores.draws import DrawMoments, Draws
from geh_explain.scores.pair_cells import PairCells


class GroupShares:
    """Base class of :class:`geh_explain.Interactions`: sizes and shares of the groups.

    Group m holds n_m of N points with case weights w, or w = 1. Then ::

        GEH = sum_m shares_m | mean_m |,    shares_m = sum of w over group m / sum of w over all points.
    """

    labels: Ints
    group_names: list[str]
    #: Case weights (N,), of mean 1 over the points that count, 0 for the others; None where all points count alike.
    sample_weight: Floats | None
    #: The groups of each pair, with ``groups="pairwise"``; None where all pairs have the same groups.
    pair_cells: PairCells | None
    _draws: Draws | DrawMoments

    @property
    def cluster_errors(self) -> ClusterErrors | None:
        """Covariance of the groups' shares and effective numbers of clusters; None where points are independent."""
        return self._draws.cluster_errors

    @property
    def weight_moments(self) -> Floats | None:
        """Sums (M, P) that complete ``point_errors`` where points have case weights, else None."""
        return self._draws.weight_moments

    @cached_property
    def n_points(self) -> int:
        """Number of points that count: those of weight 0 do not."""
        return int(count_labels(self.labels, len(self.group_names)).sum())

    @cached_property
    def sizes(self) -> Ints:
        """Number of points of each group (M,); points of weight 0 are in none.

        With ``groups="pairwise"`` each pair has groups of its own, and the shape is (M, P). Pairs without a third unit
        have four groups; the others are empty.
        """
        if self.pair_cells is not None:
            return self.pair_cells.sizes
        return count_labels(self.labels, len(self.group_names))

    @cached_property
    def group_shares(self) -> Floats:
        """Share of each group (M,) in the sum of the case weights; in the number of points without weights.

        >>> import torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> x, w = torch.rand(4, 2), [1, 1, 1, 5]
        >>> result = explainer.explain(x, groups=["a", "a", "b", "b"], sample_weight=w, progress=False)
        >>> result.sizes.tolist(), result.group_shares.round(3).tolist()
        ([2, 2], [0.25, 0.75])
        """
        return np.asarray(self.weight_sums / self.weight_sums.sum(axis=0))

    @cached_property
    def weight_sums(self) -> Floats | Ints:
        """Sum of the case weights of each group (M,); its number of points without weights."""
        return self.sizes if self.sample_weight is None else self._sum_by_group(self.sample_weight)

    @cached_property
    def effective_counts(self) -> Floats | Ints:
        """Number of points (M,) that the error of each group's mean rests on, or of clusters of points.

        With case weights w it is (sum of w)^2 / sum of w^2 over the group, after Kish.
        """
        if self.cluster_errors is not None:
            return self.cluster_errors.counts
        if self.sample_weight is None:
            return self.sizes
        squares = self._sum_by_group(self.sample_weight**2)
        return np.asarray(self.weight_sums**2 / np.where(squares > 0, squares, 1.0))

    def _sum_by_group(self, values: Floats) -> Floats:
        """Return the sums (M,) of ``values`` (N,) over the points of each group."""
        inside = self.labels >= 0
        return np.bincount(self.labels[inside], values[inside], len(self.group_names)).astype(float)
