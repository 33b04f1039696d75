"""Where a model drops: which of its layers are the same in all draws of MC dropout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain._process import safe_contextmanager
from geh_explain.posterior.dropout_kinds import DrawsMasks
from geh_explain.posterior.masks import MaskRecord

#: Layers that only rescale: they are no part of the count of layers.
_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm)
#: Layers below the first dropout from which on the part above is called a head; more if all of them are linear.
_MIN_BELOW, _MIN_LINEAR_BELOW = 2, 3
#: Number of modules that a description names.
_MAX_NAMED = 4


@dataclass(frozen=True)
class DropoutPlaces:
    """Where a forward pass drops.

    Attributes
    ----------
    modules
        Names of the innermost modules that drop; the name of the model itself is empty.
    n_below
        Number of layers with weights that are called before the first dropout, norms not counted.
    only_head
        Whether all layers after the first dropout are linear, and there are others below: two at least with
        convolutions, recurrent layers or attention among them, or three linear ones where one alone is above.
    above_layer
        Whether nothing is dropped before the explained layer has returned; None at the inputs.
    """

    modules: tuple[str, ...] = ()
    n_below: int = 0
    only_head: bool = False
    above_layer: bool | None = None

    @property
    def names(self) -> str:
        """The modules that drop, for messages."""
        shown = ", ".join(repr(name) if name else "the model's own forward" for name in self.modules[:_MAX_NAMED])
        more = len(self.modules) - _MAX_NAMED
        return f"{shown} and {more} more" if more > 0 else shown

    def describe(self) -> str | None:
        """Return in words which layers are the same in all draws; None if there is nothing to say."""
        if not self.modules or not self.n_below:
            return None
        head = "only the head is random: " if self.only_head else ""
        below = "the layer" if self.n_below == 1 else f"the {self.n_below} layers"
        values = ", and with them the values of the explained units" if self.above_layer else ""
        verb = "is" if self.n_below == 1 else "are"
        return f"{head}dropout is in {self.names}, and {below} before it {verb} the same in all draws{values}"


class PlaceRecord(MaskRecord):
    """Masks of one draw, with the order in which layers and dropout are called in its first forward pass."""

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__(seeds)
        self._active: list[str] = []
        #: What was called: layers with weights, dropout with the module that called it, and the explained layer's end.
        self._layers: list[tuple[nn.Module, int]] = []
        self._dropped: list[str] = []
        self._dropped_before_layer: int | None = None

    def mask(self, x: Tensor, sample: Callable[[torch.Generator], Tensor]) -> Tensor:
        if not self.complete:
            self._dropped.append(self._active[-1] if self._active else "")
        return super().mask(x, sample)

    @safe_contextmanager
    def watching(self, model: nn.Module, layer: nn.Module | None) -> Iterator[None]:
        """Watch the calls of all modules of a model; ``layer`` is the explained one."""
        with ExitStack() as stack:
            for name, module in model.named_modules():
                stack.callback(module.register_forward_pre_hook(partial(self._begin, name)).remove)
                stack.callback(module.register_forward_hook(partial(self._end, layer), always_call=True).remove)
            yield

    def _begin(self, name: str, module: nn.Module, args: Any) -> None:
        if not name:
            # A new pass: searches of the posterior may have run the modules before.
            self._layers, self._active, self._dropped_before_layer = [], [], None
        self._active.append(name)
        has_weights = any(parameter is not None for parameter in module._parameters.values())
        if has_weights and not isinstance(module, (*_NORMS, DrawsMasks)):
            self._layers.append((module, len(self._dropped)))

    def _end(self, layer: nn.Module | None, module: nn.Module, args: Any, out: Any) -> None:
        if self._active:
            self._active.pop()
        if module is layer and self._dropped_before_layer is None:
            self._dropped_before_layer = len(self._dropped)

    def places(self) -> DropoutPlaces:
        """Return where the first forward pass has dropped."""
        below = [module for module, n_dropped in self._layers if n_dropped == 0]
        above = [module for module, n_dropped in self._layers if n_dropped > 0]
        only_linear_above = all(isinstance(module, nn.Linear) for module in above)
        before_layer = self._dropped_before_layer
        return DropoutPlaces(
            modules=tuple(dict.fromkeys(self._dropped)),
            n_below=len(below),
            only_head=only_linear_above and (_is_body(below) or (len(below) >= _MIN_LINEAR_BELOW and len(above) <= 1)),
            above_layer=None if before_layer is None else before_layer == 0,
        )


def _is_body(layers: list[nn.Module]) -> bool:
    """Return whether layers are a body of convolutions or the like, above which linear layers are a head."""
    return len(layers) >= _MIN_BELOW and any(not isinstance(module, nn.Linear) for module in layers)
