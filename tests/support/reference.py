"""A plain implementation of the method in loops, to compare with. It uses nothing of the package."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray


def local_hessians(f: Callable[[Tensor], Tensor], x: Tensor) -> Array:
    """Hessians (n, d, d) of ``f``, which maps (n, d) to (n,): double backward, point by point, column by column."""
    x = x.detach().double()
    points, units = x.shape
    hessians = np.zeros((points, units, units))
    for point in range(points):
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(f(leaf)[point], leaf, create_graph=True, materialize_grads=True)
        for column in range(units):
            entry = gradient[point, column]
            if entry.requires_grad:
                (second,) = torch.autograd.grad(entry, leaf, retain_graph=True, materialize_grads=True)
                hessians[point, :, column] = second[point].numpy()
    return hessians


def hidden_hessians(upper: Callable[[Tensor], Tensor], activations: Tensor, directions: Tensor) -> Array:
    """Hessians (n, D, D) of the upper half of a network, along ``directions`` (D, *shape) of a layer's output."""
    activations, directions = activations.detach().double(), directions.double()

    def shifted(t: Tensor) -> Tensor:
        moved = activations
        for unit in range(len(directions)):
            moved = moved + t[:, unit].reshape(-1, *(1 for _ in directions.shape[1:])) * directions[unit]
        return upper(moved)

    return local_hessians(shifted, torch.zeros(len(activations), len(directions)))


def channel_directions(shape: tuple[int, ...], axis: int) -> Tensor:
    """Directions (D, *shape) of whole channels: 1 on the channel's map, 0 elsewhere; ``axis`` is one of ``shape``'s."""
    directions = torch.zeros(shape[axis], *shape)
    for channel in range(shape[axis]):
        directions[channel].select(axis, channel).fill_(1.0)
    return directions


def aeh(local: Array) -> Array:
    """Absolute value of the mean over points, per pair; the diagonal is no pair and stays 0."""
    points, units, _ = local.shape
    scores = np.zeros((units, units))
    for i in range(units):
        for j in range(units):
            if i != j:
                scores[i, j] = abs(sum(local[point, i, j] for point in range(points)) / points)
    return scores


def eah(local: Array) -> Array:
    """Mean over points of the absolute value, per pair."""
    points, units, _ = local.shape
    scores = np.zeros((units, units))
    for i in range(units):
        for j in range(units):
            if i != j:
                scores[i, j] = sum(abs(local[point, i, j]) for point in range(points)) / points
    return scores


def geh(local: Array, labels: Sequence[int] | Array) -> Array:
    """Sum over groups of (share of the points) * |mean over the group|, per pair."""
    points, units, _ = local.shape
    scores = np.zeros((units, units))
    for group in sorted(set(np.asarray(labels).tolist())):
        members = [point for point in range(points) if labels[point] == group]
        for i in range(units):
            for j in range(units):
                if i != j:
                    mean = sum(local[point, i, j] for point in members) / len(members)
                    scores[i, j] += len(members) / points * abs(mean)
    return scores


def rank_weighted_distances(scores: Array) -> list[float]:
    """Delta^2 for M = 2, 3, ... from the scores (M, P) of 1, 2, ... groups."""
    distances = []
    for fewer, more in pairwise(scores):
        total = 0.0
        for pair in range(len(more)):
            weight_change = more[pair] / sum(more) - fewer[pair] / sum(fewer)
            total += weight_change**2 * (_rank(more, pair) - _rank(fewer, pair)) ** 2
        distances.append(total)
    return distances


def _rank(scores: Array, pair: int) -> float:
    """Rank of one score from below; ties share the mean of their ranks."""
    below = sum(score < scores[pair] for score in scores)
    equal = sum(score == scores[pair] for score in scores)
    return float(below + (equal + 1) / 2)


def mean_hessian(f: Callable[[Tensor], Tensor], x: Tensor) -> Array:
    """Absolute mean Hessian (d, d) of ``f`` over the points, with a zero diagonal: GEH of one group."""
    return aeh(local_hessians(f, x))
