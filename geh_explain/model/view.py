"""Interception of the torch calls above a cut, and hooks of modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from geh_explain._process import safe_contextmanager
from geh_explain.data.rows import Rows


class View(TorchFunctionMode):
    """Intercepts the torch calls above a cut, and by default executes them unchanged.

    A :class:`~geh_explain.model.cut.Cut` activates its view for one forward pass at a time. Below the cut calls pass
    through; from the cut on each call goes to :meth:`handle`, which a subclass overrides to replace a function (smooth
    forms of kinked ones) or to record it (the structured engine). Modules are covered too, as they call functions.

    The order of calls in a forward pass is :meth:`prepare`, :meth:`begin`, :meth:`enter` at the cut, :meth:`handle` for
    each call above it. Where the layer is called several times, :meth:`pause` and :meth:`enter` come again at each of
    its calls.

    Attributes
    ----------
    active
        Whether calls go to :meth:`handle`.

    Examples
    --------
    >>> import torch
    >>> class Names(View):
    ...     def handle(self, func, args, kwargs):
    ...         print(func.__name__)
    ...         return super().handle(func, args, kwargs)
    >>> x, view = torch.zeros(1, 2), Names()
    >>> view.begin()
    >>> with view:
    ...     below = torch.tanh(x)
    ...     view.enter((below,), (below,))
    ...     above = torch.exp(below)
    exp
    """

    def __init__(self) -> None:
        super().__init__()
        self.active = False

    def prepare(self, rows: Rows) -> None:
        """Measure what the view needs to know of the rows of the next forward pass; nothing by default."""

    def begin(self) -> None:
        """Start a forward pass, below the cut."""
        self.active = False

    def pause(self) -> None:
        """Let calls pass through until the next :meth:`enter`, while the units are shifted."""
        self.active = False

    def enter(self, before: tuple[Tensor, ...], after: tuple[Tensor, ...]) -> None:
        """Cross the cut: the tensors ``before`` continue as ``after``, with the units shifted."""
        self.active = True

    def handle(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of one torch call above the cut."""
        return func(*args, **kwargs)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.handle(func, args, kwargs or {}) if self.active else func(*args, **(kwargs or {}))


@safe_contextmanager
def forward_hook(module: nn.Module, hook: Callable[..., Any]) -> Iterator[None]:
    """Call ``hook(module, args, out)`` after each forward pass of a module within the context."""
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
