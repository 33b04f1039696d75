"""Networks and points of the cases; the networks are untrained, because curvature costs the same."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from geh_explain.vision import torchvision


@contextmanager
def _seeded(seed: int = 0) -> Iterator[None]:
    """Seed torch inside the context, and restore its random state afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def mlp(inputs: int, hidden: Sequence[int] = (100, 100, 100), dropout: float = 0.0) -> nn.Sequential:
    """Return a network with one output, the paper's softplus (beta = 10), and dropout after each hidden layer.

    The weights do not depend on ``dropout``. They require no gradients: with them torch.func would record a graph for
    the weights too, and take up to twice as long.
    """
    layers: list[nn.Module] = []
    with _seeded():
        for n_inputs, width in zip((inputs, *hidden), hidden, strict=False):
            layers += [nn.Linear(n_inputs, width), nn.Softplus(beta=10), *([nn.Dropout(dropout)] if dropout else [])]
        layers.append(nn.Linear(hidden[-1], 1))
    return nn.Sequential(*layers).eval().requires_grad_(False)


def lenet() -> nn.Sequential:
    """Return a smooth LeNet for 28 x 56 images: softplus instead of ReLU, average pooling, one output."""
    with _seeded():
        layers = OrderedDict[str, nn.Module](
            conv1=nn.Conv2d(1, 6, 5, padding=2),
            act1=nn.Softplus(beta=10),
            pool1=nn.AvgPool2d(2),
            conv2=nn.Conv2d(6, 16, 5),
            act2=nn.Softplus(beta=10),
            pool2=nn.AvgPool2d(2),
            # Not Flatten(1): torch.func passes single images, which have no batch dimension.
            flatten=nn.Flatten(-3),
            fc1=nn.Linear(16 * 5 * 12, 120),
            act3=nn.Softplus(beta=10),
            fc2=nn.Linear(120, 84),
            act4=nn.Softplus(beta=10),
            fc3=nn.Linear(84, 1),
        )
    return nn.Sequential(layers).eval().requires_grad_(False)


def convolutional(dropout: float = 0.0) -> nn.Sequential:
    """Return a small convolutional network for 12 x 12 images: two layers with ReLU, one output."""
    with _seeded():
        layers = OrderedDict[str, nn.Module](
            conv1=nn.Conv2d(1, 8, 3, padding=1),
            act1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(8, 16, 3, padding=1),
            act2=nn.ReLU(),
            pool2=nn.AdaptiveAvgPool2d(2),
            flatten=nn.Flatten(-3),
            fc1=nn.Linear(64, 32),
            act3=nn.ReLU(),
            dropout=nn.Dropout(dropout),
            fc2=nn.Linear(32, 1),
        )
    return nn.Sequential(layers).eval().requires_grad_(False)


def resnet() -> nn.Module:
    """Return torchvision's ResNet-18 with ReLUs and 1,000 classes."""
    with _seeded():
        model: nn.Module = torchvision("models").resnet18(weights=None)
    return model.eval().requires_grad_(False)


def table(points: int, columns: int) -> Tensor:
    """Return uniform points (points, columns) in (0.5, 1.5), the range of the paper."""
    return 0.5 + torch.rand(points, columns, generator=torch.Generator().manual_seed(1))


def images(points: int, channels: int, height: int, width: int) -> Tensor:
    """Return images of uniform noise (points, channels, height, width)."""
    return torch.rand(points, channels, height, width, generator=torch.Generator().manual_seed(1))
