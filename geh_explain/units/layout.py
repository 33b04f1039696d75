"""Where a layer keeps its channels: in dimension 1, or in the last one."""

from __future__ import annotations

from torch import nn

from geh_explain._types import Shape

#: Layers that keep their channels in dimension 1, whatever the rank of their output.
_CHANNELS_FIRST = (
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.GroupNorm,
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
)
#: Layers that act on the last dimension.
_CHANNELS_LAST = (
    nn.Linear,
    nn.LayerNorm,
    nn.Embedding,
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.RNNBase,
)


def channels_first(shape: Shape, module: nn.Module | None) -> bool:
    """Tell from what a layer is made of whether its channels stand in dimension 1 or in the last one."""
    told = None if module is None else _told(module)
    return len(shape) >= 3 if told is None else told


def _told(module: nn.Module) -> bool | None:
    """Return whether a layer's channels stand in dimension 1, None if what it is made of does not tell."""
    parts = [part for part in module.modules() if type(part).__name__ != "LayerNorm2d"]
    if any(isinstance(part, _CHANNELS_FIRST) for part in parts) or type(module).__name__ == "LayerNorm2d":
        return True
    # Transformer blocks on maps (Swin's, say) are made of linear layers only.
    return False if any(isinstance(part, _CHANNELS_LAST) for part in parts) else None


def layout_reference(model: nn.Module, module: nn.Module | None, shape: Shape) -> nn.Module | None:
    """Return the layer that tells where the channels of ``module`` stand: itself, or the nearest neighbour that fits.

    A bare activation says nothing, but a layer with as many channels as it has in the right place does. Returns None
    where nothing tells.
    """
    if module is None or _told(module) is not None:
        return module
    modules = list(model.modules())
    here = next(number for number, other in enumerate(modules) if other is module)
    for other in (*reversed(modules[:here]), *modules[here + 1 :]):
        # A module that holds others, such as the whole model, says nothing about this place.
        told = _told(other) if not any(True for _ in other.children()) else None
        if told is not None and _width(other) == shape[0 if told else -1]:
            return other
    return None


def _width(module: nn.Module) -> int | None:
    """Return how many channels a layer puts out, None if it does not say."""
    for name in ("out_channels", "out_features", "num_features", "num_channels", "embedding_dim", "embed_dim"):
        if isinstance(getattr(module, name, None), int):
            return int(getattr(module, name))
    return module.normalized_shape[-1] if isinstance(module, nn.LayerNorm) else None
