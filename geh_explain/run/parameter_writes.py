"""Parameters that somebody writes to while a model is explained: another thread that trains it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from geh_explain._process import SafeContext
from geh_explain.errors import GEHRuntimeError
from geh_explain.model.call_watch import CallWatch
from geh_explain.model.preserve import CallableModel


def count_writes(model: nn.Module) -> dict[str, int]:
    """Return how often each parameter was written to in place, by name."""
    return {name: parameter._version for name, parameter in _parameters(model)}


def parameters_not_written(model: nn.Module, call: Callable[[], Any]) -> set[str]:
    """Return the names of the parameters that ``call`` does not write to; an embedding with max_norm writes to its."""
    with SafeContext(CallWatch()) as watch:
        call()
    return {name for name, parameter in _parameters(model) if not watch.has_written(parameter)}


def _parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield names and parameters of a model, or of the networks to which a callable refers."""
    yield from model.named_parameters()
    if isinstance(model, CallableModel):
        for name, network in model.networks.items():
            yield from network.named_parameters(prefix=name)


def check_unchanged(model: nn.Module, before: Mapping[str, int], names: Iterable[str]) -> None:
    """Raise if a parameter of these names was written to since :func:`count_writes` returned ``before``."""
    now = count_writes(model)
    changed = next((name for name in sorted(names) if now[name] != before[name]), None)
    if changed is not None:
        raise GEHRuntimeError(
            f"model: its parameter {changed!r} was written to while it was explained, by another thread or in some "
            "of its forward passes. Do not train it meanwhile, or explain copy.deepcopy(model)."
        )


@contextmanager
def explain_writes(check: Callable[[], None]) -> Iterator[None]:
    """Call ``check`` after a RuntimeError: a parameter that was written to is the reason for errors of autograd."""
    try:
        yield
    except RuntimeError:
        check()
        raise
