"""Short hashes of values: models, posteriors, arrays and containers of them.

A checkpoint stores the hash of everything its draws depend on, and refuses to resume a run in which any of it
differs. The hash covers contents and types, not identity: two networks with equal weights and equal settings have the
same hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

#: Hexadecimal digits of a hash: 64 bits, which makes accidental collisions negligible.
_LENGTH = 16
#: Types hashed by their qualified name.
_BY_NAME = (FunctionType, MethodType, type)
#: Types hashed by repr().
_BY_REPR = (str, bytes, int, float, bool, complex, type(None), range, torch.dtype, torch.device)
#: Attributes that every module has: its parameters, buffers, modules, hooks and mode.
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
#: How deep lists and dicts of data are nested.
_MAX_DEPTH = 6


def digest(*values: Any) -> str:
    """Return 16 hexadecimal digits of the SHA-256 hash of the values' contents.

    Tensors and arrays are hashed by dtype, shape and bytes; modules by the names, types and plain settings of their
    parts, their state dict and all buffers; mappings, lists, tuples and objects with a ``__dict__`` by their entries;
    functions and classes by their qualified name. Of any other value only the type is hashed.

    >>> digest({"a": [1, 2.0]}) == digest({"a": [1, 2.0]}) != digest({"a": [1, 2.5]})
    True
    >>> len(digest(torch.zeros(3), torch.ones(2)))
    16
    """
    state = hashlib.sha256()
    for value in values:
        _feed(state, value)
    return state.hexdigest()[:_LENGTH]


def digest_unless_plain(value: Any) -> Any:
    """Return a str, number, bool or None unchanged, anything else as its :func:`digest`.

    Messages that compare two runs can then show plain settings as the user wrote them.

    >>> digest_unless_plain("std"), len(digest_unless_plain([1, 2]))
    ('std', 16)
    """
    return value if isinstance(value, (str, int, float, bool, type(None))) else digest(value)


def attribute_digests(model: nn.Module) -> dict[str, str]:
    """Return the hashes of the attributes of all modules that are data, private ones too, by their dotted names.

    Data are tensors, arrays, plain values, and lists, tuples and dicts of them. Of other objects, such as a trainer or
    a logger, only the type is hashed: what they hold differs between processes.

    >>> net = nn.Linear(2, 1)
    >>> net._factors = [1.0, torch.ones(2)]
    >>> sorted(attribute_digests(net))
    ['._factors', '.in_features', '.out_features']
    """
    return {
        f"{name}.{key}": digest(value if _is_data(value) else type(value))
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if key not in _MODULE_ATTRIBUTES
    }


def _is_data(value: Any, depth: int = _MAX_DEPTH) -> bool:
    """Return whether a value is a tensor, an array, plain, or a list, tuple or dict of these, nested ``depth`` deep."""
    if isinstance(value, (Tensor, *_BY_NAME, *_BY_REPR)):
        return True
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    entries = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    if not isinstance(entries, (list, tuple)) or not depth:
        return False
    return all(_is_data(entry, depth - 1) for entry in entries)


def _feed(state: Any, value: Any, ancestors: frozenset[int] = frozenset()) -> None:
    """Update the hash ``state`` with a value.

    ``ancestors`` are the ids of the containers around it; a container inside itself is not entered again.
    """
    state.update(type(value).__qualname__.encode())
    if isinstance(value, Tensor):
        value = value.detach().cpu().contiguous()
        state.update(f"{value.dtype}{tuple(value.shape)}".encode())
        state.update(value.reshape(-1).view(torch.uint8).numpy().data if value.numel() else b"")
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        state.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, _BY_NAME):
        state.update(f"{value.__module__}.{value.__qualname__}".encode())
    elif isinstance(value, _BY_REPR):
        state.update(repr(value).encode())
    elif id(value) not in ancestors:
        for part in _parts(value):
            _feed(state, part, ancestors | {id(value)})


def _parts(value: Any) -> Iterator[Any]:
    """Yield the parts of a module, container or object that its hash covers."""
    if isinstance(value, nn.Module):
        for name, module in value.named_modules():
            settings = {
                key: setting
                for key, setting in vars(module).items()
                if isinstance(setting, (*_BY_NAME, *_BY_REPR)) and key[0] != "_"
            }
            # The explainer sets the mode itself, so it does not affect the draws.
            settings.pop("training", None)
            yield name, type(module), settings
        yield dict(value.state_dict(keep_vars=True))
        yield dict(value.named_buffers())  # the state dict lacks those that are not persistent
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, (list, tuple)):
        yield from value
    # The state of a generator changes with every use, so only its type is hashed.
    elif hasattr(value, "__dict__") and not isinstance(value, torch.Generator):
        yield from vars(value).items()
