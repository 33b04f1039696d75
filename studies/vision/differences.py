"""Mixed differences of a network itself, with which scores are compared."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from geh_explain._types import Floats, Ints


@torch.no_grad()
def activations(net: nn.Module, layer: nn.Module, images: Tensor) -> Tensor:
    """Return the output (n, C, H, W) of a layer."""
    outputs: list[Tensor] = []
    handle = layer.register_forward_hook(lambda module, args, out: outputs.append(out.clone()))
    try:
        net(images)
    finally:
        handle.remove()
    return outputs[0]


def channel_deviations(net: nn.Module, layer: nn.Module, images: Tensor) -> Floats:
    """Return the standard deviations (C,) over images of the means of a layer's channels."""
    means = activations(net, layer, images).mean(dim=(2, 3))
    return np.asarray(means.double().std(dim=0, correction=0).numpy())


@torch.no_grad()
def mixed_differences(
    net: nn.Module, layer: nn.Module, images: Tensor, target: Tensor | None, channels: Ints, steps: Floats
) -> Floats:
    """Return the mean mixed differences (P,) of pairs of channels, all of whose positions shift by their step.

    (f(+, +) - f(+, -) - f(-, +) + f(-, -)) / 4, with each channel's step up and down.

    Parameters
    ----------
    net, layer, images
        The network f, the layer of the channels, and images (n, 3, H, W).
    target
        The class of each image (n,); None for a network with one output.
    channels, steps
        Indices (D,) of channels, and the step (D,) of each.
    """
    first, second = np.triu_indices(len(channels), 1)
    totals = np.zeros(len(first))
    for pair, (i, j) in enumerate(zip(first, second, strict=True)):
        for sign_i in (1, -1):
            for sign_j in (1, -1):
                shifts = {int(channels[i]): sign_i * steps[i], int(channels[j]): sign_j * steps[j]}
                totals[pair] += sign_i * sign_j * _mean_output(net, layer, images, target, shifts)
    return totals / 4


def _mean_output(
    net: nn.Module, layer: nn.Module, images: Tensor, target: Tensor | None, shifts: dict[int, float]
) -> float:
    """Return the mean output over images while channels of a layer are shifted."""

    def shift(module: nn.Module, args: object, out: Tensor) -> Tensor:
        out = out.clone()
        for channel, by in shifts.items():
            out[:, channel] += by
        return out

    handle = layer.register_forward_hook(shift)
    try:
        outputs = net(images)
    finally:
        handle.remove()
    values = outputs if target is None else outputs[torch.arange(len(images)), target]
    return float(values.double().mean())
