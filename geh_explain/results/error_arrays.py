"""Checks of the arrays of a saved result that hold errors over points, and of case weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from geh_explain.scores.cluster_spread import ClusterErrors

#: Maximum absolute value of a number; squares of larger ones overflow.
MAX_VALUE = 1e150


def check_weights(weights: Any, labels: Any) -> None:
    """Raise unless case weights are one number per point, positive exactly for points that are in a group."""
    if weights.shape != labels.shape or not is_finite(weights) or ((weights > 0) != (labels >= 0)).any():
        raise ValueError("its weights do not fit")
    if (weights < 0).any() or not weights.any():
        raise ValueError("its weights do not fit")


def check_point_errors(errors: Any, shape: tuple[int, int]) -> None:
    """Raise unless standard errors have this ``shape`` and are NaN or not negative."""
    if errors.shape != shape or errors.dtype != np.float64:
        raise ValueError("its standard errors of points do not fit")
    known = errors[~np.isnan(errors)]
    if not (is_finite(known) and (known >= 0).all()):
        raise ValueError("its standard errors of points do not fit")


def parse_clusters(arrays: list[Any], point_errors: Any, shape: tuple[int, int]) -> ClusterErrors:
    """Return the errors over clusters of points of a file, after checking shapes, types and ranges of the arrays."""
    groups, pairs = shape
    shapes = [(groups, groups, pairs), (groups,), ()]
    if point_errors is None or [array.shape for array in arrays] != shapes or not all(map(is_finite, arrays)):
        raise ValueError("its errors over clusters do not fit")
    covariance, counts, total = arrays
    symmetric = np.array_equal(covariance, covariance.transpose(1, 0, 2))
    if not symmetric or (np.einsum("mmp->mp", covariance) < 0).any() or (counts < 0).any() or total < 1:
        raise ValueError("its errors over clusters do not fit")
    return ClusterErrors(covariance, counts, float(total))


def is_finite(array: Any) -> bool:
    """Return whether an array holds doubles whose squares are finite."""
    return bool(array.dtype == np.float64 and (np.abs(array) < MAX_VALUE).all())
