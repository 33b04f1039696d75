"""Dropout masks: drawn in the first forward of a draw, of a single row, and replayed for every row after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from geh_explain.errors import GEHRuntimeError

#: What a dropped value of alpha dropout becomes: the limit of SELU at minus infinity.
_ALPHA = -1.7580993408473766


@dataclass(frozen=True)
class _Kind:
    """One kind of dropout: are whole channels dropped, or everything, and is it the self-normalising form?"""

    channels: bool
    alpha: bool
    path: bool = False


_PATH = _Kind(False, False, path=True)
_ELEMENTS, _CHANNELS = _Kind(False, False), _Kind(True, False)
_ALPHA_ELEMENTS, _ALPHA_CHANNELS = _Kind(False, True), _Kind(True, True)

#: Every function that drops something, as modules, functional calls and bare torch calls reach it.
_FUNCTIONS: dict[Callable[..., Any], _Kind] = {
    F.dropout: _ELEMENTS,
    F.dropout1d: _CHANNELS,
    F.dropout2d: _CHANNELS,
    F.dropout3d: _CHANNELS,
    F.alpha_dropout: _ALPHA_ELEMENTS,
    F.feature_alpha_dropout: _ALPHA_CHANNELS,
    torch.dropout: _ELEMENTS,
    torch.dropout_: _ELEMENTS,
    torch.feature_dropout: _CHANNELS,
    torch.feature_dropout_: _CHANNELS,
    torch.alpha_dropout: _ALPHA_ELEMENTS,
    torch.alpha_dropout_: _ALPHA_ELEMENTS,
    torch.feature_alpha_dropout: _ALPHA_CHANNELS,
    torch.feature_alpha_dropout_: _ALPHA_CHANNELS,
}


def path_rate(module: nn.Module) -> float:
    """Return the rate at which a module drops whole residual branches: torchvision's, timm's, Hugging Face's."""
    name = type(module).__name__
    if name == "StochasticDepth":
        return float(getattr(module, "p", 0.0))
    return float(getattr(module, "drop_prob", 0.0) or 0.0) if name.endswith("DropPath") else 0.0


@runtime_checkable
class DrawsMasks(Protocol):
    """A module that multiplies its input by masks of its own, such as those of concrete dropout."""

    def draw_mask(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw the factors of each row."""
        ...


class NoDropout(GEHRuntimeError):
    """MC dropout was asked for, and the model drops nothing."""


class Masks(TorchFunctionMode):
    """Draws the masks in the first forward, of a single row, and replays them by order of call.

    With several seeds, rows come as often as there are seeds: all of them under the masks of the first, all of them
    under those of the second, and so on.
    """

    def __init__(self, *seeds: int, everywhere: bool, drop: bool = True) -> None:
        super().__init__()
        # Masks are drawn on the CPU, so that a seed means the same on every device.
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.open_modules, self.drop = int(everywhere), drop
        self.masks: list[tuple[Tensor, torch.Size]] = []
        self.recorded = False
        self.call = 0

    # Hooks of the whole model: a forward begins and ends.
    def start(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.call = 0
        rows = [len(value) for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.ndim]
        if not self.recorded and rows and rows[0] != 1:
            raise GEHRuntimeError(
                "MCDropout: the first forward inside a draw must have a single row, from which the masks of all rows "
                "are drawn; call model(inputs[:1]) first."
            )

    def finish(self, module: nn.Module, args: Any, out: Any) -> None:
        if not self.recorded and not self.masks:
            raise NoDropout(
                "posterior=MCDropout(): the model dropped nothing in its forward, so draws have no spread. It has no "
                "dropout with 0 < p, or hides it in a scripted or compiled part, inside an RNN, or behind train mode "
                "where that does other things too. Use Ensemble, WeightSamples or Stochastic, or "
                "posterior=None for the point estimate."
            )
        self.recorded = True

    # Hooks of the chosen dropout modules.
    def drop_path(self, module: nn.Module, args: tuple[Any, ...], out: Any) -> Tensor | None:
        """Drop a whole residual branch, for all rows or none (stochastic depth)."""
        if not self.open_modules:
            return None
        x: Tensor = args[0]
        return x * self._mask(x, path_rate(module), _PATH)

    def drop_nodes(self, module: nn.Module, args: tuple[Any, ...], out: Any) -> Tensor | None:
        """Drop by a module's own masks."""
        if not self.open_modules:
            return None
        assert isinstance(module, DrawsMasks)
        x: Tensor = args[0]
        return x * self._recorded(x, lambda generator: module.draw_mask(x, generator).detach())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave all calls alone for a while."""
        opened, self.open_modules = self.open_modules, 0
        try:
            yield
        finally:
            self.open_modules = opened

    def open(self, module: nn.Module, args: Any) -> None:
        self.open_modules += 1

    def close(self, module: nn.Module, args: Any, out: Any) -> None:
        self.open_modules -= 1

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self.open_modules:
            return func(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            # Its own dropout is invisible from outside, and switched off by training=False.
            with self:
                return _open_attention(*args, **{**kwargs, "training": True})
        if func is F.scaled_dot_product_attention:
            return self._attend(*args, **kwargs)
        kind = _FUNCTIONS.get(func)
        return func(*args, **kwargs) if kind is None else self._drop(kind, func.__name__.endswith("_"), *args, **kwargs)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Attend with a recorded mask on the attention weights, written out as torch documents it."""
        if dropout_p == 0:
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        if enable_gqa:
            key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
            value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
        scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -float("inf"))
        elif attn_mask is not None:
            scores = scores + attn_mask
        return self._drop(_ELEMENTS, False, scores.softmax(-1), dropout_p) @ value

    def _drop(
        self,
        kind: _Kind,
        in_place: bool,
        input: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
        train: bool = True,
    ) -> Tensor:
        if p == 0:
            return input
        keep = self._mask(input, p, kind)
        if kind.alpha:
            scale = 0.0 if p == 1 else ((1 - p) * (1 + p * _ALPHA**2)) ** -0.5
            dropped = scale * (input * keep + _ALPHA * (1 - keep)) - scale * _ALPHA * p
        else:
            dropped = input * keep
        return input.copy_(dropped) if in_place or inplace else dropped

    def _mask(self, input: Tensor, p: float, kind: _Kind) -> Tensor:
        kept = 0 if kind.path else 2 if kind.channels else input.ndim
        shape = (*input.shape[:kept], *(1 for _ in input.shape[kept:]))
        # The same masks whatever the caller's default precision.
        rates = torch.full(shape, 1 - p, dtype=torch.float32)

        def draw(generator: torch.Generator) -> Tensor:
            keep = torch.bernoulli(rates, generator=generator).to(input)
            # What plain dropout keeps makes up for what it drops.
            return keep if kind.alpha or p == 1 else keep / (1 - p)

        return self._recorded(input, draw)

    def _recorded(self, input: Tensor, draw: Callable[[torch.Generator], Tensor]) -> Tensor:
        """Draw a mask in the first forward, and return it for all rows in those that follow."""
        if not self.recorded:
            masks = [draw(each) for each in self.generators] if self.drop else [torch.ones(())]
            self.masks.append((torch.stack(masks).to(input), input.shape))
            return self.masks[-1][0][0]
        if self.call >= len(self.masks):
            raise GEHRuntimeError(
                "MCDropout: the model called dropout more often than in the draw's first forward; its forward must not "
                "depend on the data or the batch size. posterior=PointEstimate() leaves dropout out."
            )
        mask, seen = self.masks[self.call]
        self.call += 1
        if len(mask) == 1:
            return _for_rows(mask[0], seen, input.shape)
        rows, *rest = input.shape
        if rows % len(mask):
            raise GEHRuntimeError(f"MCDropout: {rows} rows cannot be shared out among {len(mask)} draws.")
        each = torch.Size((rows // len(mask), *rest))
        if mask.shape[1] == 1 and seen[1:] == each[1:]:
            return mask[:, 0].repeat_interleave(each[0], dim=0)
        return torch.cat([_for_rows(one, seen, each).expand(each[0], *(-1 for _ in rest)) for one in mask])


#: F.multi_head_attention_forward as if no mode were active at its door, so that its inner calls are seen.
_open_attention = FunctionType(
    F.multi_head_attention_forward.__code__,
    {**F.multi_head_attention_forward.__globals__, "has_torch_function": lambda tensors: False},
    argdefs=F.multi_head_attention_forward.__defaults__,
)


def _for_rows(mask: Tensor, seen: torch.Size, shape: torch.Size) -> Tensor:
    """Repeat a mask recorded at ``seen`` for an input of ``shape``: the batch dimension is the one that grew.

    Rows may share their dimension with something else, such as (batch * heads, L, S) in attention.
    """
    if len(seen) != len(shape) or any(now % then for now, then in zip(shape, seen, strict=True)):
        raise GEHRuntimeError(
            f"MCDropout: a dropout saw the shape {tuple(seen)} for one row and now {tuple(shape)}; rows must all have "
            "the same shape."
        )
    times = [now // then if size > 1 else 1 for now, then, size in zip(shape, seen, mask.shape, strict=True)]
    return mask if all(time == 1 for time in times) else mask.repeat(times)
