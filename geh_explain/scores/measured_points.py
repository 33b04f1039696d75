"""How many points the sampling errors of group means were measured at."""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.scores.point_spread import POINT_DRAWS
from geh_explain.scores.protocol import GroupMeans


def error_counts(result: GroupMeans) -> Floats | Ints:
    """Return the number of points (M,) by which the error of each group's mean is known; its freedom is 1 less.

    It is ``result.effective_counts`` where local interactions of all points were looked at. Where they were of a
    sample of c points of a group in each of S draws, the pooled variance has S (c - 1) degrees of freedom. Clusters of
    points are all looked at.
    """
    counts, n_points = result.effective_counts, result.n_points
    measured = min(result.record.eah_points or n_points, n_points)
    if result.cluster_errors is not None or measured == n_points:
        return counts
    n_draws = min(POINT_DRAWS, result.scores("geh").n_draws)
    freedom = n_draws * (np.asarray(counts) * measured / n_points - 1)
    return np.asarray(np.minimum(counts, 1 + np.maximum(freedom, 1)))
