"""Linear maps that Bayesian layers wrap, and the protocol by which :func:`geh_explain.bnn.fit` finds those layers."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from geh_explain.errors import GEHTypeError

#: Layers with a weight tensor that are linear in their input: nn.Linear and (transposed) convolutions of any rank.
LinearMap = nn.Linear | _ConvNd


@runtime_checkable
class BayesianLayer(Protocol):
    """A layer whose weights have a learned distribution q and a prior.

    :func:`geh_explain.bnn.fit` adds ``kl() / n_rows`` of every module with this method to its objective, so a custom
    Bayesian layer needs nothing else to be trained.
    """

    def kl(self) -> Tensor:
        """Return the divergence KL(q || prior) of the layer, a scalar tensor, up to a constant."""
        ...


def check_linear_map(owner: str, layer: Any) -> LinearMap:
    """Return ``layer`` if it is a linear layer or a convolution.

    Parameters
    ----------
    owner
        Name of the class that wraps the layer, for the message.
    layer
        The module to check.

    Raises
    ------
    GEHTypeError
        For any other module or object.
    """
    if isinstance(layer, (nn.Linear, _ConvNd)):
        return layer
    raise GEHTypeError(
        f"{owner}: layer={layer!r} is neither nn.Linear nor a convolution; wrap the layers that have weights."
    )


def input_nodes(layer: LinearMap) -> int:
    """Return the number of input nodes: the features of a linear layer, the channels of a convolution.

    >>> input_nodes(nn.Linear(3, 8)), input_nodes(nn.Conv2d(4, 6, 3, groups=2))
    (3, 4)
    """
    return layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels


def squared_norms(layer: LinearMap) -> Tensor:
    """Return the squared norms (n_nodes,) of the weights that multiply each input node, ``||W_:,j||^2``.

    >>> import torch
    >>> layer = nn.Linear(2, 3)
    >>> layer.weight.data = torch.tensor([[1.0, 0.0], [2.0, 0.0], [2.0, 1.0]])
    >>> squared_norms(layer).tolist()
    [9.0, 1.0]
    """
    squares = layer.weight.square()
    if isinstance(layer, nn.Linear):
        return squares.sum(dim=0)
    if isinstance(layer, _ConvTransposeNd):
        # The first dimension of a transposed convolution's weight is the input channels, for any number of groups.
        return squares.flatten(1).sum(dim=1)
    # The weight is (out, in / groups, ...): input channel j meets the outputs of its own group only.
    grouped = squares.reshape(layer.groups, -1, *squares.shape[1:])
    return grouped.transpose(1, 2).flatten(2).sum(dim=2).flatten()
