"""Networks put together at random, from all that torch offers, against two plain backward passes."""

from __future__ import annotations

import copy
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import reference
import torch
import torch.nn.functional as F
from borrowing import untouched
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import geh_explain as geh

#: Largest difference from the reference, over the reference's largest entry ...
CLOSE = 1e-8
#: ... and what rounding may leave of numbers of size 1 that cancel.
ROUNDING = 1e-12
ROWS = 4
#: No more units than this, for the sake of the reference.
MOST_UNITS = 40

#: The only refusals that such networks may meet with: the layer is one that nothing can be said about.
FAIR = (
    r"never reached",
    r"only 1 unit",
    r"first dimension must be the rows",
    r"output is NaN or infinite",
    r"NaN or infinite",
    r"puts out .* per row in its calls",
)

#: The same examples on every run.
fixed = settings(
    derandomize=True, deadline=None, database=None, max_examples=25, suppress_health_check=list(HealthCheck)
)


# What networks are made of: functions of a tensor (n, *shape), and modules with weights.


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, name: str, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.name, self.function = name, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)

    def extra_repr(self) -> str:
        return self.name


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Gate(nn.Module):
    def __init__(self, left: nn.Module, right: nn.Module) -> None:
        super().__init__()
        self.left, self.right = left, right

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x) * torch.sigmoid(self.right(x))


class Twice(nn.Module):
    """One module, called twice with the same weights."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(torch.tanh(self.inner(x)))


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, rows_first: bool, weights: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=rows_first)
        self.rows_first, self.weights = rows_first, weights

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.rows_first else x.transpose(0, 1)
        out = self.attention(x, x, x, need_weights=self.weights)[0]
        return out if self.rows_first else out.transpose(0, 1)


class ScaledAttention(nn.Module):
    """Attention by the function of that name."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.maps, self.causal = nn.Linear(width, 3 * width), causal

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*self.maps(x).chunk(3, dim=-1), is_causal=self.causal)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], width: int, both_ways: bool, last: bool) -> None:
        super().__init__()
        self.cell = kind(width, 3, batch_first=True, bidirectional=both_ways)
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        states = self.cell(x)[0]
        return states[:, -1:] if self.last else states


class Unrolled(nn.Module):
    """A recurrent cell in a Python loop."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), 3)
        states = []
        for token in x.unbind(1):
            state = self.cell(token, state)
            states.append(state)
        return torch.stack(states, dim=1)


class Embedded(nn.Module):
    """Features in bins, each bin with a vector of its own that scales the feature."""

    def __init__(self, bins: int = 5) -> None:
        super().__init__()
        self.table = nn.Embedding(bins, 2)

    def forward(self, x: Tensor) -> Tensor:
        bins = (x.detach() + 2).floor().long().clamp(0, self.table.num_embeddings - 1)
        return (self.table(bins) * torch.stack([x, x**2], dim=-1)).sum(-1)


class Weighted(nn.Module):
    """A function of a tensor and of a weight of the shape of one row."""

    def __init__(self, name: str, shape: tuple[int, ...], function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(shape))
        self.name, self.function = name, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight)

    def extra_repr(self) -> str:
        return self.name


class SquareAndCube(torch.autograd.Function):
    """A function with derivatives written by hand, that can be differentiated twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**2 + x**3 / 3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * (2 * x + x**2)


def _in_place(x: Tensor) -> Tensor:
    out = x * 0.5
    out[:, 0] = x[:, 0] * x[:, -1]
    return out.mul_(2).add_(0.1)


def _sigmoid_in_place(x: Tensor) -> Tensor:
    return (x * 2).sigmoid_()


def _masked(x: Tensor) -> Tensor:
    return x.masked_fill(x < -0.5, 0.0) * x


def _scattered(x: Tensor) -> Tensor:
    flat = x.flatten(1)
    index = torch.arange(flat.shape[1]).flip(0).expand(len(x), -1)
    return torch.zeros_like(flat).scatter_add(1, index, flat**2).reshape(x.shape)


def _gathered(x: Tensor) -> Tensor:
    flat = x.flatten(1)
    return (flat.gather(1, flat.argsort(1)) * flat).reshape(x.shape)


def _softmax_by_hand(x: Tensor) -> Tensor:
    raised = (x - x.amax(-1, keepdim=True)).exp()
    return raised / raised.sum(-1, keepdim=True)


def _standardised(x: Tensor) -> Tensor:
    flat = x.flatten(1)
    return ((flat - flat.mean(1, keepdim=True)) / (flat.var(1, keepdim=True) + 0.1).sqrt()).reshape(x.shape)


def _spectrum(x: Tensor) -> Tensor:
    return torch.fft.fft(x, dim=-1).abs().square() / x.shape[-1]


def _solved(x: Tensor) -> Tensor:
    flat = x.flatten(1)
    matrix = torch.eye(flat.shape[1], dtype=x.dtype) + flat[:, :, None] * flat[:, None, :]
    return torch.linalg.solve(matrix, flat + 1).reshape(x.shape)


def _checkpointed(x: Tensor) -> Tensor:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(lambda x: torch.tanh(x) * x, x, use_reentrant=False)


def _branched(x: Tensor) -> Tensor:
    """Python's own if, on what is in the rows."""
    return torch.stack([row.tanh() if bool(row.sum() > 0) else row.sin() * 2 for row in x])


#: Smooth, one number at a time.
SMOOTH: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "softplus, sharp": lambda x: F.softplus(x, beta=3.0, threshold=2.0),
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "elu": F.elu,
    "celu": lambda x: F.celu(x, alpha=0.7),
    "selu": F.selu,
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "sin": torch.sin,
    "cos": torch.cos,
    "square": torch.square,
    "cube": lambda x: (x / 2) ** 3,
    "power": lambda x: (x**2 + 1) ** 0.7,
    "exp": lambda x: torch.exp(x.clamp(max=3)),
    "expm1": lambda x: torch.expm1(x / 2),
    "log1p": lambda x: torch.log1p(x**2),
    "sqrt": lambda x: torch.sqrt(1 + x * x),
    "rsqrt": lambda x: x * torch.rsqrt(1 + x.pow(2)),
    "reciprocal": lambda x: 1 / (2 + x**2),
    "division": lambda x: x / (1 + x.abs()),
    "erf": torch.erf,
    "atan": torch.atan,
    "atan2": lambda x: torch.atan2(x, 1 + x**2),
    "sinh": lambda x: torch.sinh(x / 3),
    "logit": lambda x: torch.logit(torch.sigmoid(x), eps=1e-6),
    "xlogy": lambda x: torch.xlogy(x.sigmoid(), x.sigmoid()),
    "logaddexp": lambda x: torch.logaddexp(x, -x / 2),
    "hypot": lambda x: torch.hypot(x, torch.ones_like(x)),
    "addcmul": lambda x: torch.addcmul(x, x, x.tanh(), value=0.5),
    "lerp": lambda x: torch.lerp(x, x.tanh(), 0.3),
    "sinc": torch.sinc,
    "complex": lambda x: torch.polar(torch.ones_like(x), x).real,
    "by hand": SquareAndCube.apply,
    "in place": _in_place,
    "sigmoid in place": _sigmoid_in_place,
    "checkpoint": _checkpointed,
}
#: With kinks or jumps, one number at a time.
KINKED: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "relu, curved": lambda x: torch.relu(x) ** 2,
    "leaky relu": F.leaky_relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "threshold": lambda x: F.threshold(x, 0.2, -0.1),
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "rrelu": F.rrelu,
    "abs": torch.abs,
    "clamp": lambda x: x.clamp(-0.8, 0.9) * x,
    "clamp by tensors": lambda x: torch.clamp(x, min=-x * x, max=x * x),
    "where": lambda x: torch.where(x > 0, x.sin(), x**2),
    "maximum": lambda x: torch.maximum(x, x**2),
    "minimum": lambda x: torch.minimum(x.sin(), x.cos()),
    "fmax": lambda x: torch.fmax(x, 0.5 * x),
    "sign": lambda x: torch.sign(x) * x**2,
    "heaviside": lambda x: (x > 0.1).to(x) * x**2,
    "fraction": lambda x: (x - x.floor()) ** 2,
    "remainder": lambda x: torch.remainder(x, 1.5) * x,
    "copysign": lambda x: torch.copysign(x**2, x),
    "nan_to_num": lambda x: torch.nan_to_num(x) * x,
    "detach": lambda x: x.detach() * x,
    "masked": _masked,
    "branch": _branched,
}
#: From a row to a row of the same shape, in which the numbers meet.
MIXING: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(-1),
    "softmax over the first": lambda x: F.softmax(x, dim=1),
    "log softmax": lambda x: x.log_softmax(-1),
    "softmin": lambda x: F.softmin(x, dim=-1),
    "softmax by hand": _softmax_by_hand,
    "normalize": lambda x: F.normalize(x, dim=-1),
    "standardise": _standardised,
    "layer norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "rms norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "centre": lambda x: x - x.mean(-1, keepdim=True),
    "cumsum": lambda x: x.cumsum(-1),
    "cumprod": lambda x: x.tanh().cumprod(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "cummax": lambda x: x.cummax(-1).values,
    "sort": lambda x: x.sort(-1).values * torch.arange(1.0, 1.0 + x.shape[-1]).to(x),
    "sorted products": _gathered,
    "roll": lambda x: x * x.roll(1, dims=-1),
    "flip": lambda x: x * x.flip(-1),
    "largest": lambda x: x * x.amax(-1, keepdim=True),
    "least": lambda x: x - x.min(-1, keepdim=True).values,
    "median": lambda x: x * x.median(-1, keepdim=True).values,
    "norm": lambda x: x * x.norm(dim=-1, keepdim=True),
    "logsumexp": lambda x: x - torch.logsumexp(x, -1, keepdim=True),
    "product": lambda x: x + x.tanh().prod(-1, keepdim=True),
    "spread": lambda x: x * x.std(-1, keepdim=True, unbiased=False),
    "distance": lambda x: (x[..., None] - x[..., None, :]).square().mean(-1),
    "difference": lambda x: F.pad(x.diff(dim=-1), (0, 1)) ** 2,
    "pad": lambda x: F.pad(x, (1, 0))[..., :-1] * x,
    "outer": lambda x: torch.einsum("...i,...j->...i", x, x.sin()),
    "einsum": lambda x: torch.einsum("n...,n...->n...", x, x.cos()),
    "self product": lambda x: (x.flatten(1)[:, :, None] @ x.flatten(1)[:, None]).sum(2).reshape(x.shape),
    "scatter": _scattered,
    "index": lambda x: x[..., list(range(x.shape[-1]))[::-1]] * x.tanh(),
    "unbind": lambda x: torch.stack([part * x.mean(-1) for part in x.unbind(-1)], dim=-1),
    "split": lambda x: torch.cat([x[..., :1] * x[..., 1:], x[..., :1] ** 2], dim=-1),
    "repeat": lambda x: x.repeat_interleave(2, dim=-1).unflatten(-1, (-1, 2)).prod(-1),
    "spectrum": _spectrum,
    "solve": _solved,
    "cosine": lambda x: x * F.cosine_similarity(x, x.roll(1, -1) + 1, dim=-1).unsqueeze(-1),
    "there and back": lambda x: x.flatten(1).reshape(x.shape).contiguous().view(x.shape).tanh(),
    "movedim": lambda x: x.movedim(-1, 1).movedim(1, -1).sin(),
}
FUNCTIONS = {**SMOOTH, **KINKED, **MIXING}

Shape = tuple[int, ...]
#: A kind of tensor: "vector" (C), "tokens" (L, C), "signal" (C, L) or "image" (C, H, W).
Form = tuple[str, Shape]
Maker = Callable[[Shape], tuple[nn.Module, Shape]]


def _heads(width: int) -> int:
    return 2 if width % 2 == 0 else 1


def _same(make: Callable[[Shape], nn.Module]) -> Maker:
    return lambda shape: (make(shape), shape)


def _pooled(length: int) -> int:
    return max(1, length // 2)


ANYWHERE: dict[str, Maker] = {
    **{name: _same(lambda shape, name=name: Call(name, FUNCTIONS[name])) for name in FUNCTIONS},
    "ReLU": _same(lambda shape: nn.ReLU()),
    "ReLU, in place": _same(lambda shape: nn.Sequential(Call("copy", lambda x: x * 1.0), nn.ReLU(inplace=True))),
    "Tanh": _same(lambda shape: nn.Tanh()),
    "PReLU": _same(lambda shape: nn.PReLU()),
    "Dropout": _same(lambda shape: nn.Dropout(0.4)),
    "AlphaDropout": _same(lambda shape: nn.AlphaDropout(0.3)),
    "Identity": _same(lambda shape: nn.Identity()),
    "Embedding": _same(lambda shape: Embedded()),
    "scale": _same(lambda shape: Weighted("scale", shape, lambda x, w: x * w)),
    "product with a weight": _same(lambda shape: Weighted("product", shape, lambda x, w: (x + w).tanh() * (x - w))),
    "maximum with a weight": _same(lambda shape: Weighted("maximum", shape, lambda x, w: torch.maximum(x * x, w))),
    "LayerNorm": _same(lambda shape: nn.LayerNorm(shape)),
}
LAST: dict[str, Maker] = {
    "Linear": lambda shape: (nn.Linear(shape[-1], 4), (*shape[:-1], 4)),
    "LayerNorm of the last": _same(lambda shape: nn.LayerNorm(shape[-1])),
    "RMSNorm": _same(lambda shape: nn.RMSNorm(shape[-1])),
    "Residual": _same(
        lambda shape: Residual(nn.Sequential(nn.Linear(shape[-1], 3), nn.GELU(), nn.Linear(3, shape[-1])))
    ),
    "Gate": _same(lambda shape: Gate(nn.Linear(shape[-1], shape[-1]), nn.Linear(shape[-1], shape[-1]))),
    "Twice": _same(lambda shape: Twice(nn.Linear(shape[-1], shape[-1]))),
    "GLU": lambda shape: (nn.Sequential(nn.Linear(shape[-1], 6), nn.GLU()), (*shape[:-1], 3)),
    "weight norm": lambda shape: (nn.utils.parametrizations.weight_norm(nn.Linear(shape[-1], 3)), (*shape[:-1], 3)),
}
VECTOR: dict[str, Maker] = {
    "BatchNorm1d": _same(lambda shape: nn.BatchNorm1d(shape[0])),
    "Bilinear": lambda shape: (_Square(shape[0]), (3,)),
    "GroupNorm of a vector": _same(lambda shape: nn.GroupNorm(1, shape[0])),
    "a vector as tokens": lambda shape: (nn.Unflatten(1, (shape[0], 1)), (shape[0], 1)),
}
TOKENS: dict[str, Maker] = {
    "MultiheadAttention": _same(lambda shape: SelfAttention(shape[1], _heads(shape[1]), True, False)),
    "MultiheadAttention, weights": _same(lambda shape: SelfAttention(shape[1], 1, True, True)),
    "MultiheadAttention, rows second": _same(lambda shape: SelfAttention(shape[1], 1, False, False)),
    "scaled attention": _same(lambda shape: ScaledAttention(shape[1], False)),
    "causal attention": _same(lambda shape: ScaledAttention(shape[1], True)),
    "TransformerEncoderLayer": _same(
        lambda shape: nn.TransformerEncoderLayer(shape[1], _heads(shape[1]), 5, activation="gelu", batch_first=True)
    ),
    "GRU": lambda shape: (Recurrent(nn.GRU, shape[1], False, False), (shape[0], 3)),
    "GRU, both ways": lambda shape: (Recurrent(nn.GRU, shape[1], True, True), (1, 6)),
    "LSTM": lambda shape: (Recurrent(nn.LSTM, shape[1], False, True), (1, 3)),
    "RNN": lambda shape: (Recurrent(nn.RNN, shape[1], False, False), (shape[0], 3)),
    "GRUCell": lambda shape: (Unrolled(shape[1]), (shape[0], 3)),
    "mean of tokens": lambda shape: (Call("mean of tokens", lambda x: x.mean(1)), (shape[1],)),
    "largest of tokens": lambda shape: (Call("largest of tokens", lambda x: x.max(1).values), (shape[1],)),
    "tokens as a signal": lambda shape: (Call("transpose", lambda x: x.transpose(1, 2)), shape[::-1]),
}
SIGNAL: dict[str, Maker] = {
    "Conv1d": lambda shape: (nn.Conv1d(shape[0], 3, 2, padding=1), (3, shape[1] + 1)),
    "Conv1d, circular": lambda shape: (
        nn.Conv1d(shape[0], 3, 3, padding=1, padding_mode="circular"),
        (3, shape[1]),
    ),
    "ConvTranspose1d": lambda shape: (nn.ConvTranspose1d(shape[0], 2, 2), (2, shape[1] + 1)),
    "BatchNorm1d of a signal": _same(lambda shape: nn.BatchNorm1d(shape[0])),
    "InstanceNorm1d": _same(lambda shape: nn.InstanceNorm1d(shape[0], eps=0.1) if shape[1] > 1 else nn.Identity()),
    "MaxPool1d": lambda shape: (nn.AdaptiveMaxPool1d(_pooled(shape[1])), (shape[0], _pooled(shape[1]))),
    "AvgPool1d": lambda shape: (nn.AvgPool1d(2, 1, padding=1), (shape[0], shape[1] + 1)),
    "Upsample": lambda shape: (nn.Upsample(scale_factor=2, mode="linear"), (shape[0], 2 * shape[1])),
    "a signal as tokens": lambda shape: (Call("transpose", lambda x: x.transpose(1, 2)), shape[::-1]),
}
IMAGE: dict[str, Maker] = {
    "Conv2d": lambda shape: (nn.Conv2d(shape[0], 3, 2, padding=1), (3, shape[1] + 1, shape[2] + 1)),
    "Conv2d, separable": lambda shape: (
        nn.Sequential(nn.Conv2d(shape[0], shape[0], 3, padding=1, groups=shape[0]), nn.Conv2d(shape[0], 3, 1)),
        (3, *shape[1:]),
    ),
    "Conv2d, dilated": lambda shape: (nn.Conv2d(shape[0], 2, 2, padding=1, dilation=2), (2, *shape[1:])),
    "Conv2d, reflected": lambda shape: (
        nn.Conv2d(shape[0], 2, 3, padding=1, padding_mode="reflect" if min(shape[1:]) > 1 else "replicate"),
        (2, *shape[1:]),
    ),
    "ConvTranspose2d": lambda shape: (nn.ConvTranspose2d(shape[0], 2, 2), (2, shape[1] + 1, shape[2] + 1)),
    "BatchNorm2d": _same(lambda shape: nn.BatchNorm2d(shape[0])),
    "GroupNorm": _same(lambda shape: nn.GroupNorm(1, shape[0])),
    "InstanceNorm2d": _same(lambda shape: nn.InstanceNorm2d(shape[0], eps=0.1) if shape[1] > 1 else nn.Identity()),
    "LocalResponseNorm": _same(lambda shape: nn.LocalResponseNorm(2, alpha=0.5)),
    "MaxPool2d": lambda shape: (nn.MaxPool2d(2, 1, padding=1), (shape[0], shape[1] + 1, shape[2] + 1)),
    "AvgPool2d": lambda shape: (nn.AvgPool2d(2, 1, padding=1), (shape[0], shape[1] + 1, shape[2] + 1)),
    "LPPool2d": lambda shape: (
        nn.Sequential(nn.Softplus(), nn.LPPool2d(2, (1, shape[2]))),
        (shape[0], shape[1], 1),
    ),
    "AdaptiveMaxPool2d": lambda shape: (nn.AdaptiveMaxPool2d(2), (shape[0], 2, 2)),
    "AdaptiveAvgPool2d": lambda shape: (nn.AdaptiveAvgPool2d((2, 1)), (shape[0], 2, 1)),
    "bilinear": lambda shape: (nn.Upsample(size=(3, 3), mode="bilinear"), (shape[0], 3, 3)),
    "bicubic": lambda shape: (nn.Upsample(size=(3, 2), mode="bicubic"), (shape[0], 3, 2)),
    "squeeze and excite": _same(lambda shape: _SqueezeExcite(shape[0])),
    "Dropout2d": _same(lambda shape: nn.Dropout2d(0.3)),
    "residual convolution": _same(
        lambda shape: Residual(nn.Sequential(nn.Conv2d(shape[0], shape[0], 3, padding=1), nn.SiLU()))
    ),
    "unfold": lambda shape: (nn.Unfold((1, shape[2])), (shape[0] * shape[2], shape[1])),
    "grid sample": _same(lambda shape: _Turned()),
    "PixelShuffle": lambda shape: (
        nn.Sequential(nn.Conv2d(shape[0], 4, 1), nn.PixelShuffle(2)),
        (1, 2 * shape[1], 2 * shape[2]),
    ),
}
BY_KIND = {
    "vector": {**ANYWHERE, **LAST, **VECTOR},
    "tokens": {**ANYWHERE, **LAST, **TOKENS},
    "signal": {**ANYWHERE, **LAST, **SIGNAL},
    "image": {**ANYWHERE, **IMAGE},
}
SHAPES: dict[str, tuple[Shape, ...]] = {
    "vector": ((4,), (2,), (7,)),
    "tokens": ((3, 2), (4, 4), (2, 3)),
    "signal": ((2, 4), (3, 3)),
    "image": ((1, 3, 3), (2, 3, 4)),
}
#: What a few makers change the kind to.
BECOMES = {
    "a vector as tokens": "tokens",
    "mean of tokens": "vector",
    "largest of tokens": "vector",
    "tokens as a signal": "signal",
    "a signal as tokens": "tokens",
    "unfold": "signal",
}


class _Square(nn.Module):
    """A bilinear form in twice the same tensor."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.form = nn.Bilinear(width, width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.form(x, x.tanh())


class _SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(channels, 2), nn.Linear(2, channels)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.up(F.silu(self.down(x.mean((2, 3))))).sigmoid()
        return x * weights[:, :, None, None]


class _Turned(nn.Module):
    """An image turned by a little, read between its pixels."""

    def forward(self, x: Tensor) -> Tensor:
        turn = torch.tensor([[0.9, 0.2, 0.05], [-0.2, 0.9, 0.0]], dtype=x.dtype).expand(len(x), -1, -1)
        return F.grid_sample(x, F.affine_grid(turn, list(x.shape), align_corners=False), align_corners=False)


# One case: a network, data and a question.


@dataclass(frozen=True)
class Case:
    model: nn.Module
    x: Tensor
    layer: str | None = None
    units: Any = None
    output: str = "raw"
    target: int | None = 0
    engine: str = "auto"


def build(kind: str, shape: Shape, names: list[str], outputs: int, seed: int, training: bool = False) -> nn.Sequential:
    """Put the named parts one after the other, with a bent head, and give them weights that depend on the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts: list[nn.Module] = []
        for name in names:
            module, shape = BY_KIND[kind][name](shape)
            kind = BECOMES.get(name, kind)
            parts.append(module)
        parts += [nn.Flatten(), nn.Linear(math.prod(shape), 4), nn.Tanh(), nn.Linear(4, outputs)]
        model = nn.Sequential(*parts).double()
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.running_mean.normal_()
                    module.running_var.uniform_(0.5, 2)
    return model.train(training)


def data(shape: Shape, seed: int) -> Tensor:
    return torch.randn(ROWS, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(list(SHAPES)))
    shape = draw(st.sampled_from(SHAPES[kind]))
    names: list[str] = []
    now = kind
    for _ in range(draw(st.integers(1, 5))):
        # Parts that are special to a kind of tensor are as likely as those that fit anywhere.
        special = [name for name in BY_KIND[now] if name not in ANYWHERE]
        names.append(draw(st.one_of(st.sampled_from(special), st.sampled_from(list(ANYWHERE)))))
        now = BECOMES.get(names[-1], now)
    outputs = draw(st.integers(1, 3))
    seed = draw(st.integers(0, 1000))
    model = build(kind, shape, names, outputs, seed, draw(st.booleans()))
    layers = [name for name, module in model.named_modules() if name and not isinstance(module, nn.ParameterList)]
    layer = draw(st.one_of(st.none(), st.sampled_from(layers)))
    case = Case(
        model,
        data(shape, seed),
        layer,
        draw(units_for(model, data(shape, seed), layer)),
        draw(st.sampled_from(["raw", "probability"])),
        draw(st.sampled_from([None, 0] if outputs == 1 else list(range(outputs)))),
        draw(st.sampled_from(["auto", "auto", "exact", "structured"])),
    )
    note(f"{kind} {shape}: {names}, {outputs} outputs, seed {seed}")
    note(f"layer={layer!r}, units={case.units!r}, output={case.output!r}, target={case.target}, engine={case.engine!r}")
    return case


def units_for(model: nn.Module, x: Tensor, layer: str | None) -> st.SearchStrategy[Any]:
    """Units that fit the layer, and are not too many."""
    shape = seen_shape(model, x, layer)
    if shape is None:
        return st.none()
    total = math.prod(shape)
    usual = total if layer is None or len(shape) == 1 else min(shape)
    few = min(usual, 6)
    fitting: list[st.SearchStrategy[Any]] = []
    if (total if layer is None or len(shape) == 1 else max(shape)) <= MOST_UNITS:
        fitting.append(st.none())
    if few > 1:
        fitting.append(st.lists(st.integers(0, usual - 1), min_size=2, max_size=few, unique=True).map(geh.units.Subset))
    if len(shape) > 1:
        fitting.append(st.sampled_from([1, -1]).map(geh.units.Channels))
    if len(shape) == 2:
        fitting.append(st.just(geh.units.Tokens()))
    if len(shape) in (2, 3):
        fitting.append(st.sampled_from([2, (1, 2)]).map(geh.units.Patches))
    if 1 < total <= MOST_UNITS:
        fitting.append(st.just(geh.units.Neurons()))
    if total > 2:
        fitting.append(st.just(geh.units.FeatureGroups({"first": [0], "others": list(range(1, total))})))
    return st.one_of(fitting) if fitting else st.none()


def seen_shape(model: nn.Module, x: Tensor, layer: str | None) -> Shape | None:
    """Return the shape of one row at the layer, None if it is not one row after the other."""
    if layer is None:
        return tuple(x.shape[1:])
    seen: list[Tensor] = []
    model = copy.deepcopy(model).eval()
    model.get_submodule(layer).register_forward_hook(lambda module, args, out: seen.append(_first(out)))
    with torch.no_grad(), _plain_kernels():
        model(x)
    return tuple(seen[0].shape[1:]) if seen and seen[0].ndim > 1 and len(seen[0]) == len(x) else None


def _first(out: Any) -> Tensor:
    return out if isinstance(out, Tensor) else out[0]


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Let attention use operations that have second derivatives."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


# The truth, by nothing but torch.


def directions(shape: Shape, units: str) -> Tensor:
    """Directions (D, *shape) of the units that a result says it has explained."""
    total = math.prod(shape)
    single = torch.eye(total).reshape(total, *shape)
    if some := re.fullmatch(r"Subset\((\[.*?\]), of=(.*)\)", units):
        return directions(shape, some[2])[[int(i) for i in some[1].strip("[]").split(",")]]
    if units == "Neurons()":
        return single
    if channels := re.fullmatch(r"Channels\(dim=(-?\d)\)", units):
        dim = int(channels[1])
        return reference.channel_directions(shape, dim - 1 if dim > 0 else len(shape) + dim)
    if units == "Tokens()":
        return reference.channel_directions(shape, 0)
    if units.startswith("FeatureGroups"):
        return torch.stack([single[0], single[1:].sum(0)])
    height, width = (int(size) for size in re.findall(r"\d+", units)[:2])
    squares = []
    for top in range(0, shape[-2], height):
        for left in range(0, shape[-1], width):
            square = torch.zeros(shape)
            square[..., top : top + height, left : left + width] = 1
            squares.append(square)
    return torch.stack(squares)


#: What torch differentiates once only, in operations that it differentiates twice.
IN_PLAIN_WORDS: dict[str, Callable[[Tensor], Tensor]] = {
    "hardsigmoid": lambda x: (x + 3).clamp(0, 6) / 6,
    "hardswish": lambda x: x * (x + 3).clamp(0, 6) / 6,
}


def plain_hessians(case: Case, units: str, words: dict[str, Callable[[Tensor], Tensor]] = IN_PLAIN_WORDS) -> np.ndarray:
    """Local Hessians (n, D, D): a hook that moves the units, and two backward passes."""
    model, shape = copy.deepcopy(case.model).eval(), seen_shape(case.model, case.x, case.layer)
    assert shape is not None
    for module in model.modules():
        if isinstance(module, Call):
            module.function = words.get(module.name, module.function)
    along = directions(shape, units).double()
    t = torch.zeros(ROWS, len(along), dtype=torch.double, requires_grad=True)
    shift = torch.einsum("nd,d...->n...", t, along)

    def move(module: nn.Module, args: Any, out: Any) -> Any:
        return out + shift if isinstance(out, Tensor) else (out[0] + shift, *out[1:])

    if case.layer is not None:
        model.get_submodule(case.layer).register_forward_hook(move)
    with _plain_kernels():
        out = model(case.x + shift if case.layer is None else case.x)
    if case.output == "probability":
        out = out.sigmoid() if out.shape[1] == 1 else out.softmax(1)
    value = out[:, case.target or 0].sum()
    hessians = torch.zeros(ROWS, len(along), len(along), dtype=torch.double)
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value, t, create_graph=True, materialize_grads=True)
        for unit in range(len(along) if gradient.requires_grad else 0):
            (row,) = torch.autograd.grad(gradient[:, unit].sum(), t, retain_graph=True, materialize_grads=True)
            hessians[:, unit] = row
    return hessians.numpy()


def check(case: Case) -> str:
    """Explain a case and compare; return which engine did it, or that it was refused."""
    labels = np.arange(ROWS) % 2
    with untouched(case.model), warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        try:
            result = geh.GEHExplainer(
                case.model,
                case.layer,
                units=case.units,
                output=case.output,
                posterior=geh.posterior.PointEstimate(),
                smooth=None,
                engine=case.engine,
            ).explain(case.x, case.target, groups=labels, draws=1, progress=False)
        except geh.GEHError as error:
            if not any(re.search(words, str(error)) for words in FAIR):
                raise
            return "refused"
    if result.settings["engine"] == "difference":
        with pytest.raises(RuntimeError, match=r"derivative for .* is not implemented"):
            plain_hessians(case, result.settings["units"], words={})
        return "difference"
    local = plain_hessians(case, result.settings["units"])
    largest = np.abs(local).max()
    for scores, truth in (
        (result.aeh, reference.aeh(local)),
        (result.geh, reference.geh(local, labels)),
        (result.eah, reference.eah(local)),
    ):
        np.testing.assert_allclose(scores.mean, truth, rtol=0, atol=CLOSE * largest + ROUNDING)
    return str(result.settings["engine"])


# Statements.


@fixed
@given(case=cases())
def test_a_random_network_has_the_hessians_of_two_plain_backward_passes(case: Case) -> None:
    check(case)


PARTS = [(kind, name) for kind, parts in BY_KIND.items() for name in parts if kind == "tokens" or name not in ANYWHERE]


@pytest.mark.parametrize(("kind", "name"), PARTS, ids=[f"{name}, {kind}" for kind, name in PARTS])
def test_each_part_alone_has_the_hessians_of_two_plain_backward_passes(kind: str, name: str) -> None:
    shape = SHAPES[kind][0]
    assert check(Case(build(kind, shape, [name], 2, 0), data(shape, 0), target=1)) != "refused"


class RowsSecond(nn.Module):
    """A recurrent layer whose output has the tokens first, and the rows second."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(3, 4)
        self.head = nn.Sequential(nn.Linear(4 * ROWS, 5), nn.Tanh(), nn.Linear(5, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x.transpose(0, 1))[0].transpose(0, 1).flatten(1))


def test_a_layer_with_its_rows_in_the_second_dimension_is_refused_even_with_as_many_tokens_as_rows() -> None:
    model, x = RowsSecond().double(), data((ROWS, 3), 0)
    for engine in ("auto", "exact"):
        explainer = geh.GEHExplainer(model, "cell", posterior=geh.posterior.PointEstimate(), engine=engine)
        with pytest.raises(geh.GEHError, match="first dimension must be the rows"):
            explainer.explain(x, groups=1, progress=False)


def test_a_network_that_torch_cannot_differentiate_is_refused_or_explained_by_differences() -> None:
    model = build("vector", (4,), ["Linear"], 1, 0).append(Call("tanh, then in place", lambda x: x.tanh().mul_(2)))
    explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        result = explainer.explain(data((4,), 0), groups=1, progress=False)
    assert result.settings["engine"] == "difference"
