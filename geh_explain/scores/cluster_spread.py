"""Sampling errors of group means where points come in clusters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geh_explain._types import Floats, Ints

#: Numbers of cluster sums that are held at a time.
_MAX_NUMBERS = 2**22


@dataclass(frozen=True)
class ClusterErrors:
    """Errors over the choice of clusters of points.

    Attributes
    ----------
    covariance
        Covariance (M, M, P) of the groups' shares (n_m / N) * (mean interaction of group m), see
        :class:`ClusterSpread`.
    counts
        Effective number of clusters (M,) with points in each group: (sum of sizes)^2 / sum of squared sizes.
    total
        Effective number of all clusters.
    """

    covariance: Floats
    counts: Floats
    total: float


class ClusterSpread:
    """Jackknife over clusters of the group means, averaged over draws.

    Cluster g has N_g of all N points and the sum S_gm of local interactions in group m, G clusters in all. The share of
    group m in the score is phi_m = sum_g S_gm / N, so that GEH = sum_m |phi_m|. Without cluster g it changes by
    -u_gm / (N - N_g), and the jackknife estimate of the covariance is ::

        u_gm = S_gm - phi_m N_g,    cov(phi_m, phi_l) = (G - 1) / G  sum_g u_gm u_gl / (N - N_g)^2.

    For clusters of equal size this is G / (G - 1) sum_g u_gm u_gl / N^2, the usual cluster-robust covariance; the
    correlation of groups in which the same clusters have points is part of it. For clusters of one point it is the
    covariance of independent points. The error of the mean of a group is that of sum_g S_gm / sum_g n_gm over the
    clusters with n_gm > 0 points in it, in the same way. With case weights sums are weighted, and N_g, n_gm and N are
    sums of weights.

    Examples
    --------
    >>> import numpy as np
    >>> spread = ClusterSpread(np.array([0, 1]), np.array([2, 2]))  # two clusters of two points
    >>> spread.add(np.array([[2.0], [6.0]]), np.array([0, 0]), 1)  # in one group; their means are 1 and 3
    >>> spread.errors().tolist(), spread.cluster_errors().covariance.tolist()
    ([[1.0]], [[[1.0]]])
    """

    def __init__(self, clusters: Ints, sizes: Ints | Floats) -> None:
        self.n_draws = 0
        self._clusters = clusters
        self._sizes = sizes
        #: Sums over draws of covariances (M, M, P) and of variances (M, P) of means.
        self._covariance: Floats = np.zeros(())
        self._variance: Floats = np.zeros(())
        #: Points (G, M) of each cluster in each group.
        self._points: Floats = np.zeros(())

    def add(self, sums: Floats, groups: Ints, n_groups: int) -> None:
        """Update with one draw: sums (C, P) of local interactions over cells, and the groups (C,) of the cells."""
        shape = int(self._clusters.max()) + 1, n_groups
        self._points = np.zeros(shape)
        np.add.at(self._points, (self._clusters, groups), self._sizes)
        step = max(1, _MAX_NUMBERS // (shape[0] * shape[1]))
        blocks = [self._block(sums[:, start : start + step], groups) for start in range(0, sums.shape[1], step)]
        covariance, variance = (np.concatenate(parts, axis=-1) for parts in zip(*blocks, strict=True))
        self.n_draws += 1
        self._covariance = self._covariance + covariance
        self._variance = self._variance + variance

    def _block(self, sums: Floats, groups: Ints) -> tuple[Floats, Floats]:
        """Return covariances (M, M, p) of shares and variances (M, p) of means, of p pairs."""
        points = self._points
        by_cluster = np.zeros((*points.shape, sums.shape[1]))
        np.add.at(by_cluster, (self._clusters, groups), sums)
        total, of_clusters = points.sum(), points.sum(axis=1)
        n_clusters = len(points)
        shares = by_cluster.sum(axis=0) / total
        left_out = by_cluster - of_clusters[:, None, None] * shares
        left_out /= (total - of_clusters)[:, None, None]
        # One matrix product (M, G) @ (G, M) per pair.
        by_pair = left_out.transpose(2, 0, 1)
        covariance = (by_pair.transpose(0, 2, 1) @ by_pair).transpose(1, 2, 0) * ((n_clusters - 1) / n_clusters)
        # Products of a matrix with its transpose may differ from their own transpose in the last digit.
        covariance = (covariance + covariance.transpose(1, 0, 2)) / 2
        return covariance, self._mean_variances(by_cluster)

    def _mean_variances(self, by_cluster: Floats) -> Floats:
        """Return the variances (M, p) of group means; NaN for groups with points of one cluster only."""
        points, sizes = self._points, self._points.sum(axis=0)
        counts = (points > 0).sum(axis=0)
        means = by_cluster.sum(axis=0) / np.where(sizes > 0, sizes, 1)[:, None]
        left_out = by_cluster - points[:, :, None] * means
        # A group of one cluster has no others; rounding may leave a tiny sum of weights.
        others = np.where(counts > 1, sizes - points, 1.0)
        left_out /= others[:, :, None]
        variance = np.einsum("gmp,gmp->mp", left_out, left_out) * ((counts - 1) / np.maximum(counts, 1))[:, None]
        variance[counts < 2] = np.nan
        return np.asarray(variance)

    def errors(self) -> Floats:
        """Return the standard errors (M, P) of the group means."""
        return np.asarray(np.sqrt(self._variance / self.n_draws))

    def cluster_errors(self) -> ClusterErrors:
        """Return the covariance of the groups' shares, and effective numbers of clusters."""
        counts = _effective(self._points)
        total = float(_effective(self._points.sum(axis=1, keepdims=True))[0])
        return ClusterErrors(self._covariance / self.n_draws, counts, total)


def _effective(points: Floats) -> Floats:
    """Return the effective number of clusters (M,) from the number of points (G, M) of each.

    >>> import numpy as np
    >>> _effective(np.array([[3.0], [3.0], [0.0]])).tolist()
    [2.0]
    """
    squares = (points**2).sum(axis=0)
    return np.asarray(points.sum(axis=0) ** 2 / np.where(squares > 0, squares, 1))
