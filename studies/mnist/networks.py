"""Networks of the MNIST study: the paper's LeNet, and one whose nodes can only raise the output."""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from geh_explain.bnn import ConcreteDropout

#: The layer whose units are explained: activations of the second-to-top fully connected layer.
LAYER = "nodes"


def paper_lenet(seed: int, width: int = 84) -> nn.Sequential:
    """Return a LeNet (2 convolutional, 3 fully connected layers) with softplus and concrete dropout per node.

    It maps images (n, 1, 28, 56) to logits (n, 1). The global random state is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            OrderedDict[str, nn.Module](
                **_convolutions(nn.Softplus(beta=10), nn.AvgPool2d(2)),
                fc1=ConcreteDropout(nn.Linear(960, 120)),
                act1=nn.Softplus(beta=10),
                fc2=ConcreteDropout(nn.Linear(120, width)),
                nodes=nn.Softplus(beta=10),
                fc3=ConcreteDropout(nn.Linear(width, 1)),
            )
        )


def additive_lenet(
    seed: int, rows: int, width: int = 8, *, penalty: float = 0.15, positive: bool = True
) -> nn.Sequential:
    """Return a LeNet with non-negative weights in its fully connected layers and a penalty on correlated nodes.

    A node then responds to what is present, never to what is missing: no node can mean "no 4 on the left". Without the
    penalty all nodes would respond to both digits at once.

    Parameters
    ----------
    seed
        Seed of the initial weights; the global random state is left as it was.
    rows
        Number of training rows. ``fit`` divides penalties by it.
    width
        Nodes of the explained layer.
    penalty
        Weight of the squared correlations between nodes, per row.
    positive
        False lets all weights have any sign.
    """
    nonnegative, bounded = (_make_nonnegative, _make_bounded) if positive else (nn.Identity(), nn.Identity())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            OrderedDict[str, nn.Module](
                **_convolutions(nn.ReLU(), nn.MaxPool2d(2)),
                fc1=ConcreteDropout(nonnegative(nn.Linear(960, 120)), length_scale=1.0),
                centre1=Standardised(120, 1.0),
                act1=nn.Softplus(beta=10),
                fc2=ConcreteDropout(nonnegative(nn.Linear(120, width)), length_scale=1.0),
                centre2=Standardised(width, 3.0),
                nodes=nn.Sigmoid(),
                decorrelated=Decorrelated(penalty * rows),
                fc3=ConcreteDropout(bounded(nn.Linear(width, 1)), length_scale=1.0),
            )
        )


def output_weights(net: nn.Module) -> list[float]:
    """Return the weight of each node in the logit; a positive one raises the probability of the positive pair."""
    last = net.get_submodule("fc3")
    assert isinstance(last, ConcreteDropout)  # for the type checker: both networks are built here
    weights: list[float] = last.layer.weight[0].tolist()
    return weights


def _convolutions(activation: nn.Module, pool: nn.Module) -> dict[str, nn.Module]:
    """Return the convolutional part by layer names: (n, 1, 28, 56) to (n, 960)."""
    return {
        "conv1": nn.Conv2d(1, 6, 5, padding=2),
        "act_conv1": activation,
        "pool1": pool,
        "conv2": ConcreteDropout(nn.Conv2d(6, 16, 5)),
        "act_conv2": deepcopy(activation),
        "pool2": deepcopy(pool),
        "flatten": nn.Flatten(),
    }


class _Absolute(nn.Module):
    """Parametrisation of non-negative weights: w = abs(raw)."""

    def forward(self, raw: Tensor) -> Tensor:
        return raw.abs()


class _BoundedWeight(nn.Module):
    """Parametrisation of weights between 0 and a bound: w = bound * sigmoid(steepness * raw).

    The bound limits the share of one node in the log odds. A steep sigmoid lets these few weights cover their range in
    the steps in which the thousands of weights below them converge.
    """

    def __init__(self, bound: float, steepness: float) -> None:
        super().__init__()
        self.bound = bound
        self.steepness = steepness

    def forward(self, raw: Tensor) -> Tensor:
        return self.bound * torch.sigmoid(self.steepness * raw)


def _make_nonnegative(layer: nn.Linear) -> nn.Linear:
    """Parametrise the weights of a layer as absolute values, and return the layer."""
    parametrize.register_parametrization(layer, "weight", _Absolute())
    return layer


def _make_bounded(layer: nn.Linear, bound: float = 8.0, prior: float = -2.0) -> nn.Linear:
    """Parametrise the weights of a layer as bounded, and return the layer.

    All weights start at half the bound; the logit starts at ``prior`` where all nodes are at 0.5.
    """
    nn.init.zeros_(layer.weight)
    nn.init.constant_(layer.bias, prior - layer.in_features * bound / 4)
    parametrize.register_parametrization(layer, "weight", _BoundedWeight(bound, 10.0))
    return layer


class Standardised(nn.Module):
    """Standardises nodes over the batch, multiplies them by ``gain`` and adds a bias.

    Sums of non-negative terms drift to large values, where the activation that follows would saturate.
    """

    def __init__(self, nodes: int, gain: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(nodes, affine=False)
        self.gain = gain
        self.bias = nn.Parameter(torch.full((nodes,), -gain / 2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.gain * self.norm(x) + self.bias
        return out


class Decorrelated(nn.Module):
    """The identity, with a penalty on correlations between nodes: strength * sum over i < j of corr(x_i, x_j)^2.

    The correlations are those of the last training batch. ``fit`` adds the penalty to the loss as it adds divergences
    from priors, by the method ``kl``.
    """

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength
        self._penalty = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            centred = x - x.mean(dim=0)
            covariance = centred.T @ centred / len(x)
            # A constant node has no correlation; the floor keeps its gradient finite.
            spread = covariance.diagonal().clamp_min(1e-4).sqrt()
            correlation = covariance / torch.outer(spread, spread)
            self._penalty = (correlation.square().sum() - correlation.diagonal().square().sum()) / 2
        return x

    def kl(self) -> Tensor:
        """Return the penalty of the last training batch, a scalar."""
        return self.strength * self._penalty
