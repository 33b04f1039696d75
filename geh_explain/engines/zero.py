"""Why a Hessian is zero: in words, with the remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from geh_explain.data.rows import Rows
from geh_explain.engines.smoothing.kinks import FORMS
from geh_explain.model.cut import Cut
from geh_explain.model.view import View


class _Kinks(View):
    """Notes the kinked functions that are called above the cut."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "").strip("_")
        if name in FORMS:
            self.seen.append(name)
        return func(*args, **kwargs)


def why_zero(cut: Cut, rows: Rows) -> str:
    """Say why all local interactions of ``cut`` are exactly 0."""
    pairs = cut.n_units * (cut.n_units - 1) // 2
    zero = f"all {pairs} pairs are exactly 0" if pairs > 1 else "the only pair is exactly 0"
    t = cut.zeros(rows).requires_grad_()
    kinks = _Kinks()
    with cut.viewed(kinks):
        value = cut.outputs(rows, t)
    if not value.requires_grad or torch.autograd.grad(value.sum(), t, allow_unused=True)[0] is None:
        return f"{zero}: the output does not depend on {cut.place}; choose a layer that leads to the explained output."
    if kinks.seen:
        names = ", ".join(dict.fromkeys(kinks.seen))
        return (
            f"{zero}: above {cut.place} the network is piecewise linear ({names}), so its second derivatives vanish "
            "almost everywhere. Use smooth='auto', or output='probability' if it is a classifier."
        )
    if cut.layer is None:
        return (
            f"{zero}: the model is additive in the inputs, so that none of them act together; or it is flat at these "
            "points, or bends at kinks that are not seen, such as comparisons (engine='difference' sees those), or the "
            "directions of the units cancel."
        )
    return (
        f"{zero}: the path from {cut.name!r} to the output is linear, or bends each unit on its own; choose an earlier "
        "layer or output='probability'."
    )
