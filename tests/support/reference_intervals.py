"""Plain intervals over points: shares, their covariance by leaving clusters out, and quantiles by simulation."""

import numpy as np
from scipy import stats


def shares_of(local: np.ndarray, labels: np.ndarray, groups: int) -> np.ndarray:
    """Return the shares (M,) of the groups in the mean of local interactions (N,)."""
    return np.array([local[labels == group].sum() for group in range(groups)]) / len(local)


def jackknife(local: np.ndarray, labels: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Return the covariance (M, M) of the shares, from the shares without one cluster at a time."""
    groups, names = labels.max() + 1, np.unique(clusters)
    shares = shares_of(local, labels, groups)
    without = [shares_of(local[clusters != name], labels[clusters != name], groups) for name in names]
    differences = np.array(without) - shares
    return (len(names) - 1) / len(names) * differences.T @ differences


def effective_number(clusters: np.ndarray) -> float:
    """Return the effective number of clusters."""
    sizes = np.unique(clusters, return_counts=True)[1]
    return sizes.sum() ** 2 / (sizes**2).sum()


def simulated_distances(
    shares: np.ndarray, covariance: np.ndarray, score: float, freedom: float, level: float = 0.95
) -> tuple[float, float]:
    """Return the distances of both ends from the score, by 400,000 draws of the errors.

    The ratio of the quantiles of Student's and the normal distribution widens the former beyond their mean.
    """
    std = np.sqrt(np.diag(covariance))
    known = np.abs(shares) > stats.t(freedom).ppf(stats.norm.cdf(3)) * std
    errors = np.random.default_rng(0).multivariate_normal(np.zeros(len(shares)), covariance, size=400_000)
    bound = np.where(known, np.sign(shares) * errors, np.abs(errors)).sum(axis=1)
    probability = (1 + level) / 2
    down = np.quantile(bound, probability)
    if freedom < 1e6:
        down = bound.mean() + (down - bound.mean()) * stats.t(freedom).ppf(probability) / stats.norm.ppf(probability)
    signs = np.where(shares < 0, -1.0, 1.0)
    half_width = stats.t(freedom).ppf(probability) * np.sqrt(signs @ covariance @ signs)
    return down, half_width + half_width**2 / (2 * max(score, half_width))
