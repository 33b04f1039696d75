"""Many small networks, trained at the same time: one batched matrix product per layer for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from geh_explain._types import Floats

_WIDTH = 64
_BATCH_SIZE = 200
_LEARNING_RATE = 1e-2
#: Epochs of each kind of fit: few for underfitted, many for overfitted networks.
_EPOCHS = {"usual": 40, "under": 3, "over": 150}
#: Steps of a usual fit; more rows than 4,000 are passed fewer times.
_MAX_STEPS = 1_500


def train_together(
    inputs: Sequence[Floats], labels: Sequence[Floats], *, fit: str, task: str, seed: int
) -> list[nn.Sequential]:
    """Train one network of two hidden layers for each data set, and return them in eval mode.

    Parameters
    ----------
    inputs, labels
        Inputs (n, F) and labels (n,) of each data set, all of the same size.
    fit
        ``"usual"``, ``"under"`` or ``"over"``.
    task
        ``"numbers"``, ``"binary"`` or ``"classes"``, which choose the loss and the number of outputs.
    seed
        Decides on initial weights and the order of rows.
    """
    means, spreads = (np.stack([getattr(x, name)(axis=0) for x in inputs]) for name in ("mean", "std"))
    x = torch.tensor(np.stack(inputs) - means[:, None], dtype=torch.float32) / torch.tensor(
        spreads[:, None], dtype=torch.float32
    )
    y = torch.tensor(np.stack(labels), dtype=torch.float32)
    outputs = 3 if task == "classes" else 1
    parameters = _initial(len(inputs), (x.shape[2], _WIDTH, _WIDTH, outputs), seed)
    _optimise(parameters, x, y, fit, task, seed)
    return [_network([p[k] for p in parameters], means[k], spreads[k]) for k in range(len(inputs))]


def _initial(count: int, sizes: Sequence[int], seed: int) -> list[Tensor]:
    """Return weights (count, in, out) and biases (count, 1, out) of all layers."""
    generator = torch.Generator().manual_seed(seed)
    parameters = []
    for below, above in pairwise(sizes):
        parameters.append(torch.randn(count, below, above, generator=generator) / below**0.5)
        parameters.append(torch.zeros(count, 1, above))
    return [parameter.requires_grad_() for parameter in parameters]


def _forward(parameters: Sequence[Tensor], x: Tensor) -> Tensor:
    """Return the outputs (count, n, out) of all networks at inputs (count, n, F)."""
    for layer in range(0, len(parameters), 2):
        x = torch.baddbmm(parameters[layer + 1], x, parameters[layer])
        x = functional.silu(x) if layer + 2 < len(parameters) else x
    return x


def _optimise(parameters: list[Tensor], x: Tensor, y: Tensor, fit: str, task: str, seed: int) -> None:
    """Minimise the sum of the networks' losses."""
    rows = x.shape[1]
    per_epoch = rows // _BATCH_SIZE
    steps = _EPOCHS[fit] * per_epoch
    if fit == "usual":
        steps = min(steps, _MAX_STEPS)
    optimiser = torch.optim.AdamW(parameters, weight_decay=1e-2 if fit == "usual" else 0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, _LEARNING_RATE if fit != "under" else _LEARNING_RATE / 3, total_steps=steps
    )
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(rows, generator=generator)
        batch = order[step % per_epoch * _BATCH_SIZE :][:_BATCH_SIZE]
        optimiser.zero_grad()
        torch.autograd.backward(_loss(_forward(parameters, x[:, batch]), y[:, batch], task))
        optimiser.step()
        schedule.step()


def _loss(outputs: Tensor, labels: Tensor, task: str) -> Tensor:
    """Return the sum over networks of the mean losses of their rows."""
    if task == "classes":
        losses = functional.cross_entropy(outputs.transpose(1, 2), labels.long(), reduction="none")
    elif task == "binary":
        losses = functional.binary_cross_entropy_with_logits(outputs[..., 0], labels, reduction="none")
    else:
        losses = (outputs[..., 0] - labels) ** 2
    return losses.mean(dim=1).sum()


def _network(parameters: Sequence[Tensor], mean: Floats, spread: Floats) -> nn.Sequential:
    """Return one network as a module that takes inputs in their own units."""
    layers: list[nn.Module] = []
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        linear = nn.Linear(*weight.shape)
        linear.weight.data.copy_(weight.detach().T)
        linear.bias.data.copy_(bias.detach()[0])
        layers += [linear, nn.SiLU()]
    first: Any = layers[0]
    # The first layer takes up the standardisation of the inputs.
    first.weight.data /= torch.as_tensor(spread, dtype=torch.float32)
    first.bias.data -= first.weight.data @ torch.as_tensor(mean, dtype=torch.float32)
    return nn.Sequential(*layers[:-1]).eval()
