"""Forward passes that do not compute the part below the layer again.

Each torch call below the layer is answered at once: by kept values if they are used above, else by a tensor of the
right shape without values. Where the part above needs values that were not kept, the whole model runs instead.
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
    Item,
    NotReplayable,
    function_name,
    only_shapes,
    tensors_of,
)


class Collector(ForwardStart, TorchFunctionMode):
    """Collects the values of the passed tensors in a forward pass that ends at the layer."""

    def __init__(self, below: Below, n_rows: int) -> None:
        super().__init__()
        self._below = below
        self._n_rows = n_rows
        self._n_calls = 0
        self._found: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.started and not only_shapes(func):
            items = _next_call(self._below, self._n_calls, func).items
            self._n_calls += 1
            tensors = list(tensors_of(result))
            if [item.shape(self._n_rows) for item in items] != [tuple(tensor.shape) for tensor in tensors]:
                raise NotReplayable("the shape of a tensor depends on values")
            self._found.update(
                (item.passed, x) for item, x in zip(items, tensors, strict=True) if item.passed is not None
            )
        return result

    def values(self) -> tuple[Tensor, ...]:
        """Return the values (n, ...) of the passed tensors that belong to rows."""
        if self._n_calls < len(self._below.calls):
            raise NotReplayable("other functions are called for other rows")
        if not self._below.has_constants(self._found):
            raise NotReplayable("a tensor without a dimension of rows depends on the rows")
        return self._below.by_row(self._found)


class Replay(ForwardStart, TorchFunctionMode):
    """Answers the torch calls below the layer by kept values, without computing anything.

    Attributes
    ----------
    above
        Whether the layer was reached, so that calls run as usual.
    failed
        Whether a call below was another one than the recorded one, or one above needs values that were not kept.
    """

    def __init__(self, below: Below, kept: Sequence[Tensor], n_rows: int) -> None:
        super().__init__()
        self.above = False
        self.failed = False
        self._below = below
        self._passed = below.tensors(kept)
        self._n_rows = n_rows
        self._n_calls = 0
        #: Tensors without values, which are held so that no other one gets their identity.
        self._placeholders: dict[int, tuple[Tensor, Item]] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not self.started:
            return func(*args, **(kwargs or {}))
        if only_shapes(func):
            return self._of_shape(func, args, kwargs or {})
        if not self.above:
            return self._answer(func)
        if any(id(tensor) in self._placeholders for tensor in tensors_of((*args, *(kwargs or {}).values()))):
            self.failed = True
            raise NotReplayable("the part above the layer needs other values for other rows")
        return func(*args, **(kwargs or {}))

    def _answer(self, func: Callable[..., Any]) -> Any:
        """Return the result of a call below the layer."""
        try:
            call = _next_call(self._below, self._n_calls, func)
        except NotReplayable:
            self.failed = True
            raise
        self._n_calls += 1
        tensors = [self._placeholder(item) if item.passed is None else self._passed[item.passed] for item in call.items]
        if call.sequence is not None:
            return call.sequence(tensors)
        return tensors[0] if tensors else None

    def _placeholder(self, item: Item) -> Tensor:
        tensor = item.placeholder(self._n_rows)
        self._placeholders[id(tensor)] = tensor, item
        return tensor

    def _of_shape(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return a shape, type or device; that of what a placeholder stands for."""
        if not self.above and function_name(func) == "is_contiguous":
            return True
        known = self._placeholders.get(id(args[0])) if args else None
        if known is not None:
            args = (known[1].stand_in(self._n_rows), *args[1:])
        return func(*args, **kwargs)


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
