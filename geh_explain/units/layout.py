"""Where a layer has its channels: in dimension 1, or in the last one.

The shape alone does not show it. The types of the layer and of its parts do, and for a bare activation those of its
neighbours in the model.
"""

from __future__ import annotations

from torch import nn

from geh_explain._types import Shape

#: Layers whose channels are in dimension 1, whatever the rank of their output.
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
#: Attributes in which layers of torch store the number of channels of their output.
_WIDTH_ATTRIBUTES = ("out_channels", "out_features", "num_features", "num_channels", "embedding_dim", "embed_dim")


def channels_first(shape: Shape, module: nn.Module | None) -> bool:
    """Return whether the channels of an output with rows of ``shape`` are in dimension 1, else in the last one.

    The type of ``module`` decides. Where it does not show the layout, images (C, H, W) are taken as channels first and
    sequences (L, C) as channels last.

    >>> channels_first((8, 5), nn.Conv1d(8, 8, 1)), channels_first((5, 8), nn.Linear(8, 8))
    (True, False)
    """
    is_first = None if module is None else _layout_by_type(module)
    return len(shape) >= 3 if is_first is None else is_first


def layout_reference(model: nn.Module, module: nn.Module | None, shape: Shape) -> nn.Module | None:
    """Return the layer whose type shows where the output of ``module`` has its channels.

    That is ``module`` itself, or the nearest layer in the order of registration (those before it first) that has as
    many channels as ``shape`` has in the place its type implies; None where there is no such layer.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU())
    >>> layout_reference(model, model[1], (8, 6, 6))
    Conv2d(3, 8, kernel_size=(1, 1), stride=(1, 1))
    """
    if module is None or _layout_by_type(module) is not None:
        return module
    modules = list(model.modules())
    position = next(index for index, candidate in enumerate(modules) if candidate is module)
    for candidate in (*reversed(modules[:position]), *modules[position + 1 :]):
        # Containers, such as the whole model, have parts anywhere and show nothing about this place.
        is_leaf = not any(True for _ in candidate.children())
        is_first = _layout_by_type(candidate) if is_leaf else None
        if is_first is not None and _width(candidate) == shape[0 if is_first else -1]:
            return candidate
    return None


def _layout_by_type(module: nn.Module) -> bool | None:
    """Return True for channels first, False for channels last, None if neither a layer nor its parts show it."""
    # The LayerNorm2d of torchvision and timm is a LayerNorm that keeps channels first.
    parts = [part for part in module.modules() if type(part).__name__ != "LayerNorm2d"]
    if any(isinstance(part, _CHANNELS_FIRST) for part in parts) or type(module).__name__ == "LayerNorm2d":
        return True
    # Blocks with any convolution are channels first; transformer blocks on maps (Swin's) have linear layers only.
    return False if any(isinstance(part, _CHANNELS_LAST) for part in parts) else None


def _width(module: nn.Module) -> int | None:
    """Return the number of channels of a layer's output, None if no attribute has it."""
    for name in _WIDTH_ATTRIBUTES:
        if isinstance(getattr(module, name, None), int):
            return int(getattr(module, name))
    return module.normalized_shape[-1] if isinstance(module, nn.LayerNorm) else None
