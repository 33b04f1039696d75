"""TODO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode


class View(TorchFunctionMode):
    """Sees every torch call above the cut, and may answer it in torch's place."""

    def __init__(self) -> None:
        super().__init__()
        self.live = False

    def begin(self) -> None:
        """Start a forward pass, below the cut."""
        self.live = False

    def enter(self, before: tuple[Tensor, ...], after: tuple[Tensor, ...]) -> None:
        """Cross the cut: the tensors ``before`` it go on as ``after``, with the units shifted."""
        self.live = True

    def handle(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Answer one call."""
        return func(*args, **kwargs)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.handle(func, args, kwargs or {}) if self.live else func(*args, **(kwargs or {}))
