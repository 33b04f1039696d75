"""Neural interaction detection: what meets in the first hidden layer (Tsang, Cheng & Liu, 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from geh_explain.baselines.table import names_for
from geh_explain.bnn.hybrid import HybridNet
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.scores.ranking import PairRanking


def nid(model: nn.Module, *, names: Sequence[str] | None = None) -> PairRanking:
    """Rank pairs of inputs by the weights of an MLP, or of a :class:`~geh_explain.bnn.HybridNet`'s mean network.

    Each unit of the first hidden layer counts with the smaller of its two absolute weights, times its influence
    on the output: the product of the absolute weight matrices above it.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.5, -1.0]]))
    >>> _ = net[2].weight.data.copy_(torch.tensor([[1.0, -3.0]]))
    >>> nid(net).scores.tolist()
    [1.0, 0.0, 1.5]
    """
    weights = _weights(model)
    influence = torch.ones(weights[-1].shape[0], dtype=torch.double)
    for weight in reversed(weights[1:]):
        influence = influence @ weight
    first = weights[0]
    i, j = torch.triu_indices(first.shape[1], first.shape[1], 1)
    scores = influence @ torch.minimum(first[:, i], first[:, j])
    return PairRanking("NID", scores.numpy(), names_for(first.shape[1], names))


def _weights(model: nn.Module) -> list[Tensor]:
    """Return the absolute weights of an MLP, from the inputs on."""
    if not isinstance(model, nn.Module):
        raise GEHTypeError(f"model={model!r} is no torch.nn.Module; nid reads the weights of an MLP.")
    body = model.interactions if isinstance(model, HybridNet) else model
    layers = [module for module in body.modules() if isinstance(module, nn.Linear)]
    weights = [layer.weight.detach().double().cpu().abs() for layer in layers]
    if len(weights) < 2 or any(a.shape[0] != b.shape[1] for a, b in pairwise(weights)):
        shapes = [tuple(weight.shape) for weight in weights]
        raise GEHValueError(
            f"model: nid needs an MLP, linear layers that follow each other, and found weights of shapes {shapes}."
        )
    return weights
