"""Reading the arguments of a torch call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from geh_explain.engines.structured.recorder import Recorder, UnsupportedOp


def is_in_place(func: Callable[..., Any], kwargs: dict[str, Any]) -> bool:
    """Return whether a call changes its first argument: ``inplace=True``, ``relu_``, or ``__iadd__``."""
    name = func.__name__
    return bool(kwargs.get("inplace")) or (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


def only_tracked(recorder: Recorder, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Return the first argument, which must be the only one that depends on the units.

    Raises
    ------
    UnsupportedOp
        If another argument depends on them too, or the first does not.
    """
    x: Tensor = args[0] if args else kwargs["input"]
    rest = (*args[1:], *without(kwargs, "input").values())
    if not recorder.is_tracked(x) or recorder.check_followed(rest):
        raise UnsupportedOp("a product of two things that depend on the units")
    return x


def argument(args: Sequence[Any], kwargs: dict[str, Any], position: int, name: str, default: Any = None) -> Any:
    """Return an argument that was passed by position or by name."""
    return args[position] if len(args) > position else kwargs.get(name, default)


def without(kwargs: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the keyword arguments without those of the given names."""
    return {key: value for key, value in kwargs.items() if key not in names}
