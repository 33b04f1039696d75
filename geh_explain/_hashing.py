"""TODO."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

#: What is told apart by how it looks.
_PLAIN = (
    *(str, bytes, int, float, bool, complex, type(None), range, FunctionType, MethodType, type),
    *(torch.dtype, torch.device),
)


def short(value: Any) -> Any:
    """Return a plain value as it is, anything else by its :func:`digest`."""
    return value if isinstance(value, (str, int, float, bool, type(None))) else digest(value)


def digest(value: Any) -> str:
    """Return a short name for the contents of a value: numbers, arrays, modules, and objects made of them.

    >>> digest({"a": [1, 2.0]}) == digest({"a": [1, 2.0]}) != digest({"a": [1, 2.5]})
    True
    """
    state = hashlib.sha256()
    _feed(state, value)
    return state.hexdigest()[:16]


def _feed(state: Any, value: Any, above: frozenset[int] = frozenset()) -> None:
    """Feed a hash with a value, which is a part of those ``above``; of what it does not know it takes the type only."""
    state.update(type(value).__qualname__.encode())
    if isinstance(value, Tensor):
        value = value.detach().cpu().contiguous()
        state.update(f"{value.dtype}{tuple(value.shape)}".encode())
        state.update(value.reshape(-1).view(torch.uint8).numpy().data if value.numel() else b"")
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        state.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, (FunctionType, MethodType, type)):
        state.update(f"{value.__module__}.{value.__qualname__}".encode())
    elif isinstance(value, _PLAIN):
        state.update(repr(value).encode())
    elif id(value) not in above:
        for part in _parts(value):
            _feed(state, part, above | {id(value)})


def _parts(value: Any) -> Iterator[Any]:
    """Yield what an object is made of."""
    if isinstance(value, nn.Module):
        for name, module in value.named_modules():
            plain = {key: each for key, each in vars(module).items() if isinstance(each, _PLAIN) and key[0] != "_"}
            plain.pop("training", None)
            yield name, type(module), plain
        yield dict(value.state_dict(keep_vars=True))
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, (list, tuple)):
        yield from value
    elif hasattr(value, "__dict__") and not isinstance(value, torch.Generator):
        yield from vars(value).items()
