"""Functions that torch differentiates twice slowly, or not at all, in forms with an efficient double backward.

Values and first derivatives agree with torch's own up to the last bit or two; only the way from there to the second
derivative changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from geh_explain.model.view import View

#: From beta x = 17 on, a sigmoid rounds to 1 in single precision.
_SINGLE_PRECISION_LIMIT = 17.0


class _Softplus(torch.autograd.Function):
    """Softplus log(1 + exp(beta x)) / beta, with its derivative written as sigmoid(beta x).

    Its second derivative beta s (1 - s) then reuses the sigmoid s instead of evaluating exponentials again.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, beta: float, threshold: float) -> Tensor:
        return F.softplus(x, beta, threshold)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what the derivatives need."""
        x, ctx.beta, ctx.threshold = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        """Return the gradient of the input."""
        (x,) = ctx.saved_tensors
        return gradients[0] * softplus_slope(x, ctx.beta, ctx.threshold), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        """Return the derivative along a direction."""
        (x,) = ctx.saved_tensors
        tangent: Tensor = tangents[0] * softplus_slope(x, ctx.beta, ctx.threshold)
        return tangent


def softplus_slope(x: Tensor, beta: float, threshold: float) -> Tensor:
    """Return the derivative sigmoid(beta x) of torch's softplus, which is exactly 1 where beta x > ``threshold``."""
    slope = torch.sigmoid(beta * x)
    # Above the threshold torch continues in a straight line. In single precision the sigmoid is 1 there by itself.
    if x.dtype == torch.float64 or threshold < _SINGLE_PRECISION_LIMIT:
        slope = torch.where(beta * x > threshold, 1.0, slope)
    return slope


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return log(1 + exp(beta x)) / beta, and x where beta x > ``threshold``, as torch does."""
    result: Tensor = _Softplus.apply(input, beta, threshold)  # type: ignore[no-untyped-call]
    return result


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Return clamp(x + 3, 0, 6) / 6, by a kernel that has a second derivative; ``inplace`` is ignored."""
    return F.hardtanh(input + 3, 0.0, 6.0) / 6


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return x clamp(x + 3, 0, 6) / 6, by a kernel that has a second derivative; ``inplace`` is ignored."""
    return input * hardsigmoid(input)


_FORMS: dict[Callable[..., Any], Callable[..., Tensor]] = {
    F.softplus: softplus,
    F.hardsigmoid: hardsigmoid,
    F.hardswish: hardswish,
}


class DoubleBackwardView(View):
    """Replaces calls above the cut by the forms of this module, in place where the call is in place.

    The view of all engines that differentiate, and the base of smoothing: also a network without kinks calls softplus,
    and a user who turns smoothing off still needs second derivatives of hardswish.
    """

    def handle(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of one torch call, by a form with an efficient double backward if there is one."""
        form: Callable[..., Any] = _FORMS.get(func, func)
        if kwargs.get("inplace") and form is not func:
            # On a clone, as the derivative needs the values from before the call.
            return args[0].copy_(form(args[0].clone(), *args[1:], **kwargs))
        return form(*args, **kwargs)
