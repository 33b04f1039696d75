"""The networks of the MNIST study: a LeNet as in the paper, and one whose nodes can only add evidence."""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from geh_explain.bnn import ConcreteDropout

#: The layer whose nodes are explained: the activations of the second-to-top fully connected one.
LAYER = "nodes"


def as_in_the_paper(seed: int, width: int = 84) -> nn.Sequential:
    """Return a LeNet (2 convolutional, 3 fully connected layers), softplus, with concrete dropout per node."""
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


def adding_evidence(
    seed: int, rows: int, width: int = 8, *, penalty: float = 0.15, positive: bool = True
) -> nn.Sequential:
    """Return a LeNet whose fully connected layers have non-negative weights, and nodes that are told to differ.

    A node then is on for what is there, never for what is missing: "no 4 on the left" has no node of its own. Without
    the ``penalty`` on correlated nodes, all of them would look for both digits at once. ``rows`` is how many there are
    to train with; ``positive=False`` lets all weights have any sign.
    """
    adding, voting = (_adding, _voting) if positive else (nn.Identity(), nn.Identity())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            OrderedDict[str, nn.Module](
                **_convolutions(nn.ReLU(), nn.MaxPool2d(2)),
                fc1=ConcreteDropout(adding(nn.Linear(960, 120)), length_scale=1.0),
                centre1=Centred(120, 1.0),
                act1=nn.Softplus(beta=10),
                fc2=ConcreteDropout(adding(nn.Linear(120, width)), length_scale=1.0),
                centre2=Centred(width, 3.0),
                nodes=nn.Sigmoid(),
                decorrelated=Decorrelated(penalty * rows),
                fc3=ConcreteDropout(voting(nn.Linear(width, 1)), length_scale=1.0),
            )
        )


def votes(net: nn.Module) -> list[float]:
    """Return how much each node speaks for the positive pair."""
    last = net.get_submodule("fc3")
    assert isinstance(last, ConcreteDropout)
    weights: list[float] = last.layer.weight[0].tolist()
    return weights


def _convolutions(activation: nn.Module, pool: nn.Module) -> dict[str, nn.Module]:
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
    """Makes weights non-negative."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight.abs()


class _Votes(nn.Module):
    """Makes weights lie between 0 and ``most``: no node can have more than so much of the log odds.

    They are steep in their parameters, as a few weights have to go all the way while thousands below them settle.
    """

    def __init__(self, most: float, steepness: float) -> None:
        super().__init__()
        self.most, self.steepness = most, steepness

    def forward(self, raw: Tensor) -> Tensor:
        return self.most * torch.sigmoid(self.steepness * raw)


def _adding(layer: nn.Linear) -> nn.Linear:
    parametrize.register_parametrization(layer, "weight", _Absolute())
    return layer


def _voting(layer: nn.Linear, most: float = 8.0, prior: float = -2.0) -> nn.Linear:
    """Start with votes of half of what is possible, and with the log odds ``prior`` where nodes are half on."""
    nn.init.zeros_(layer.weight)
    nn.init.constant_(layer.bias, prior - layer.in_features * most / 4)
    parametrize.register_parametrization(layer, "weight", _Votes(most, 10.0))
    return layer


class Centred(nn.Module):
    """Standardises nodes over the batch, multiplies by ``gain`` and adds a bias: sums of what is non-negative drift."""

    def __init__(self, nodes: int, gain: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(nodes, affine=False)
        self.gain = gain
        self.bias = nn.Parameter(torch.full((nodes,), -gain / 2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.gain * self.norm(x) + self.bias
        return out


class Decorrelated(nn.Module):
    """The identity, with a penalty of ``strength`` times the squared correlations of all pairs of nodes in a batch.

    ``fit`` adds it as it adds divergences from priors.
    """

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength
        self._penalty = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            centred = x - x.mean(dim=0)
            covariance = centred.T @ centred / len(x)
            spread = covariance.diagonal().clamp_min(1e-4).sqrt()
            correlation = covariance / torch.outer(spread, spread)
            self._penalty = (correlation.square().sum() - correlation.diagonal().square().sum()) / 2
        return x

    def kl(self) -> Tensor:
        """Return the penalty of the last batch."""
        return self.strength * self._penalty
