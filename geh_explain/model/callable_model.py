"""Plain callables as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from geh_explain.model.object_graph import networks_of


class CallableModel(nn.Module):
    """A plain callable as a module without parameters or layers, so that all other code handles modules only.

    Networks that the callable refers to are no submodules: their modes, precision and devices stay as they are.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        #: The networks that it refers to, by the name of the variable.
        self.networks = networks_of(function, self)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)
