"""Small networks that several suites use."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn


def mlp(
    *widths: int,
    activation: Callable[[], nn.Module] = nn.Tanh,
    dropout: float | None = None,
    seed: int | None = 0,
    gain: float = 1.0,
    dtype: torch.dtype = torch.double,
) -> nn.Sequential:
    """Return linear layers of these widths with activations in between.

    Parameters
    ----------
    widths
        Inputs, hidden units of each layer, and outputs.
    activation
        Makes the module after each linear layer but the last.
    dropout
        Rate of a dropout layer after the first activation; None for no such layer.
    seed
        Seed of the weights; None continues the global generator.
    gain
        Factor of all weights and biases. Larger weights give larger second derivatives.
    dtype
        Type of the weights, which are sampled in single precision.
    """
    if seed is not None:
        torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        if number:
            layers.append(activation())
        if number == 1 and dropout is not None:
            layers.append(nn.Dropout(dropout))
        layers.append(nn.Linear(inputs, outputs))
    net = nn.Sequential(*layers).to(dtype)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(gain)
    return net


def dropout_network(inputs: int = 3) -> nn.Sequential:
    """Return a tanh network in single precision with one output and dropout of 0.3 after its first hidden layer."""
    return mlp(inputs, 8, 8, 1, dropout=0.3, dtype=torch.float)


def cnn(seed: int = 0) -> nn.Sequential:
    """Return a network from (1, 6, 6) by (3, 4, 4) and (4, 2, 2) to two outputs."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.Softplus(), nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(16, 2)
    ).double()
