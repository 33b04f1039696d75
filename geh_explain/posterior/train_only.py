"""Dropout that a model applies in train mode only, such as ``dropout_p=p if self.training else 0`` for attention.

In eval mode nobody sees it, so it is found by trying: a class of modules is let into train mode for the length
of a draw if that adds dropout and, with nothing dropped, changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain.model.borrow import borrow
from geh_explain.model.layers import tensors_in
from geh_explain.posterior.masks import DrawsMasks, Masks, path_rate


class TrainOnly:
    """The modules of a model that drop in train mode only, found in the first forward."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.modules: list[nn.Module] | None = None
        #: Classes that drop in train mode, but also do other things there.
        self.mixed: list[str] = []

    def start(self, masks: Masks, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Look for the modules, as a hook of the whole model before its first forward under ``masks``."""
        if self.modules is None:
            with masks.paused():
                self._find(lambda: module.forward(*map(_copy, args), **{key: _copy(kwargs[key]) for key in kwargs}))
            self._switch(True)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Let the modules drop, those found inside as well."""
        self._switch(True)
        try:
            yield
        finally:
            self._switch(False)

    def _switch(self, training: bool) -> None:
        for module in self.modules or ():
            module.training = training

    def _find(self, call: Callable[[], Any]) -> None:
        self.modules = []
        classes: dict[type, list[nn.Module]] = {}
        for module in self.model.modules():
            if _may_hide(module):
                classes.setdefault(type(module), []).append(module)
        if not classes:
            return
        plain = self._tried(call, [])
        assert plain is not None
        every = self._tried(call, [module for modules in classes.values() for module in modules])
        if every is not None and every[0] == plain[0]:
            return
        for kind, modules in classes.items():
            tried = self._tried(call, modules)
            if tried is None or tried[0] <= plain[0]:
                continue
            if _same(tried[1], plain[1]) and tried[2]:
                self.modules += modules
            else:
                self.mixed.append(kind.__name__)

    def _tried(self, call: Callable[[], Any], modules: list[nn.Module]) -> tuple[int, list[Tensor], bool] | None:
        """Return how often dropout was called, the outputs and whether buffers stayed; None where it failed."""
        nothing_dropped = Masks(everywhere=True, drop=False)
        before = [buffer.clone() for buffer in self.model.buffers()]
        with borrow(self.model), torch.no_grad(), nothing_dropped:
            for module in modules:
                module.training = True
            try:
                outputs = [tensor.clone() for tensor in tensors_in(call())]
            except Exception:  # whatever a forward may do in a mode it was not meant for
                if not modules:
                    raise
                return None
            stayed = _same(list(self.model.buffers()), before)
        return len(nothing_dropped.masks), outputs, stayed


def _may_hide(module: nn.Module) -> bool:
    """Tell whether the forward of a module is its author's own: that of torch's layers is known."""
    known = type(module).__module__.startswith("torch.nn.") or isinstance(module, torch.jit.ScriptModule)
    return not known and not path_rate(module) and not isinstance(module, DrawsMasks)


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(
        a.shape == b.shape and torch.allclose(a.double(), b.double(), equal_nan=True)
        for a, b in zip(one, other, strict=True)
    )


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
