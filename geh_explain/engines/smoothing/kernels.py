"""Functions that torch differentiates twice slowly, or not at all, in forms that it does.

Values and first derivatives are torch's own to the last bit or two; what changes is how autograd gets from
there to the second derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geh_explain.model.view import View


class _Softplus(torch.autograd.Function):
    """Softplus whose derivative is written as a sigmoid, so that the second one reuses it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, beta: float, threshold: float) -> Tensor:
        return F.softplus(x, beta, threshold)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.beta, ctx.threshold = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        return gradients[0] * _slope(ctx), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        tangent: Tensor = tangents[0] * _slope(ctx)
        return tangent


def _slope(ctx: Any) -> Tensor:
    (x,) = ctx.saved_tensors
    slope = torch.sigmoid(ctx.beta * x)
    # Beyond the threshold torch continues in a straight line, which single precision cannot tell apart.
    if x.dtype == torch.float64 or ctx.threshold < 17:
        slope = torch.where(ctx.beta * x > ctx.threshold, 1.0, slope)
    return slope


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return the softplus of ``input``, as torch does."""
    result: Tensor = _Softplus.apply(input, beta, threshold)  # type: ignore[no-untyped-call]
    return result


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Return the hard sigmoid, whose own kernel cannot be differentiated twice."""
    return F.hardtanh(input + 3, 0.0, 6.0) / 6


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return the hard swish, whose own kernel cannot be differentiated twice."""
    return input * hardsigmoid(input)


_FORMS: dict[Callable[..., Any], Callable[..., Tensor]] = {
    F.softplus: softplus,
    F.hardsigmoid: hardsigmoid,
    F.hardswish: hardswish,
}


class Kernels(View):
    """Lets calls above the cut use the forms of this page."""

    def handle(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        form: Callable[..., Any] = _FORMS.get(func, func)
        if kwargs.get("inplace") and form is not func:
            return args[0].copy_(form(args[0].clone(), *args[1:], **kwargs))
        return form(*args, **kwargs)
