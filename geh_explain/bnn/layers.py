"""What the layers of a Bayesian network share: they wrap a linear map, and say how far they are from their prior."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from geh_explain.errors import GEHTypeError

#: A linear map with weights, as torch has them.
Map = nn.Linear | _ConvNd


@runtime_checkable
class Bayesian(Protocol):
    """A layer that is learned as a distribution."""

    def kl(self) -> Tensor:
        """Return the divergence from the prior, up to a constant."""
        ...


def check_map(kind: str, layer: Any) -> Map:
    """Refuse what is not a linear layer or a convolution."""
    if isinstance(layer, (nn.Linear, _ConvNd)):
        return layer
    raise GEHTypeError(
        f"{kind}: layer={layer!r} is neither nn.Linear nor a convolution; wrap the layers that have weights."
    )


def input_nodes(layer: Map) -> int:
    """Return how many nodes (features, or channels) enter a layer."""
    return layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels


def squared_norms(layer: Map) -> Tensor:
    """Return the squared norm of the weights that leave each node which enters the layer."""
    squares = layer.weight.square()
    if isinstance(layer, nn.Linear):
        return squares.sum(dim=0)
    if isinstance(layer, _ConvTransposeNd):
        return squares.flatten(1).sum(dim=1)
    grouped = squares.reshape(layer.groups, -1, *squares.shape[1:])
    return grouped.transpose(1, 2).flatten(2).sum(dim=2).flatten()
