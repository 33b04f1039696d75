"""The networks and points of the cases, untrained: curvature costs the same before training."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from geh_explain.vision import torchvision


@contextmanager
def _seeded(seed: int = 0) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def mlp(inputs: int, hidden: Sequence[int] = (100, 100, 100), dropout: float = 0.0) -> nn.Sequential:
    """Return a network with one output, softplus of the paper's sharpness, and dropout after each hidden layer.

    The weights do not depend on ``dropout``. They do not want gradients: torch.func would record a graph for them
    too, and take up to twice as long.
    """
    layers: list[nn.Module] = []
    with _seeded():
        for before, width in zip((inputs, *hidden), hidden, strict=False):
            layers += [nn.Linear(before, width), nn.Softplus(beta=10), *([nn.Dropout(dropout)] if dropout else [])]
        layers.append(nn.Linear(hidden[-1], 1))
    return nn.Sequential(*layers).eval().requires_grad_(False)


def lenet() -> nn.Sequential:
    """Return a LeNet for 28 x 56 images that is smooth: softplus for ReLU, average pooling, one output."""
    with _seeded():
        layers = OrderedDict[str, nn.Module](
            conv1=nn.Conv2d(1, 6, 5, padding=2),
            act1=nn.Softplus(beta=10),
            pool1=nn.AvgPool2d(2),
            conv2=nn.Conv2d(6, 16, 5),
            act2=nn.Softplus(beta=10),
            pool2=nn.AvgPool2d(2),
            # Not 1: torch.func calls the network on single images, which have no batch dimension.
            flatten=nn.Flatten(-3),
            fc1=nn.Linear(16 * 5 * 12, 120),
            act3=nn.Softplus(beta=10),
            fc2=nn.Linear(120, 84),
            act4=nn.Softplus(beta=10),
            fc3=nn.Linear(84, 1),
        )
    return nn.Sequential(layers).eval().requires_grad_(False)


def resnet() -> nn.Module:
    """Return torchvision's ResNet-18, with its ReLUs and 1,000 classes."""
    with _seeded():
        model: nn.Module = torchvision("models").resnet18(weights=None)
    return model.eval().requires_grad_(False)


def table(points: int, columns: int) -> Tensor:
    """Return points scaled as in the paper, to (0.5, 1.5)."""
    return 0.5 + torch.rand(points, columns, generator=torch.Generator().manual_seed(1))


def images(points: int, channels: int, height: int, width: int) -> Tensor:
    """Return images of noise."""
    return torch.rand(points, channels, height, width, generator=torch.Generator().manual_seed(1))
