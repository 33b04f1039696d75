"""Rules for sums, products and quotients, of which the last two are curved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from geh_explain.engines.structured.jacobians import DiagonalJacobian, Jacobian, to_tensor
from geh_explain.engines.structured.recorder import HessianTerm, Recorder, UnsupportedOp
from geh_explain.engines.structured.rules.calls import argument, is_in_place, only_tracked, without
from geh_explain.engines.structured.rules.curved import elementwise
from geh_explain.engines.structured.rules.linear import times


def add(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record a + b or a - b: J_a + J_b or J_a - J_b, of the terms that depend on the units.

    A diagonal Jacobian stays diagonal where a constant is added. Sums that broadcast over rows or directions are
    expanded to the shape of the result.

    Raises
    ------
    UnsupportedOp
        With ``alpha``, or where an operand has fewer dimensions than the result: its rows would not be in dimension 0.
    """
    a, b = _operands(args, kwargs)
    # alpha may also be a third argument by position, in an old form of the call.
    if without(kwargs, "input", "other") or len(args) > 2:
        raise UnsupportedOp("add() with alpha")
    name = func.__name__.strip("_")
    signs = (-1, 1) if name == "rsub" else (1, -1 if "sub" in name else 1)
    terms = [(x, sign) for x, sign in ((a, signs[0]), (b, signs[1])) if recorder.is_tracked(x)]
    out: Tensor = func(*args, **kwargs)
    if any(x.ndim != out.ndim for x, _ in terms):
        raise UnsupportedOp("a sum that adds dimensions")
    shape = tuple(out.shape[1:])

    def push_forward(*jacobians: Jacobian) -> Jacobian:
        """Return the directions after this step."""
        first, first_sign = jacobians[0], terms[0][1]
        if len(jacobians) == 1 and isinstance(first, DiagonalJacobian) and first.shape == shape:
            return DiagonalJacobian(first.scale * first_sign, shape)
        total = _signed(first, first_sign)
        for jacobian, (_, sign) in zip(jacobians[1:], terms[1:], strict=True):
            total = total + _signed(jacobian, sign)
        return total.expand(*total.shape[:2], *shape)

    return recorder.add_step([x for x, _ in terms], out, push_forward)


def _signed(jacobian: Jacobian, sign: int) -> Tensor:
    """Return J or -J as a tensor."""
    return to_tensor(jacobian) if sign == 1 else -to_tensor(jacobian)


def negative(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record -x: -J."""
    return times(recorder, only_tracked(recorder, args, kwargs), -1.0, is_in_place(func, kwargs))


def _operands(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Return the two operands of a binary function."""
    return argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "other")


def multiply(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record a * b: linear where one factor depends on the units, curved where both do, see :func:`_product`.

    Raises
    ------
    UnsupportedOp
        If a constant tensor is multiplied in place by one that depends on the units.
    """
    a, b = _operands(args, kwargs)
    if not recorder.is_tracked(b):
        return times(recorder, a, b, is_in_place(func, kwargs))
    if not recorder.is_tracked(a):
        if is_in_place(func, kwargs):
            raise UnsupportedOp("a product in place")
        return times(recorder, b, a, in_place=False)
    return _product(recorder, a, b, is_in_place(func, kwargs))


def _product(recorder: Recorder, a: Tensor, b: Tensor, in_place: bool) -> Tensor:
    """Record a * b where both depend on the units.

    Directions are b J_a + a J_b. The second derivative d2(ab) = da db + db da gives the term J_a^T diag(g) J_b plus its
    transpose. Factors that broadcast have their directions expanded to the shape of the product.
    """
    if a.ndim != b.ndim:
        raise UnsupportedOp("a product that adds dimensions")
    # The directions need the factor from before an in-place product.
    left, right = a.detach().clone() if in_place else a.detach(), b.detach()
    out = a.mul_(b) if in_place else a * b
    shape = tuple(out.shape[1:])

    def push_forward(j: Jacobian, k: Jacobian) -> Tensor:
        """Return the directions after this step."""
        return to_tensor(j) * right + to_tensor(k) * left

    def hessian_terms(gradient: Tensor, j: Jacobian, k: Jacobian) -> list[HessianTerm]:
        """Return the terms that this step adds to local Hessians."""
        left, right = to_tensor(j), to_tensor(k)
        return [HessianTerm(left.expand(*left.shape[:2], *shape), gradient, right.expand(*right.shape[:2], *shape))]

    return recorder.add_step([a, b], out, push_forward, hessian_terms)


def divide(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Record a / b as the product of a with the reciprocal of b, which is elementwise where b depends on the units.

    Raises
    ------
    UnsupportedOp
        With ``rounding_mode``, or where a is divided in place by something that depends on the units.
    """
    a, b = _operands(args, kwargs)
    if without(kwargs, "input", "other"):
        raise UnsupportedOp("a division that rounds")
    if func.__name__.strip("_").startswith("r"):
        # Reflected: x.__rtruediv__(y) is y / x.
        a, b = b, a
    if not recorder.is_tracked(b):
        return times(recorder, a, 1 / b, is_in_place(func, kwargs))
    if is_in_place(func, kwargs):
        raise UnsupportedOp("a division in place")
    inverse = elementwise(recorder, torch.reciprocal, (b,), {})
    if not recorder.is_tracked(a):
        return times(recorder, inverse, a, in_place=False)
    return _product(recorder, a, inverse, in_place=False)
