"""Modules around a model or a function, in which a layer can be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from geh_explain.errors import GEHTypeError


class LayerEntry(nn.Module):
    """A model in which the first argument of a layer passes through a module of its own, ``entry``."""

    def __init__(self, model: nn.Module, layer: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.entry = nn.Identity()
        self.layer = [layer]  # not registered twice

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model with the entry in front of the layer."""
        handle = self.layer[0].register_forward_pre_hook(self._enter)
        try:
            return self.model(*args, **kwargs)
        finally:
            handle.remove()

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if not args or not isinstance(args[0], Tensor):
            raise GEHTypeError(
                f"attribute_to_layer_input=True: the first argument of {type(module).__name__} is no tensor; explain "
                "the output of the layer before it."
            )
        return (self.entry(args[0]), *args[1:])


class FunctionWithLayer(nn.Module):
    """A function together with a layer that it calls, as a module in which the layer can be found."""

    def __init__(self, function: Callable[..., Any], layer: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layer = layer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)
