"""Short hashes of values: models, posteriors, arrays and containers of them.

A checkpoint stores the hash of everything its draws depend on, and refuses to resume a run in which any of it
differs. The hash covers contents and types, not identity: two networks with equal weights and equal settings have the
same hash.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from types import FunctionType, MethodType
from typing import Any
from uuid import UUID

import numpy as np
import torch
from torch import Tensor, nn

#: Hexadecimal digits of a hash: 64 bits, which makes accidental collisions negligible.
_LENGTH = 16
#: Types hashed by their qualified name.
_BY_NAME = (FunctionType, MethodType, type)
#: Types hashed by repr().
_BY_REPR = (
    *(str, bytes, int, float, bool, complex, type(None), range, torch.dtype, torch.device),
    *(np.number, np.bool_, np.datetime64, np.timedelta64),
)
#: Further types hashed by repr(), which are no data of a module: times of its training differ between processes.
_LABELS = (date, time, timedelta, Decimal, Fraction, UUID)
#: Attributes that every module has: its parameters, buffers, modules, hooks and mode.
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
#: How deep lists and dicts of data are nested.
_MAX_DEPTH = 32


def digest(*values: Any) -> str:
    """Return 16 hexadecimal digits of the SHA-256 hash of the values' contents.

    Tensors and arrays are hashed by dtype, shape and bytes, or by entries that are objects; tables and columns of
    pandas as arrays; modules by the names, types and attributes of their parts (see :func:`attribute_digests`), their
    state dict and all buffers; mappings, lists, tuples, deques, sets, slices and objects with a ``__dict__`` by their
    entries; functions and classes by their qualified name. Of any other value only the type is hashed.

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


def digest_state(model: nn.Module) -> str:
    """Return the hash of a module's parts, by name and type, and of its parameters and buffers, without attributes."""
    return digest([(name, type(module)) for name, module in model.named_modules()], *_tensors(model))


def attribute_digests(model: nn.Module) -> dict[str, str]:
    """Return the hashes of the attributes of all modules that are data, private ones too, by their dotted names.

    Data are tensors, arrays, plain values, modules, and lists, tuples, dicts, sets and slices of them. Of other
    objects, such as a trainer or a logger, only the type is hashed: what they hold differs between processes. Modules
    of ``model`` that an attribute refers to are not hashed again.

    >>> net = nn.Linear(2, 1)
    >>> net._factors = [1.0, torch.ones(2)]
    >>> sorted(attribute_digests(net))
    ['._factors', '.in_features', '.out_features']
    """
    own = _module_ids(model)
    return {
        f"{name}.{key}": _hash(value, own).hexdigest()[:_LENGTH]
        for name, module in model.named_modules()
        for key, value in _attributes(module).items()
    }


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of one module, without what every module has; those that are no data as their types."""
    return {
        key: value if _is_data(value) else type(value)
        for key, value in vars(module).items()
        if key not in _MODULE_ATTRIBUTES
    }


def _is_data(value: Any, ancestors: tuple[int, ...] = ()) -> bool:
    """Return whether a value is a tensor, an array, a module, plain, or a container of these that is not in itself.

    ``ancestors`` are the ids of the containers around it, at most 32.
    """
    if isinstance(value, (Tensor, nn.Module, *_BY_NAME, *_BY_REPR)):
        return True
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    entries = [*value.keys(), *value.values()] if isinstance(value, dict) else _entries(value)
    if entries is None or id(value) in ancestors or len(ancestors) == _MAX_DEPTH:
        return False
    return all(_is_data(entry, (*ancestors, id(value))) for entry in entries)


def _entries(value: Any) -> list[Any] | None:
    """Return the entries of a list, tuple, deque, set or slice; None for anything else."""
    if isinstance(value, slice):
        return [value.start, value.stop, value.step]
    return list(value) if isinstance(value, (list, tuple, deque, set, frozenset)) else None


def _hash(value: Any, ancestors: frozenset[int]) -> Any:
    """Return the hash object of one value inside of ``ancestors``, see :func:`_feed`."""
    state = hashlib.sha256()
    _feed(state, value, ancestors)
    return state


def _feed(state: Any, value: Any, ancestors: frozenset[int] = frozenset()) -> None:
    """Update the hash ``state`` with a value.

    ``ancestors`` are the ids of the containers and modules around it; none of them is entered again.
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
    elif isinstance(value, (*_BY_REPR, *_LABELS)):
        state.update(repr(value).encode())
    elif id(value) not in ancestors:
        ancestors |= _module_ids(value) if isinstance(value, nn.Module) else {id(value)}
        if isinstance(value, (set, frozenset)):
            # In the order of the hashes: that of a set differs between processes.
            state.update(b"".join(sorted(_hash(entry, ancestors).digest() for entry in value)))
            return
        for part in _parts(value):
            _feed(state, part, ancestors)


def _module_ids(model: nn.Module) -> frozenset[int]:
    """Return the ids of a module and all modules in it."""
    return frozenset(id(module) for module in model.modules())


def _tensors(model: nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state dict of a module, and all buffers: the former lacks those that are not persistent."""
    return dict(model.state_dict(keep_vars=True)), dict(model.named_buffers())


def _parts(value: Any) -> Iterator[Any]:
    """Yield the parts of a module, container or object that its hash covers."""
    if isinstance(value, np.ndarray):
        yield from (value.shape, value.tolist())
    elif isinstance(value, nn.Module):
        # The explainer sets the mode itself, so it is no part of the hash.
        yield from ((name, type(module), _attributes(module)) for name, module in value.named_modules())
        yield from _tensors(value)
    elif isinstance(value, Mapping):
        yield from value.items()
    elif (entries := _entries(value)) is not None:
        yield from entries
    # The state of a generator changes with every use, so only its type is hashed.
    elif isinstance(value, torch.Generator):
        return
    elif hasattr(value, "__array__"):
        # The values of tables are in no attributes.
        yield from (list(getattr(value, "columns", ())), np.asarray(value))
    elif hasattr(value, "__dict__"):
        yield from vars(value).items()
