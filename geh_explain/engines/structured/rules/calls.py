"""Reading a call of torch: what it is given, and whether it works in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from geh_explain.engines.structured.program import Recorder, UnsupportedOp


def in_place(func: Callable[..., Any], kwargs: dict[str, Any]) -> bool:
    """Tell whether a call changes its first argument."""
    name = func.__name__
    return bool(kwargs.get("inplace")) or (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


def only(recorder: Recorder, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Return the first argument, which must be the only one that depends on the units."""
    x: Tensor = args[0] if args else kwargs["input"]
    others = (*args[1:], *(value for key, value in kwargs.items() if key != "input"))
    if recorder.slot(x) is None or any(recorder.follows(other) for other in others):
        raise UnsupportedOp("a product of two things that depend on the units")
    return x


def argument(args: Sequence[Any], kwargs: dict[str, Any], position: int, name: str, default: Any = None) -> Any:
    """Return an argument that is given by position or by name."""
    return args[position] if len(args) > position else kwargs.get(name, default)
