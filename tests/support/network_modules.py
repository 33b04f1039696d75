"""Modules and functions of many kinds, from which random networks are built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, settings
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

#: Largest difference from the reference, over the reference's largest entry ...
CLOSE = 1e-8
#: ... and the rounding error of numbers of size 1 that cancel.
ROUNDING = 1e-12
#: Rows of each case.
ROWS = 4
#: Units at most, as the reference is slow.
MAX_UNITS = 40
#: The only errors that such networks may raise: those about a layer that cannot be explained.
ALLOWED_ERRORS = (
    r"never reached",
    r"only 1 unit",
    r"first dimension must be the rows",
    r"output is NaN or infinite",
    r"NaN or infinite",
    r"returns .* per row in its calls",
)


#: The same examples on every run.
fixed = settings(
    derandomize=True, deadline=None, database=None, max_examples=25, suppress_health_check=list(HealthCheck)
)


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
    """Features in bins, each with a vector that scales the feature."""

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


class Cube(torch.autograd.Function):
    """x^3, twice differentiable."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3 * ctx.saved_tensors[0] ** 2


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
    return checkpoint(lambda x: torch.tanh(x) * x, x, use_reentrant=False)


def _branched(x: Tensor) -> Tensor:
    """A Python branch on the values of each row."""
    return torch.stack([row.tanh() if bool(row.sum() > 0) else row.sin() * 2 for row in x])
