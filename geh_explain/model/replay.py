"""Forward passes that do not compute the part below the layer again.

Each torch call below the layer is answered at once: by kept values if they are used above, else by a tensor of the
right shape without memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from geh_explain._process import safe_contextmanager
from geh_explain.model.below import (
    Below,
    BelowTrace,
    Call,
    ForwardStart,
    NotReplayable,
    function_name,
    only_shapes,
    tensors_of,
)


class Collector(ForwardStart, TorchFunctionMode):
    """Collects the values of the passed tensors in a forward pass that ends at the layer."""

    def __init__(self, below: Below) -> None:
        super().__init__()
        self._below = below
        self._n_calls = 0
        self._found: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.started and not only_shapes(func):
            items = _next_call(self._below, self._n_calls, func).items
            self._n_calls += 1
            for item, tensor in zip(items, tensors_of(result), strict=True):
                if item.passed is not None:
                    self._found[item.passed] = tensor
        return result

    def values(self) -> tuple[Tensor, ...]:
        """Return the values (n, ...) of the passed tensors that belong to rows."""
        if self._n_calls < len(self._below.calls):
            raise NotReplayable("other functions are called for other rows")
        return self._below.by_row(self._found)


class Replay(ForwardStart, TorchFunctionMode):
    """Answers the torch calls below the layer by kept values, without computing anything.

    Attributes
    ----------
    above
        Whether the layer was reached, so that calls run as usual.
    """

    def __init__(self, below: Below, kept: Sequence[Tensor], n_rows: int) -> None:
        super().__init__()
        self.above = False
        self._below = below
        self._passed = below.tensors(kept)
        self._n_rows = n_rows
        self._n_calls = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.above or not self.started or (only_shapes(func) and function_name(func) != "is_contiguous"):
            return func(*args, **(kwargs or {}))
        if function_name(func) == "is_contiguous":
            return True
        call = _next_call(self._below, self._n_calls, func)
        self._n_calls += 1
        tensors = [
            item.empty(self._n_rows) if item.passed is None else self._passed[item.passed] for item in call.items
        ]
        if call.sequence is not None:
            return call.sequence(tensors)
        return tensors[0] if tensors else None


@safe_contextmanager
def forward_start(model: nn.Module, mode: BelowTrace | Collector | Replay) -> Iterator[None]:
    """Tell a mode when the forward method of the model begins."""
    handle = model.register_forward_pre_hook(mode.start, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _next_call(below: Below, number: int, func: Callable[..., Any]) -> Call:
    """Return the recorded call of this number, which must be one of the same function."""
    if number >= len(below.calls) or below.calls[number].name != function_name(func):
        raise NotReplayable("other functions are called for other rows")
    return below.calls[number]


def is_transformed() -> bool:
    """Return whether values have derivatives or dimensions that are not seen: those of ``torch.func``, and duals."""
    return torch._C._functorch.peek_interpreter_stack() is not None or torch.autograd.forward_ad._current_level >= 0
