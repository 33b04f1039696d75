"""Dropout that a model applies in train mode only, such as ``dropout_p=p if self.training else 0`` in attention.

It is invisible in eval mode, so it is found by trial: modules of one class are put into train mode during draws if
that adds dropout calls and, with nothing dropped, changes neither the outputs nor the model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain._process import SafeContext, safe_contextmanager
from geh_explain.model.callable_model import CallableModel
from geh_explain.model.layers import tensors_in
from geh_explain.model.preserve import preserved
from geh_explain.model.snapshot import Snapshot
from geh_explain.posterior.dropout_kinds import DrawsMasks, path_rate
from geh_explain.posterior.dropout_mode import DropoutMode
from geh_explain.posterior.masks import MaskRecord


@dataclass(frozen=True)
class TrainOnlyDropout:
    """The modules of a model that drop in train mode only."""

    #: Modules that do nothing else in train mode; they are put into it during a draw.
    modules: tuple[nn.Module, ...] = ()
    #: Names of classes that also do other things there; they stay in eval mode.
    mixed_classes: tuple[str, ...] = ()
    #: Names of parameters, buffers and other attributes of the model that these classes change in train mode.
    changes: tuple[str, ...] = ()


class TrainOnlySwitch:
    """Puts the modules of a model that drop in train mode only into train mode, for all draws of one run.

    They are searched for in the first forward pass, because the search needs inputs. ``known`` is the result of an
    earlier search in the same model.
    """

    def __init__(self, model: nn.Module, known: TrainOnlyDropout | None = None) -> None:
        self._model = model
        #: The result of the search, None before the first forward pass.
        self.result = known

    def search(self, mode: DropoutMode, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Search for the modules and switch them on; a pre-hook of the model, once ``mode`` is given."""
        if self.result is not None:
            return

        def call() -> Any:
            # Copies, as a model may work in place. forward() does not run the model's hooks, of which this is one.
            return module.forward(*map(_copy, args), **{key: _copy(value) for key, value in kwargs.items()})

        with mode.paused():
            self.result = find_train_only(self._model, call)
        self._set_training(True)

    @safe_contextmanager
    def on(self) -> Iterator[None]:
        """Put the modules into train mode, those that are found inside the context too, and back into eval mode."""
        self._set_training(True)
        try:
            yield
        finally:
            self._set_training(False)

    def _set_training(self, training: bool) -> None:
        for module in () if self.result is None else self.result.modules:
            # The flag of this module alone: train() would include its children, such as batch normalisation.
            module.training = training


def find_train_only(model: nn.Module, call: Callable[[], Any]) -> TrainOnlyDropout:
    """Return the modules that drop in train mode only.

    Parameters
    ----------
    model
        The network, in eval mode.
    call
        Runs the model's forward pass on given inputs.
    """
    by_class: dict[type, list[nn.Module]] = {}
    for module in model.modules():
        if _may_hide_dropout(module):
            by_class.setdefault(type(module), []).append(module)
    if not by_class:
        return TrainOnlyDropout()
    plain = _run(model, call, ())
    # For most models this one forward pass shows that there is nothing to find.
    in_train_mode = _try(model, call, [module for modules in by_class.values() for module in modules])
    if in_train_mode is not None and in_train_mode.n_dropouts == plain.n_dropouts:
        return TrainOnlyDropout()
    modules_found: list[nn.Module] = []
    mixed_classes: list[str] = []
    changes: set[str] = set()
    for kind, modules in by_class.items():
        trial = _try(model, call, modules)
        if trial is None or trial.n_dropouts <= plain.n_dropouts:
            continue
        # What eval mode changes too, such as a counter of calls, is no effect of train mode.
        effects = trial.changes - plain.changes
        if _all_close(trial.outputs, plain.outputs) and not effects:
            modules_found += modules
        else:
            mixed_classes.append(kind.__name__)
            changes |= effects
    return TrainOnlyDropout(tuple(modules_found), tuple(mixed_classes), tuple(sorted(changes)))


@dataclass(frozen=True)
class _Trial:
    """One forward pass with nothing dropped."""

    n_dropouts: int
    outputs: list[Tensor]
    #: What the forward pass changed in the model, by name.
    changes: frozenset[str]


def _run(model: nn.Module, call: Callable[[], Any], modules: Sequence[nn.Module]) -> _Trial:
    """Run the model with ``modules`` in train mode and all others in eval mode."""
    record = MaskRecord(seeds=())
    with preserved(model):
        for module in modules:
            module.training = True
        snapshot = Snapshot(model)
        with torch.no_grad(), SafeContext(snapshot.guarded()), SafeContext(DropoutMode(record, everywhere=True)):
            outputs = [tensor.clone() for tensor in tensors_in(call())]
        return _Trial(len(record), outputs, frozenset(snapshot.changes()))


def _try(model: nn.Module, call: Callable[[], Any], modules: Sequence[nn.Module]) -> _Trial | None:
    """Return the trial, or None if the forward pass fails in a mode that it was not written for."""
    try:
        return _run(model, call, modules)
    except Exception:
        return None


def _may_hide_dropout(module: nn.Module) -> bool:
    """Return whether a module may drop in train mode only: its forward method is not torch's.

    That of a wrapped callable has no access to the mode.
    """
    if isinstance(module, CallableModel):
        return False
    is_torch = type(module).__module__.startswith("torch.nn.") or isinstance(module, torch.jit.ScriptModule)
    return not is_torch and not path_rate(module) and not isinstance(module, DrawsMasks)


def _all_close(tensors: Sequence[Tensor], references: Sequence[Tensor]) -> bool:
    """Return whether two lists of tensors agree in shapes and, up to rounding, in values."""
    return len(tensors) == len(references) and all(
        tensor.shape == reference.shape and torch.allclose(tensor.double(), reference.double(), equal_nan=True)
        for tensor, reference in zip(tensors, references, strict=True)
    )


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
