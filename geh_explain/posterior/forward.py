"""Replace the forward method of one module instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from geh_explain._process import safe_contextmanager


@safe_contextmanager
def replace_forward(model: nn.Module, forward: Callable[..., Any] | None) -> Iterator[None]:
    """Call ``forward`` instead of the forward method of ``model``; None means the method of its class.

    Hooks of the model still run around it. On exit the instance attribute is as before, or absent if it was absent.

    >>> import torch
    >>> model = nn.Linear(2, 1)
    >>> with replace_forward(model, lambda x: x.sum()):
    ...     model(torch.ones(2)).item()
    2.0
    >>> "forward" in vars(model)
    False
    """
    before = vars(model).get("forward")
    _set_forward(model, forward)
    try:
        yield
    finally:
        _set_forward(model, before)


def _set_forward(model: nn.Module, forward: Callable[..., Any] | None) -> None:
    """Set the instance attribute ``forward``, or delete it."""
    if forward is None:
        vars(model).pop("forward", None)
    else:
        vars(model)["forward"] = forward
