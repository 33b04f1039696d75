"""Writes of torch operations to memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from geh_explain.model.saved_state import SavedTensor


class CallWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches the torch operations of one thread.

    Copies the values of tensors before an operation writes to their memory, also through ``.data``.
    """

    def __init__(self, tensors: Sequence[SavedTensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._written: set[int] = set()
        self._by_memory: dict[int, list[SavedTensor]] = {}
        for saved in tensors:
            self._by_memory.setdefault(_memory(saved.data), []).append(saved)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise the first call imports torch's compiler, which takes more than a second.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for position, name in _written_arguments(func):
            value = args[position] if position < len(args) else kwargs.get(name)
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(tensor, Tensor):
                    self._copy(tensor)
        # Operations of TorchScript get here without having passed function modes, which must not see them.
        with torch._C.DisableTorchFunction():
            return func(*args, **kwargs)

    def has_written(self, tensor: Tensor) -> bool:
        """Return whether an operation has written to the memory of a tensor."""
        return _memory(tensor) in self._written

    def _copy(self, tensor: Tensor) -> None:
        if tensor.layout == torch.strided:
            self._written.add(_memory(tensor))
            for saved in self._by_memory.pop(_memory(tensor), ()):
                saved.values = saved.data.clone()


@cache
def _written_arguments(func: Callable[..., Any]) -> tuple[tuple[int, str], ...]:
    """Return positions and names of the arguments that a torch operation writes to."""
    arguments = func._schema.arguments  # type: ignore[attr-defined]
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _memory(tensor: Tensor) -> int:
    # Not seen by function modes, some of which note the calls of a model.
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage().data_ptr()
