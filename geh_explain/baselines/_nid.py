"""Neural interaction detection: pairs by the weights of the first hidden layer (Tsang, Cheng & Liu, 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from geh_explain.baselines.table import column_names
from geh_explain.bnn.hybrid import HybridNet
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.scores.ranking import PairRanking


def nid(model: nn.Module, *, names: Sequence[str] | None = None) -> PairRanking:
    """Rank pairs of inputs by the weights of an MLP, or of the interaction network of a HybridNet.

    With the weights W1 of the first layer and those of the layers above, the score of a pair is ::

        score_ij = sum_h z_h * min(|W1_hi|, |W1_hj|),    z = |W_L| |W_(L-1)| ... |W2|, summed over outputs

    The influence z_h bounds how much hidden unit h can change the output.

    Parameters
    ----------
    model
        A module whose linear layers form an MLP in the order of ``model.modules()``, or a
        :class:`~geh_explain.bnn.HybridNet`, whose mean weights are read.
    names
        Names of the inputs; x0, x1, ... by default.

    Raises
    ------
    GEHTypeError
        If ``model`` is not a module.
    GEHValueError
        If it has fewer than two linear layers, or their widths do not follow each other.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.5, -1.0]]))
    >>> _ = net[2].weight.data.copy_(torch.tensor([[1.0, -3.0]]))
    >>> nid(net).scores.tolist()
    [1.0, 0.0, 1.5]
    """
    first, *upper = _absolute_weights(model)
    influence = torch.ones(upper[-1].shape[0], dtype=torch.double)
    for weight in reversed(upper):
        influence = influence @ weight
    n_features = first.shape[1]
    i, j = torch.triu_indices(n_features, n_features, 1)
    scores = influence @ torch.minimum(first[:, i], first[:, j])
    return PairRanking("NID", scores.numpy(), column_names(n_features, names))


def _absolute_weights(model: nn.Module) -> list[Tensor]:
    """Return the absolute weight matrices (out, in) of an MLP in double precision, from the inputs to the outputs."""
    if not isinstance(model, nn.Module):
        raise GEHTypeError(f"model={model!r} is not a torch.nn.Module; pass an MLP, whose weights nid reads.")
    if isinstance(model, HybridNet) and (model.pairs is not None or model.triples is not None):
        raise GEHTypeError(
            "model: nid reads the weights of an MLP, and part of the interactions of this HybridNet are products of "
            "polynomials; pass HybridNet(..., pairs=0, triples=0)."
        )
    # Linear main effects of a HybridNet have no part in interactions.
    body = model.interactions if isinstance(model, HybridNet) else model
    layers = [module for module in body.modules() if isinstance(module, nn.Linear)]
    weights = [layer.weight.detach().double().cpu().abs() for layer in layers]
    if len(weights) < 2 or any(below.shape[0] != above.shape[1] for below, above in pairwise(weights)):
        shapes = [tuple(weight.shape) for weight in weights]
        raise GEHValueError(
            f"model: nid needs an MLP, at least two linear layers of matching widths; this one has weights of shapes "
            f"{shapes}."
        )
    return weights
