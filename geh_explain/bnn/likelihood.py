"""Negative log likelihoods of a network's outputs, as means over rows and up to constants."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(out: Tensor, y: Tensor) -> Tensor:
    """Return the mean cross-entropy of logits (n, classes), or (n, 1) for two classes, and classes (n,).

    >>> cross_entropy(torch.zeros(3, 1), torch.tensor([0, 1, 1])).item() == cross_entropy(
    ...     torch.zeros(3, 2), torch.tensor([0, 1, 1])
    ... ).item()
    True
    """
    out = out.reshape(len(y), -1)
    if out.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(out[:, 0], y.to(out))
    return F.cross_entropy(out, y)


def heteroscedastic_nll(out: Tensor, y: Tensor) -> Tensor:
    """Return the mean negative log likelihood of N(mean, exp(log_variance)), where the network outputs both.

    For each row it is ::

        1/2 * sum_k [(mean_k - y_k)^2 / exp(log_variance_k) + log_variance_k]

    ``out`` (n, 2 k) holds the means of all k targets first, then their log variances; ``y`` is (n, k).
    """
    mean, log_variance = torch.split(out.reshape(len(y), -1), y.shape[1], dim=1)
    return ((mean - y).square() * (-log_variance).exp() + log_variance).sum(dim=1).mean() / 2


def homoscedastic_nll(squared_errors: Tensor, noise: Tensor) -> Tensor:
    """Return the mean negative log likelihood of normal distributions with the variances ``noise`` (k,).

    For each row it is ::

        1/2 * sum_k [squared_errors_k / noise_k + log noise_k]

    ``squared_errors`` is (n, k).
    """
    return (squared_errors / (2 * noise)).sum(dim=1).mean() + noise.log().sum() / 2
