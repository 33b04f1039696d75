"""How directions go through the functions of torch, one rule per kind of function.

To teach a function, add its name, as torch calls it without underscores around it, to a table below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_leaves

from geh_explain.hessian.kinks import pool_windows
from geh_explain.hessian.program import Jacobian, Misfit, Recorder, Scaled, Term, full, shared
from geh_explain.hessian.smoothing import Smoothing

Rule = Callable[[Recorder, Callable[..., Any], Sequence[Any], dict[str, Any]], Any]


def record(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Answer one call, and note what it does to directions."""
    if not any(recorder.follows(value) for value in (*args, *kwargs.values())):
        return recorder.answers.handle(func, args, kwargs)
    name = getattr(func, "__name__", "").strip("_")
    rule = _RULES.get(name)
    if rule is not None:
        return rule(recorder, func, args, kwargs)
    out = recorder.answers.handle(func, args, kwargs)
    # Shapes, sizes and comparisons have no derivative.
    if any(isinstance(value, Tensor) and value.is_floating_point() for value in tree_leaves(out)):
        raise Misfit(f"{name}()")
    return out


def _in_place(func: Callable[..., Any], kwargs: dict[str, Any]) -> bool:
    name = func.__name__
    return bool(kwargs.get("inplace")) or (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


def _only(recorder: Recorder, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Return the first argument, which must be the only one that depends on the units."""
    x: Tensor = args[0] if args else kwargs["input"]
    others = (*args[1:], *(value for key, value in kwargs.items() if key != "input"))
    if recorder.slot(x) is None or any(recorder.follows(other) for other in others):
        raise Misfit("a product of two things that depend on the units")
    return x


def _argument(args: Sequence[Any], kwargs: dict[str, Any], position: int, name: str, default: Any = None) -> Any:
    return args[position] if len(args) > position else kwargs.get(name, default)


# Linear maps


def _linear(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    x, weight = _only(recorder, args, kwargs), _argument(args, kwargs, 1, "weight")
    out: Tensor = func(*args, **kwargs)
    recorder.work += out[0].numel() * x.shape[-1]

    def move(jacobian: Jacobian) -> Tensor:
        if isinstance(jacobian, Scaled) and len(jacobian.shape) == 1:
            moved: Tensor = jacobian.scale.T[:, :, None] * weight.T.contiguous()[:, None]
            return moved
        return F.linear(full(jacobian), weight)

    return recorder.note([x], out, move)


def _convolution(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    x, weight = _only(recorder, args, kwargs), _argument(args, kwargs, 1, "weight")
    out: Tensor = func(*args, **kwargs)
    transposed = "transpose" in func.__name__
    recorder.work += (x if transposed else out)[0].numel() * weight[0].numel()
    rest = {key: value for key, value in kwargs.items() if key not in ("input", "weight", "bias")}
    return recorder.note([x], out, _batched(lambda j: func(j, weight, None, *args[3:], **rest)))


def _pooling(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a function that is linear, and takes the rows one by one."""
    x = _only(recorder, args, kwargs)
    out: Tensor = func(*args, **kwargs)
    rest = {key: value for key, value in kwargs.items() if key != "input"}
    return recorder.note([x], out, _batched(lambda j: func(j, *args[1:], **rest)))


def _batched(function: Callable[[Tensor], Tensor]) -> Callable[..., Jacobian]:
    """Let directions be rows of a batch."""

    def move(jacobian: Jacobian) -> Tensor:
        value = full(jacobian)
        out = function(value.flatten(0, 1))
        return out.reshape(*value.shape[:2], *out.shape[1:])

    return move


def _batch_norm(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    x = _only(recorder, args, kwargs)
    out: Tensor = func(*args, **kwargs)
    variance = _argument(args, kwargs, 2, "running_var")
    if _argument(args, kwargs, 5, "training", False) or variance is None:
        raise Misfit("batch statistics")
    scale = torch.rsqrt(variance + _argument(args, kwargs, 7, "eps", 1e-5))
    weight = _argument(args, kwargs, 3, "weight")
    scale = (scale if weight is None else scale * weight).reshape(-1, *(1 for _ in x.shape[2:]))
    return recorder.note([x], out, partial(_multiplied, factor=scale))


def _reshaped(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    x: Tensor = args[0] if args else kwargs["input"]
    out: Tensor = func(*args, **kwargs)
    if out is x or recorder.slot(x) is None:  # a constant made like something that is followed
        return out
    shape = tuple(out.shape[1:])

    def move(jacobian: Jacobian) -> Jacobian:
        if isinstance(jacobian, Scaled):
            return Scaled(jacobian.scale.to(out.dtype), shape)
        return jacobian.to(out.dtype).reshape(*jacobian.shape[:2], *shape)

    return recorder.note([x], out, move)


def _rearranged(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Follow a linear function of one tensor that may put out several, such as indexing or a mean."""
    x = _only(recorder, args, kwargs)
    out = func(*args, **kwargs)
    rest = {key: value for key, value in kwargs.items() if key != "input"}
    function = _homogeneous(func, args, rest)
    _check_rows(function, [x])
    if isinstance(out, Tensor):
        return recorder.note([x], out, lambda jacobian: _mapped(function, [full(jacobian)], x))
    for number, part in enumerate(out):
        recorder.note(
            [x], part, lambda jacobian, number=number: _mapped(lambda j: function(j)[number], [full(jacobian)], x)
        )
    return out


def _homogeneous(func: Callable[..., Any], args: Sequence[Any], rest: dict[str, Any]) -> Callable[[Tensor], Any]:
    """Return the function of the first argument alone, without what it adds by itself."""
    if func.__name__ == "pad" and _argument(args, rest, 2, "mode", "constant") == "constant":
        widths = _argument(args, rest, 1, "pad")
        return lambda x: F.pad(x, widths)
    return lambda x: func(x, *args[1:], **rest)


def _joined(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow the concatenation of several tensors, some of which may be constant."""
    parts: list[Tensor] = list(args[0] if args else kwargs["tensors"])
    rest = {key: value for key, value in kwargs.items() if key != "tensors"}
    out: Tensor = func(parts, *args[1:], **rest)
    sources = [part for part in parts if recorder.slot(part) is not None]
    followed = [recorder.slot(part) is not None for part in parts]

    def function(*values: Tensor) -> Tensor:
        given = iter(values)
        joined = [next(given) if known else torch.zeros_like(part) for part, known in zip(parts, followed, strict=True)]
        result: Tensor = func(joined, *args[1:], **rest)
        return result

    _check_rows(function, sources)
    return recorder.note(sources, out, lambda *jacobians: _mapped(function, [full(j) for j in jacobians], *sources))


def _mapped(function: Callable[..., Tensor], jacobians: list[Tensor], *like: Tensor) -> Tensor:
    """Apply a linear function to every direction."""
    shared = all(jacobian.shape[1] == 1 for jacobian in jacobians)
    given = [jacobian.expand(-1, len(x), *x.shape[1:]) for jacobian, x in zip(jacobians, like, strict=True)]
    out: Tensor = torch.func.vmap(function)(*given)
    return out[:, :1] if shared else out


def _check_rows(function: Callable[..., Any], sources: list[Tensor]) -> None:
    """Refuse a linear function whose rows depend on other rows than their own, by trying it."""
    with torch.no_grad():
        ones = [torch.ones_like(x) for x in sources]
        number = torch.arange(1.0, len(ones[0]) + 1, device=ones[0].device, dtype=ones[0].dtype)
        numbered = [number.reshape(-1, *(1 for _ in x.shape[1:])) * x for x in ones]
        for plain, marked in zip(tree_leaves(function(*ones)), tree_leaves(function(*numbered)), strict=True):
            if plain.ndim == 0 or len(plain) != len(number):
                raise Misfit("a call that moves or mixes the rows")
            if not torch.allclose(marked, plain * number.reshape(-1, *(1 for _ in plain.shape[1:]))):
                raise Misfit("a call that moves or mixes the rows")


def _dropout(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    x = _only(recorder, args, kwargs)
    rest = {key: value for key, value in kwargs.items() if key not in ("input", "inplace")}
    # What dropout makes of ones is what it multiplies by.
    mask = func(torch.ones_like(x), *args[1:], **rest).detach()
    if bool((mask == 1).all()):
        return x
    return _times(recorder, x, mask, _in_place(func, kwargs))


def _times(recorder: Recorder, x: Tensor, factor: float | Tensor, in_place: bool) -> Tensor:
    """Follow a product with something that does not depend on the units."""
    out = x.mul_(factor) if in_place else x * factor
    if out.ndim != x.ndim:
        raise Misfit("a product that adds dimensions")
    return recorder.note([x], out, partial(_multiplied, factor=factor))


def _multiplied(jacobian: Jacobian, factor: float | Tensor) -> Jacobian:
    """Return directions times a number, or times a tensor that broadcasts to (rows, ...) from the right."""
    if isinstance(factor, Tensor) and shared(jacobian):
        factor = _one_row(factor, len(jacobian.shape) + 1 if isinstance(jacobian, Scaled) else jacobian.ndim - 1)
    if isinstance(jacobian, Scaled):
        scale = jacobian.scale.reshape(-1, *jacobian.shape) * factor
        if scale.shape[1:] == jacobian.shape:
            return Scaled(scale.reshape(len(scale), -1), jacobian.shape)
    return full(jacobian) * factor


def _one_row(factor: Tensor, ndim: int) -> Tensor:
    """Return a factor that is the same for all rows, such as a dropout mask, as one row."""
    if factor.ndim < ndim or len(factor) == 1:
        return factor
    first = factor[:1]
    return first if torch.equal(factor, first.expand_as(factor)) else factor


def _where(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a choice by a condition, which is itself a constant almost everywhere."""
    condition, a = _argument(args, kwargs, 0, "condition"), _argument(args, kwargs, 1, "input")
    b = _argument(args, kwargs, 2, "other")
    if isinstance(a, Tensor) and a.dtype == torch.bool:  # x.where(condition, other)
        condition, a = a, condition
    out: Tensor = func(*args, **kwargs)
    parts = [(x, where) for x, where in ((a, condition), (b, ~condition)) if recorder.slot(x) is not None]
    if any(x.ndim != out.ndim for x, _ in parts) or condition.ndim != out.ndim:
        raise Misfit("a choice that adds dimensions")

    def move(*jacobians: Jacobian) -> Tensor:
        moved = [torch.where(where, full(j), 0.0) for j, (_, where) in zip(jacobians, parts, strict=True)]
        return moved[0] if len(moved) == 1 else moved[0] + moved[1]

    return recorder.note([x for x, _ in parts], out, move)


# Arithmetic


def _add(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    a, b = _pair(args, kwargs)
    if set(kwargs) - {"input", "other"}:
        raise Misfit("add() with alpha")
    name = func.__name__.strip("_")
    signs = (-1, 1) if name == "rsub" else (1, -1 if "sub" in name else 1)
    terms = [(x, sign) for x, sign in ((a, signs[0]), (b, signs[1])) if recorder.slot(x) is not None]
    out: Tensor = func(*args, **kwargs)
    if any(x.ndim != out.ndim for x, _ in terms):
        raise Misfit("a sum that adds dimensions")
    shape = tuple(out.shape[1:])

    def move(*jacobians: Jacobian) -> Jacobian:
        if len(jacobians) == 1 and isinstance(jacobians[0], Scaled) and jacobians[0].shape == shape:
            return Scaled(jacobians[0].scale * terms[0][1], shape)
        total: Tensor | None = None
        for jacobian, (_, sign) in zip(jacobians, terms, strict=True):
            part = full(jacobian) if sign == 1 else -full(jacobian)
            total = part if total is None else total + part
        assert total is not None
        return total.expand(*total.shape[:2], *shape)

    return recorder.note([x for x, _ in terms], out, move)


def _negative(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    return _times(recorder, _only(recorder, args, kwargs), -1.0, _in_place(func, kwargs))


def _pair(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    return _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "other")


def _multiply(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    a, b = _pair(args, kwargs)
    if recorder.slot(b) is None:
        return _times(recorder, a, b, _in_place(func, kwargs))
    if recorder.slot(a) is None:
        if _in_place(func, kwargs):
            raise Misfit("a product in place")
        return _times(recorder, b, a, False)
    return _product(recorder, a, b, _in_place(func, kwargs))


def _product(recorder: Recorder, a: Tensor, b: Tensor, in_place: bool) -> Tensor:
    """Follow a product of two tensors that both depend on the units."""
    if a.ndim != b.ndim:
        raise Misfit("a product that adds dimensions")
    left, right = a.detach().clone() if in_place else a.detach(), b.detach()
    out = a.mul_(b) if in_place else a * b
    shape = tuple(out.shape[1:])

    def move(j: Jacobian, k: Jacobian) -> Tensor:
        return full(j) * right + full(k) * left

    def curve(gradient: Tensor, j: Jacobian, k: Jacobian) -> list[Term]:
        left, right = full(j), full(k)
        return [Term(left.expand(*left.shape[:2], *shape), gradient, right.expand(*right.shape[:2], *shape))]

    return recorder.note([a, b], out, move, curve)


def _divide(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    a, b = _pair(args, kwargs)
    if set(kwargs) - {"input", "other"}:
        raise Misfit("a division that rounds")
    if func.__name__.strip("_").startswith("r"):
        a, b = b, a
    if recorder.slot(b) is None:
        return _times(recorder, a, 1 / b, _in_place(func, kwargs))
    if _in_place(func, kwargs):
        raise Misfit("a division in place")
    inverse = _elementwise(recorder, torch.reciprocal, (b,), {})
    return _times(recorder, inverse, a, False) if recorder.slot(a) is None else _product(recorder, a, inverse, False)


# Curved functions


class _Linked(torch.autograd.Function):
    """A value that was computed elsewhere, with its slope for the backward pass."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        return gradients[0] * ctx.saved_tensors[0], None, None


def _elementwise(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    x = _only(recorder, args, kwargs)
    value, slope, bend = _closed_form(recorder, func, x.detach(), args, kwargs) or _derivatives(
        recorder, func, x.detach(), args, kwargs
    )
    out: Tensor = _Linked.apply(x, value, slope)  # type: ignore[no-untyped-call]
    if _in_place(func, kwargs):
        out = x.copy_(out)

    move = partial(_multiplied, factor=slope)
    if bend is None:
        return recorder.note([x], out, move)
    return recorder.note([x], out, move, lambda gradient, jacobian: [Term(jacobian, gradient * bend)])


def _derivatives(
    recorder: Recorder, func: Callable[..., Any], x: Tensor, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return value, slope and second derivative of an elementwise function, the last None where it is 0."""
    rest = {key: value for key, value in kwargs.items() if key not in ("input", "inplace")}
    with torch.enable_grad():
        z = x.requires_grad_()
        value = recorder.answers.handle(_out_of_place(func), (z, *args[1:]), rest)
        if value.shape != z.shape:
            raise Misfit(f"{func.__name__}() that changes its shape")
        (slope,) = torch.autograd.grad(value.sum(), z, create_graph=True)
        bend = None
        if slope.requires_grad:
            (bend,) = torch.autograd.grad(slope.sum(), z, allow_unused=True)
    return value.detach(), slope.detach(), bend


def _closed_form(
    recorder: Recorder, func: Callable[..., Any], z: Tensor, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the same for the most common functions, at the price of one evaluation."""
    name, answers = func.__name__.strip("_"), recorder.answers
    if name == "relu" and isinstance(answers, Smoothing):
        beta = answers.beta(answers.call + 1)
        if beta is None:
            return None
        answers.call += 1
        return _softplus(z, beta, 20.0)
    if name == "softplus":
        return _softplus(z, _argument(args, kwargs, 1, "beta", 1.0), _argument(args, kwargs, 2, "threshold", 20.0))
    if name == "tanh":
        value = torch.tanh(z)
        slope = 1 - value * value
        return value, slope, -2 * value * slope
    if name == "sigmoid":
        value = torch.sigmoid(z)
        slope = value * (1 - value)
        return value, slope, slope * (1 - 2 * value)
    return None


def _softplus(z: Tensor, beta: float, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    slope = torch.sigmoid(beta * z)
    if z.dtype == torch.float64 or threshold < 17:  # beyond it torch continues in a straight line
        slope = torch.where(beta * z > threshold, 1.0, slope)
    return F.softplus(z, beta, threshold), slope, beta * slope * (1 - slope)


def _out_of_place(func: Callable[..., Any]) -> Callable[..., Any]:
    name = func.__name__
    if not name.endswith("_") or name.endswith("__"):
        return func
    for home in (F, torch, Tensor):
        if hasattr(home, name[:-1]):
            found: Callable[..., Any] = getattr(home, name[:-1])
            return found
    raise Misfit(f"{name}()")


def _softmax(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    x, dim = _only(recorder, args, kwargs), _argument(args, kwargs, 1, "dim")
    if dim is None or dim % x.ndim == 0 or any(isinstance(value, torch.dtype) for value in (*args, *kwargs.values())):
        raise Misfit("a softmax over the rows")
    dim, logarithm = dim % x.ndim, "log" in func.__name__
    out: Tensor = func(*args, **kwargs)
    p = out.detach().exp() if logarithm else out.detach()

    def mean(jacobian: Tensor) -> Tensor:
        return (jacobian * p).sum(dim + 1, keepdim=True)

    def move(jacobian: Jacobian) -> Tensor:
        j = full(jacobian)
        return j - mean(j) if logarithm else p * (j - mean(j))

    def curve(gradient: Tensor, jacobian: Jacobian) -> list[Term]:
        j = full(jacobian)
        v = mean(j)
        if logarithm:
            total = gradient.sum(dim, keepdim=True)
            return [Term(j, -total * p), Term(v, total)]
        q = gradient * p
        total = q.sum(dim, keepdim=True)
        u = (j * q).sum(dim + 1, keepdim=True)
        return [Term(j, q - total * p), Term(u - total * v, torch.full_like(total, -1.0), v)]

    return recorder.note([x], out, move, curve)


def _max_pool(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a maximum over windows, or the soft one that stands for it: weights p in each window, that sum to 1."""
    x = _only(recorder, args, kwargs)
    if _argument(args, kwargs, 6, "return_indices", False):
        raise Misfit("max pooling with indices")
    beta = recorder.answers.beta(recorder.answers.call + 1) if isinstance(recorder.answers, Smoothing) else None
    out: Tensor = recorder.answers.handle(func, args, kwargs)
    rest = {key: value for key, value in kwargs.items() if key not in ("input", "return_indices")}
    dimensions = int(func.__name__.removesuffix("d")[-1])
    windows = partial(pool_windows, dimensions, like=out, settings=(args[1:6], rest))
    with torch.no_grad():
        seen = windows(x.detach(), outside=-float("inf"))
        if beta is None:
            p = F.one_hot(seen.argmax(0), len(seen)).movedim(-1, 0).to(x.dtype)
        else:
            p = torch.softmax(beta * seen, dim=0)

    def move(jacobian: Jacobian) -> Tensor:
        return _weighted(windows(full(jacobian)), p)

    def curve(gradient: Tensor, jacobian: Jacobian) -> list[Term]:
        assert beta is not None
        with torch.enable_grad():
            place = torch.zeros_like(x, requires_grad=True)
            (scattered,) = torch.autograd.grad(windows(place), place, beta * gradient * p)
        return [Term(jacobian, scattered), Term(_weighted(windows(full(jacobian)), p), -beta * gradient)]

    return recorder.note([x], out, move, None if beta is None else curve)


def _weighted(windows: Tensor, p: Tensor) -> Tensor:
    """Return the mean over windows (w, D, r, ...) with weights (w, n, ...)."""
    total = windows[0] * p[0]
    for window, weight in zip(windows[1:], p[1:], strict=True):
        total.addcmul_(window, weight) if window.shape == total.shape else total.add_(window * weight)
    return total


def _layer_norm(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Follow a layer normalisation as what it is made of."""
    x = _only(recorder, args, kwargs)
    shape, weight = _argument(args, kwargs, 1, "normalized_shape"), _argument(args, kwargs, 2, "weight")
    bias, eps = _argument(args, kwargs, 3, "bias"), _argument(args, kwargs, 4, "eps", 1e-5)
    dims = tuple(range(-len(shape), 0))

    def call(function: Callable[..., Tensor], *values: Any, **options: Any) -> Tensor:
        result: Tensor = record(recorder, function, values, options)
        return result

    centred = call(torch.sub, x, call(torch.mean, x, dims, keepdim=True))
    variance = call(torch.mean, call(torch.square, centred), dims, keepdim=True)
    out = call(torch.mul, centred, call(torch.rsqrt, call(torch.add, variance, eps)))
    out = out if weight is None else call(torch.mul, out, weight)
    return out if bias is None else call(torch.add, out, bias)


def _constant(recorder: Recorder, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


def _named(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


_RULES: dict[str, Rule] = {
    "linear": _linear,
    **_named(_convolution, "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"),
    **_named(_pooling, "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"),
    **_named(_pooling, "interpolate pixel_shuffle pixel_unshuffle"),
    "batch_norm": _batch_norm,
    **_named(_dropout, "dropout dropout1d dropout2d dropout3d feature_dropout"),
    **_named(_reshaped, "view reshape flatten squeeze unsqueeze unflatten view_as reshape_as contiguous clone"),
    **_named(_reshaped, "to float double type_as type pos positive"),
    **_named(_rearranged, "getitem permute transpose swapaxes movedim narrow select index_select chunk split"),
    **_named(_rearranged, "tensor_split unbind flip roll pad mean sum"),
    **_named(_joined, "cat concat concatenate stack"),
    **_named(_add, "add radd iadd sub subtract rsub isub"),
    **_named(_multiply, "mul multiply rmul imul"),
    **_named(_divide, "div divide true_divide truediv rtruediv itruediv rdiv idiv"),
    **_named(_negative, "neg negative"),
    **_named(_elementwise, "tanh sigmoid softplus gelu silu mish logsigmoid softsign tanhshrink"),
    **_named(_elementwise, "exp exp2 expm1 log log1p log2 log10 sin cos tan atan asinh sinh cosh erf"),
    **_named(_elementwise, "sqrt rsqrt square pow reciprocal abs absolute clamp clip clamp_min clamp_max"),
    **_named(_elementwise, "relu relu6 hardtanh leaky_relu prelu rrelu elu celu selu threshold"),
    **_named(_elementwise, "hardsigmoid hardswish hardshrink softshrink"),
    **_named(_softmax, "softmax log_softmax"),
    **_named(_max_pool, "max_pool1d max_pool2d max_pool3d"),
    "layer_norm": _layer_norm,
    "where": _where,
    **_named(_constant, "detach new_zeros new_ones new_full new_empty new_tensor zeros_like ones_like full_like"),
}
