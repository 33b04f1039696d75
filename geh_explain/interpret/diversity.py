"""Choice of exemplars that differ from one another: one per cluster, or far apart in the layer's activations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.groups.grouping import is_missing

#: Candidates with the highest scores among which diverse ones are chosen, per chosen one.
POOL_FACTOR = 4
#: Number of features by which candidates are compared; a random projection keeps distances between many more.
_MAX_FEATURES = 64


def cluster_codes(clusters: Any, argument: str = "clusters") -> Tensor | None:
    """Return clusters as integers (n,), equal for equal labels; None stays None.

    >>> cluster_codes(["cat", "dog", "cat"])
    tensor([0, 1, 0])

    Raises
    ------
    GEHTypeError, GEHValueError
        If ``clusters`` is not a list or array of labels, or some are missing.
    """
    if clusters is None:
        return None
    labels = np.asarray(clusters.cpu() if isinstance(clusters, Tensor) else clusters)
    if labels.ndim != 1:
        raise GEHTypeError(
            f"{argument}={clusters!r} is not supported; give one label for each candidate, such as the name of its "
            "photograph."
        )
    if any(map(is_missing, labels.tolist())):
        raise GEHValueError(f"{argument} has missing labels; give every candidate one, such as its own name.")
    return torch.from_numpy(np.unique(labels.astype(str), return_inverse=True)[1].astype(np.int64))


def check_cluster_count(codes: Tensor | None, n_candidates: int) -> None:
    """Raise GEHValueError if there are more or fewer clusters than candidates."""
    if codes is not None and len(codes) != n_candidates:
        raise GEHValueError(
            f"clusters has {len(codes)} entries for {n_candidates} candidates; give one label for each candidate."
        )


def ranks_in_cluster(codes: Tensor) -> Tensor:
    """Return how often each code (U, m) occurs before it in its row.

    >>> ranks_in_cluster(torch.tensor([[5, 2, 5, 5, 2]])).tolist()
    [[0, 0, 1, 2, 1]]
    """
    ordered, order = torch.sort(codes, dim=1, stable=True)
    positions = torch.arange(codes.shape[1]).expand_as(codes)
    is_start = torch.ones_like(codes, dtype=torch.bool)
    is_start[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    starts = torch.where(is_start, positions, torch.zeros_like(positions)).cummax(dim=1).values
    return torch.empty_like(codes).scatter_(1, order, positions - starts)


def one_per_cluster(codes: Tensor, k: int) -> Tensor:
    """Return the positions (U, k) of the best candidate of each cluster, then of the second best, and so on.

    ``codes`` (U, m) are the clusters of candidates in the order of their scores, best first; so are the positions.
    """
    by_rank = torch.sort(ranks_in_cluster(codes), dim=1, stable=True).indices
    return torch.sort(by_rank[:, :k], dim=1).values


def choose_diverse(scores: Tensor, features: Tensor, k: int) -> Tensor:
    """Return the positions (k,) of candidates with high scores that differ from one another, best first.

    The best candidate is the first. Each further one maximises

        (s - s_min) / (s_max - s_min) + min(1, d / median d)

    with its score s and its distance d to the nearest candidate chosen so far.

    Parameters
    ----------
    scores
        Scores (m,), best first, m >= k.
    features
        Features (m, F) of the candidates; their distances are Euclidean, with features of variance 1.
    k
        Number of candidates to choose.
    """
    spread = features.std(dim=0, correction=0)
    standard = (features - features.mean(dim=0)) / torch.where(spread > 0, spread, torch.ones_like(spread))
    distances = torch.cdist(standard.double(), standard.double())
    typical = distances[~torch.eye(len(scores), dtype=torch.bool)].median() if len(scores) > 1 else torch.ones(())
    closeness = (distances / typical.clamp_min(1e-12)).clamp(max=1)
    height = (scores - scores[-1]) / (scores[0] - scores[-1]).clamp_min(1e-12)
    chosen = [0]
    while len(chosen) < k:
        gain = height + closeness[:, chosen].min(dim=1).values
        gain[chosen] = -torch.inf
        chosen.append(int(gain.argmax()))
    return torch.tensor(sorted(chosen))


class Features:
    """Description of candidates by at most 64 numbers: the layer's output, averaged over the positions of maps.

    Wider outputs are projected by a fixed random matrix, which keeps distances up to about 20 %.
    """

    def __init__(self) -> None:
        self._projection: Tensor | None = None

    def __call__(self, activations: Tensor) -> Tensor:
        """Return the features (n, F) of a layer's output ``(n, *shape)``."""
        pooled = activations.flatten(2).mean(dim=2) if activations.ndim == 4 else activations.flatten(1)
        pooled = pooled.float().cpu()
        width = pooled.shape[1]
        if width <= _MAX_FEATURES:
            return pooled
        if self._projection is None:
            generator = torch.Generator().manual_seed(0)
            self._projection = torch.randn(width, _MAX_FEATURES, generator=generator) / _MAX_FEATURES**0.5
        return pooled @ self._projection
