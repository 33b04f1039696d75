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


def digest(*values: Any) -> str:
    """Return 16 hexadecimal digits of the SHA-256 hash of the values' contents.

    Tensors and arrays are hashed by dtype, shape and bytes; modules by the names, types and plain settings of their
    parts and by their state dict; mappings, lists, tuples and objects with a ``__dict__`` by their entries; functions
    and classes by their qualified name. Of any other value only the type is hashed.

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
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, (list, tuple)):
        yield from value
    # The state of a generator changes with every use, so only its type is hashed.
    elif hasattr(value, "__dict__") and not isinstance(value, torch.Generator):
        yield from vars(value).items()
