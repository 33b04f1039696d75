"""Inputs outside of the range on which a network was trained, where the network says what that is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain.model.view import forward_hook
from geh_explain.posterior.protocols import fixed
from geh_explain.run.plan import RunPlan

#: Attributes of a model that hold a mapping with "mean" and "std": those of timm.
_CONFIGS = ("pretrained_cfg", "default_cfg")
#: Part of the values that may lie outside, and by which part of the range: interpolation overshoots.
_MAX_SHARE = 0.01
_MARGIN = 0.05
#: Rows and columns of pixels that are looked at: 64 images of a camera would take gigabytes in double precision.
_MAX_SIDE = 256
#: A channel is far from the running statistics if its mean is off by so many standard deviations, or its own standard
#: deviation is so many times theirs.
_MAX_OFFSET = 5.0
_MAX_RATIO = 10.0


def input_range_warning(plan: RunPlan) -> str | None:
    """Return what is wrong with the range of the inputs; None where nothing is, or where the range is not known."""
    inputs = [rows.inputs for rows in plan.points.spread]
    if len(inputs[0]) != 1 or not inputs[0][0].is_floating_point():
        return None
    values = torch.cat([_thinned(x) for (x,) in inputs])
    found = _preprocessing(plan.cut.model)
    if found is not None and values.ndim == 4 and values.shape[1] == len(found[0]):
        return _normalisation_warning(values, *found)
    if not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in plan.cut.model.modules()):
        return None
    with fixed(plan.posterior, plan.cut.model, plan.options.seed):
        norm = _input_norm(plan)
    return None if norm is None else _statistics_warning(values, *norm)


def _thinned(x: Tensor) -> Tensor:
    """Return images (n, C, H, W) with at most about 256 rows and columns of pixels; other inputs as they are."""
    if x.ndim != 4:
        return x
    height, width = (max(1, size // _MAX_SIDE) for size in x.shape[2:])
    return x[:, :, ::height, ::width]


def _preprocessing(model: nn.Module) -> tuple[Tensor, Tensor, str] | None:
    """Return mean and standard deviation (C,) by which images of the range 0 to 1 are normalised, and their source."""
    for name in _CONFIGS:
        config = getattr(model, name, None)
        values = config if isinstance(config, Mapping) else getattr(config, "__dict__", {})
        found = _as_pair(values.get("mean"), values.get("std"))
        if found is not None:
            return *found, f"model.{name}"
    found = _as_pair(getattr(model, "image_mean", None), getattr(model, "image_std", None))
    return None if found is None else (*found, "model.image_mean")


def _as_pair(mean: Any, std: Any) -> tuple[Tensor, Tensor] | None:
    """Return two lists of as many numbers as tensors; None for anything else."""
    try:
        first, second = torch.as_tensor(mean, dtype=torch.double), torch.as_tensor(std, dtype=torch.double)
    except (TypeError, ValueError, RuntimeError):
        return None
    ok = first.ndim == 1 and first.shape == second.shape and bool((second > 0).all())
    return (first.cpu(), second.cpu()) if ok else None


def _normalisation_warning(images: Tensor, mean: Tensor, std: Tensor, source: str) -> str | None:
    """Warn of images (n, C, H, W) that were not normalised as the network expects."""
    low, high = (-mean / std)[:, None, None], ((1 - mean) / std)[:, None, None]
    values = images.detach().cpu().double()
    margin = _MARGIN * (high - low)
    outside = float(((values < low - margin) | (values > high + margin)).double().mean())
    smallest, largest = float(values.min()), float(values.max())
    expected = (
        f"the network was trained on images normalised by mean {mean.tolist()} and std {std.tolist()} ({source}), "
        f"between {float(low.min()):.2f} and {float(high.max()):.2f}"
    )
    if outside > _MAX_SHARE:
        return (
            f"inputs: {outside:.0%} of their values, from {smallest:.3g} to {largest:.3g}, are outside of the range of "
            f"the training: {expected}. Pass (images - mean) / std of images between 0 and 1."
        )
    if smallest >= 0 and largest <= 1 and bool((low < -0.5).all()):
        return (
            f"inputs: their values are between 0 and 1, as those of images before they are normalised; {expected}. "
            "Pass (images - mean) / std."
        )
    return None


@torch.no_grad()
def _input_norm(plan: RunPlan) -> tuple[str, Tensor, Tensor] | None:
    """Return name, running mean and variance (C,) of a batch normalisation that is applied to the inputs themselves."""
    cut, row = plan.cut, plan.points.first[:1]
    x = row.inputs[0]
    norms = [
        (name, module)
        for name, module in cut.model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
        and x.ndim > 1
        and module.num_features == x.shape[1]
        and module.running_mean is not None
        and module.num_batches_tracked
    ]
    for name, module in norms[:1]:
        seen: list[bool] = []

        def note(module: nn.Module, args: Any, out: Any, seen: list[bool] = seen) -> None:
            seen.append(args[0].shape == x.shape and torch.equal(args[0], x))

        with forward_hook(module, note):
            cut.all_outputs(row)
        if seen and seen[0]:
            assert module.running_mean is not None
            assert module.running_var is not None
            return name, module.running_mean.double().cpu(), module.running_var.double().cpu()
    return None


def _statistics_warning(values: Tensor, name: str, mean: Tensor, variance: Tensor) -> str | None:
    """Warn of inputs (n, C, ...) that are far from the running statistics of the first layer."""
    by_channel = values.detach().cpu().double().transpose(0, 1).flatten(1)
    std = (variance + 1e-12).sqrt()
    offset = (by_channel.mean(1) - mean).abs() / std
    ratio = by_channel.std(1, correction=0) / std
    if float(offset.max()) <= _MAX_OFFSET and float(ratio.max()) <= _MAX_RATIO:
        return None
    worst = int(torch.maximum(offset / _MAX_OFFSET, ratio / _MAX_RATIO).argmax())
    return (
        f"inputs: channel {worst} has mean {float(by_channel[worst].mean()):.3g} and standard deviation "
        f"{float(by_channel[worst].std(correction=0)):.3g}, but the first layer, {name!r}, saw "
        f"{float(mean[worst]):.3g} and {float(std[worst]):.3g} in training. Scale the inputs as in training."
    )
