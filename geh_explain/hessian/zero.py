"""Why a Hessian is zero: in words, with the remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from geh_explain.attach import Cut
from geh_explain.points import Rows

#: Functions with kinks and no curvature beside them, by the names torch calls them.
_KINKS = {
    *("relu", "relu6", "leaky_relu", "prelu", "rrelu", "threshold"),
    *("hardtanh", "hardshrink", "softshrink", "abs", "absolute", "clamp", "clip", "clamp_min", "clamp_max"),
    *("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"),
    *("maximum", "minimum", "max", "min", "amax", "amin"),
}


class _Kinks(TorchFunctionMode):
    """Notes the kinked functions that are called where gradients are on, that is above the cut."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "").rstrip("_")
        if name in _KINKS and torch.is_grad_enabled():
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


def why_zero(cut: Cut, rows: Rows) -> str:
    """Say why all local interactions of ``cut`` are exactly 0."""
    pairs = cut.count * (cut.count - 1) // 2
    zero = f"all {pairs} pairs are exactly 0" if pairs > 1 else "the only pair is exactly 0"
    t = cut.zeros(rows).requires_grad_()
    with _Kinks() as kinks:
        value = cut.outputs(rows, t)
    if not value.requires_grad:
        return f"{zero}: the output does not depend on {cut.place}; choose a layer that leads to the explained output."
    if kinks.seen:
        names = ", ".join(dict.fromkeys(kinks.seen))
        return (
            f"{zero}: above {cut.place} the network is piecewise linear ({names}), so its second derivatives vanish "
            "almost everywhere. Use output='probability' if it is a classifier, or smooth activations such as Softplus."
        )
    if cut.layer is None:
        return f"{zero}: the model is additive in the inputs, so that none of them act together."
    return (
        f"{zero}: the path from {cut.name!r} to the output is linear, or bends each unit on its own; choose an earlier "
        "layer or output='probability'."
    )
