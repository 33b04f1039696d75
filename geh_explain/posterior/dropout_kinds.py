"""What counts as dropout: torch's functions, stochastic depth, and modules with masks of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class DropoutKind:
    """Which entries of a tensor are dropped together, and what they become."""

    #: Number of leading dimensions that have entries of their own in the mask: 2 for whole channels, 0 for the whole
    #: tensor, None for every element.
    mask_dims: int | None
    #: Alpha dropout: dropped values become a negative constant, and an affine map keeps mean and variance (SELU).
    alpha: bool = False


ELEMENTS = DropoutKind(None)
CHANNELS = DropoutKind(2)
#: Stochastic depth, which drops a whole residual branch.
PATH = DropoutKind(0)
_ALPHA_ELEMENTS = DropoutKind(None, alpha=True)
_ALPHA_CHANNELS = DropoutKind(2, alpha=True)

#: Every dropout function of torch. Modules such as ``nn.Dropout`` call those of ``torch.nn.functional``; models may
#: also call those of ``torch`` directly.
DROPOUT_FUNCTIONS: dict[Callable[..., Any], DropoutKind] = {
    F.dropout: ELEMENTS,
    F.dropout1d: CHANNELS,
    F.dropout2d: CHANNELS,
    F.dropout3d: CHANNELS,
    F.alpha_dropout: _ALPHA_ELEMENTS,
    F.feature_alpha_dropout: _ALPHA_CHANNELS,
    torch.dropout: ELEMENTS,
    torch.dropout_: ELEMENTS,
    torch.feature_dropout: CHANNELS,
    torch.feature_dropout_: CHANNELS,
    torch.alpha_dropout: _ALPHA_ELEMENTS,
    torch.alpha_dropout_: _ALPHA_ELEMENTS,
    torch.feature_alpha_dropout: _ALPHA_CHANNELS,
    torch.feature_alpha_dropout_: _ALPHA_CHANNELS,
}


@runtime_checkable
class DrawsMasks(Protocol):
    """A module that multiplies its input by masks of its own, such as those of concrete dropout."""

    def draw_mask(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return the factors by which ``x`` is multiplied, in a shape that broadcasts to that of ``x``."""
        ...


def path_rate(module: nn.Module) -> float:
    """Return the rate at which a module drops whole residual branches, 0 for any other module.

    Recognised by the names of their classes: ``StochasticDepth`` of torchvision and ``DropPath`` of timm and
    Hugging Face. They drop by rows in train mode only, and do nothing in eval mode.
    """
    name = type(module).__name__
    if name == "StochasticDepth":
        return float(getattr(module, "p", 0.0))
    return float(getattr(module, "drop_prob", 0.0) or 0.0) if name.endswith("DropPath") else 0.0
