"""Interception of dropout: every call inside a model is replaced by a multiplication with a recorded mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from geh_explain._process import SafeContext, safe_contextmanager
from geh_explain.errors import GEHRuntimeError
from geh_explain.posterior.dropout_kinds import DROPOUT_FUNCTIONS, ELEMENTS, PATH, DrawsMasks, DropoutKind, path_rate
from geh_explain.posterior.masks import MaskRecord, sample_mask

#: Value of a dropped entry in alpha dropout: the limit of SELU at minus infinity.
_ALPHA = -1.7580993408473766


class NoDropout(GEHRuntimeError):
    """MC dropout was requested for a model that drops nothing."""


class DropoutMode(TorchFunctionMode):
    """A context in which dropout multiplies by the masks of a :class:`~geh_explain.posterior.masks.MaskRecord`.

    A torch function mode gets every call of a torch function, so that dropout modules and functional dropout are
    treated alike, in eval mode too. Two things are no torch functions and need hooks on their modules:
    stochastic depth (:meth:`drop_path`) and modules with masks of their own (:meth:`drop_nodes`). The hooks
    :meth:`begin_forward` and :meth:`end_forward` belong on the whole model.

    Parameters
    ----------
    record
        The masks of one draw or of several.
    everywhere
        Whether all dropout is intercepted. With False only that inside modules which have the hooks :meth:`open` and
        :meth:`close`; other calls run as usual.
    """

    def __init__(self, record: MaskRecord, *, everywhere: bool) -> None:
        super().__init__()
        self.record = record
        #: Number of chosen modules that are being called, nested in each other; 1 more if dropout is chosen everywhere.
        self._depth = int(everywhere)

    def begin_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Start a forward pass; a pre-hook of the model. Refuses a first one of several rows."""
        self.record.begin_forward()
        n_rows = [len(value) for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.ndim]
        if not self.record.complete and n_rows and n_rows[0] != 1:
            raise GEHRuntimeError(
                "MCDropout: the first forward pass inside a draw must have a single row, from which the masks of all "
                "rows are sampled; call model(inputs[:1]) first."
            )

    def end_forward(self, module: nn.Module, args: Any, out: Any) -> None:
        """End a forward pass; a hook of the model. Refuses a model that has dropped nothing in its first one."""
        if not self.record.complete and not len(self.record):
            raise NoDropout(
                "posterior=MCDropout(): the model dropped nothing in its forward pass, so draws would not differ. It "
                "has no dropout with p > 0, or has it in a scripted or compiled part, inside an RNN, or only in train "
                "mode together with other changes. Use Ensemble, WeightSamples or Stochastic, or posterior=None for "
                "the point estimate."
            )
        self.record.end_forward()

    def open(self, module: nn.Module, args: Any) -> None:
        """Intercept dropout from here on; a pre-hook of a chosen module."""
        self._depth += 1

    def close(self, module: nn.Module, args: Any, out: Any) -> None:
        """Undo :meth:`open`; a hook of a chosen module."""
        self._depth -= 1

    @safe_contextmanager
    def paused(self) -> Iterator[None]:
        """Intercept nothing inside the context."""
        depth = self._depth
        self._depth = 0
        try:
            yield
        finally:
            self._depth = depth

    def drop_path(self, module: nn.Module, args: tuple[Any, ...], out: Any) -> Tensor | None:
        """Drop a residual branch, for all rows or for none; a hook of a module of stochastic depth."""
        if not self._depth:
            return None
        x: Tensor = args[0]
        return x * self._mask(PATH, path_rate(module), x)

    def drop_nodes(self, module: nn.Module, args: tuple[Any, ...], out: Any) -> Tensor | None:
        """Multiply by the module's own masks; a hook of a module that samples them (:class:`DrawsMasks`)."""
        if not self._depth or not isinstance(module, DrawsMasks):
            return None
        x: Tensor = args[0]
        return x * self.record.mask(x, lambda generator: module.draw_mask(x, generator).detach())

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a torch function, or its dropout with recorded masks."""
        kwargs = kwargs or {}
        if not self._depth:
            return func(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            # It drops only if training=True. Modes are off inside this method, so that self is entered again.
            with SafeContext(self):
                return _traceable_attention(*args, **{**kwargs, "training": True})
        if func is F.scaled_dot_product_attention:
            return self._attend(*args, **kwargs)
        kind = DROPOUT_FUNCTIONS.get(func)
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
        """Return softmax(Q K^T / sqrt(E) + M) V with a recorded mask on the attention weights.

        The arguments are those of ``F.scaled_dot_product_attention``. With dropout it is written out here, because
        the mask is internal to torch's kernels.
        """
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
        return self._drop(ELEMENTS, False, scores.softmax(-1), dropout_p) @ value

    def _drop(
        self,
        kind: DropoutKind,
        in_place: bool,
        input: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
        train: bool = True,
    ) -> Tensor:
        """Return ``input`` with dropout of the given kind.

        From ``input`` on, the arguments are those of torch's dropout functions, by position or by name. ``training``
        and ``train`` are ignored: inside a draw dropout is always on.
        """
        if p == 0:
            return input
        mask = self._mask(kind, p, input)
        if kind.alpha:
            scale = 0.0 if p == 1 else ((1 - p) * (1 + p * _ALPHA**2)) ** -0.5
            dropped = scale * (input * mask + _ALPHA * (1 - mask)) - scale * _ALPHA * p
        else:
            dropped = input * mask
        return input.copy_(dropped) if in_place or inplace else dropped

    def _mask(self, kind: DropoutKind, p: float, x: Tensor) -> Tensor:
        """Return the recorded mask of the next call, sampled at rate ``p`` in the first forward pass."""
        return self.record.mask(x, lambda generator: sample_mask(kind, p, x, generator))


#: ``F.multi_head_attention_forward`` without its first check for torch function modes, which would return to the mode
#: and never reach the dropout inside.
_traceable_attention = FunctionType(
    F.multi_head_attention_forward.__code__,
    {**F.multi_head_attention_forward.__globals__, "has_torch_function": lambda tensors: False},
    argdefs=F.multi_head_attention_forward.__defaults__,
)
