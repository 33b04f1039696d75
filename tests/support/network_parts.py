"""Parts from which random networks are built, by kind of tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from network_modules import (
    Call,
    Embedded,
    Gate,
    Recurrent,
    Residual,
    ScaledAttention,
    SelfAttention,
    SquareAndCube,
    Twice,
    Unrolled,
    Weighted,
    _branched,
    _checkpointed,
    _gathered,
    _in_place,
    _masked,
    _scattered,
    _sigmoid_in_place,
    _softmax_by_hand,
    _solved,
    _spectrum,
    _standardised,
)
from torch import Tensor, nn

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


#: The kind of tensor after parts that change it.
BECOMES = {
    "a vector as tokens": "tokens",
    "mean of tokens": "vector",
    "largest of tokens": "vector",
    "tokens as a signal": "signal",
    "a signal as tokens": "tokens",
    "unfold": "signal",
}


#: Parts that the structured engine does not support. The exact engine, which is double backward, explains them.
EXACT = frozenset(
    (
        *("logsigmoid", "atan2", "logit", "xlogy", "logaddexp", "hypot", "addcmul", "lerp", "sinc", "complex"),
        *("by hand", "in place", "clamp by tensors", "maximum", "minimum", "fmax", "sign", "fraction", "remainder"),
        *("copysign", "nan_to_num", "masked", "branch", "softmin", "softmax by hand", "normalize", "standardise"),
        *("rms norm", "cumsum", "cumprod", "logcumsumexp", "cummax", "sort", "sorted products", "largest", "least"),
        *("median", "norm", "logsumexp", "product", "spread", "difference", "outer", "einsum", "self product"),
        *("scatter", "repeat", "spectrum", "solve", "cosine", "AlphaDropout", "maximum with a weight", "RMSNorm"),
        *("GLU", "Bilinear", "MultiheadAttention", "MultiheadAttention, weights", "MultiheadAttention, rows second"),
        *("scaled attention", "causal attention", "TransformerEncoderLayer", "GRU", "GRU, both ways", "LSTM", "RNN"),
        *("GRUCell", "largest of tokens", "InstanceNorm1d", "MaxPool1d", "GroupNorm of a vector", "GroupNorm"),
        *("InstanceNorm2d", "LocalResponseNorm", "LPPool2d", "AdaptiveMaxPool2d", "unfold", "grid sample"),
    )
)
#: Those of them that are tested at each change: one of each way in which double backward may go wrong.
ESSENTIAL_EXACT = frozenset(
    (
        *("by hand", "in place", "branch", "complex", "sort", "scatter", "solve", "einsum", "AlphaDropout"),
        *("MultiheadAttention", "MultiheadAttention, rows second", "scaled attention", "TransformerEncoderLayer"),
        *("GRU", "LSTM", "GRUCell", "GroupNorm", "AdaptiveMaxPool2d", "grid sample", "clamp by tensors"),
    )
)


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
