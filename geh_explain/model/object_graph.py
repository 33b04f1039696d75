"""Everything that a model holds: its modules, and what attributes, containers, objects and functions lead to."""

from __future__ import annotations

import io
import queue
import random
import socket
import sys
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from concurrent.futures import Executor
from enum import Enum, auto
from functools import lru_cache, partial
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from geh_explain.model.function_variables import variables
from geh_explain.model.saved_state import CONTAINERS, GENERATORS, PLAIN, contents, gradient, join, size, slot_values

#: Largest number of objects that are entered although they are no modules, and of values in them.
MAX_OBJECTS, MAX_VALUES = 1000, 100_000
#: Tables of a module whose entries are attributes of the module.
_TABLES = ("_parameters", "_buffers", "_modules")
#: Packages whose objects are not entered: they belong to the process, are data, or serve an explanation.
_CLOSED = frozenset(sys.stdlib_module_names) | {"geh_explain", "numpy", "pandas", "torch"}
#: Modules of these packages whose objects are entered nevertheless.
_OPEN = (
    *("abc", "argparse", "collections", "contextlib", "types", "typing"),
    *("torch.amp", "torch.distributions", "torch.optim"),
)
_OPEN_CLASSES = (object, tuple, *CONTAINERS)
#: An object that holds one of these is used by several threads, or has effects that cannot be undone.
_RESOURCES = (
    *(type(threading.Lock()), type(threading.RLock()), threading.Thread, threading.Condition, threading.Event),
    *(threading.Semaphore, Executor, queue.Queue, queue.SimpleQueue, io.IOBase, socket.socket),
)
#: Other code draws from these too, so that they are no part of a model that refers to them.
_GLOBAL_GENERATORS = (torch.default_generator, np.random.mtrand._rand, random._inst)


class Kind(Enum):
    """What a value is."""

    MODULE = auto()
    TENSOR = auto()
    ARRAY = auto()
    GENERATOR = auto()
    CONTAINER = auto()
    TUPLE = auto()
    FUNCTION = auto()
    #: An object that may have state in its attributes.
    OBJECT = auto()
    #: Anything that is not entered.
    OTHER = auto()


#: Kinds of attributes of a class that are state.
_SHARED_KINDS = (Kind.TENSOR, Kind.ARRAY, Kind.GENERATOR, Kind.CONTAINER)


class Holder(Enum):
    """What holds a value."""

    MODULE = auto()
    OBJECT = auto()
    FUNCTION = auto()


class Part(NamedTuple):
    """A value that a model holds."""

    name: str
    value: Any
    #: The innermost module that leads to it.
    module: nn.Module
    holder: Holder
    kind: Kind


def walk(root: Any, module: nn.Module) -> Iterator[Part]:
    """Yield everything that may have state, each value once.

    What modules, lists, dicts, sets, deques and tuples lead to comes first, whatever its size. Other objects are
    entered after that, at most 1,000 of them, with 100,000 values:

    * objects of classes that are not of the standard library, torch, NumPy or pandas, nor derived from these, as
      datasets, loggers and threads are; but those of ``torch.optim``, ``torch.amp``, ``torch.distributions`` and
      ``types.SimpleNamespace``;
    * no tables of other packages, which have ``__array__``;
    * no object that holds a lock, a thread, a queue of threads, an open file or a socket.

    Functions, bound methods and partials are searched too, see :func:`~geh_explain.model.function_variables.variables`,
    and count as objects. Their variables are the caller's: only modules among them, and objects that lead to tensors or
    modules, are parts.

    Parameters
    ----------
    root
        Where to begin: a module, an object or a function.
    module
        The module that ``root`` belongs to.
    """
    return _walk(root, module, _Room(), _Room())


class _Room:
    """How many more objects, and values in them, may be met."""

    def __init__(self) -> None:
        self._objects, self._values = MAX_OBJECTS, MAX_VALUES

    def take(self, part: Part) -> bool:
        """Return whether there is room for a part, and take it."""
        if part.kind in (Kind.OBJECT, Kind.FUNCTION):
            self._objects -= 1
            return self._objects >= 0
        if part.holder is Holder.MODULE:
            return True
        n_values = size(part.value) if part.kind is Kind.CONTAINER else 1
        has_room = n_values <= self._values
        self._values -= n_values if has_room else 0
        return has_room


def _walk(root: Any, module: nn.Module, room: _Room, room_in_functions: _Room | None) -> Iterator[Part]:
    """Walk within ``room``; objects that functions lead to are examined first, within their room.

    Functions are not entered if that is None.
    """
    visited = _Visited()
    near = [Part("", root, module, Holder.OBJECT, _kind(root))]
    far: deque[Part] = deque()
    while near or far:
        part = near.pop() if near else far.popleft()
        if not visited.add(part) or not room.take(part):
            continue
        if part.kind is Kind.FUNCTION and room_in_functions is None:
            continue
        if part.kind is Kind.OBJECT and part.holder is Holder.FUNCTION and not _holds_tensors(part, room_in_functions):
            continue
        if _is_state(part):
            yield part
        for inside in _inside(part):
            if inside.holder is Holder.MODULE and type(inside.value) in (dict, OrderedDict) and not inside.value:
                # A module has a dozen such dicts, for its hooks.
                yield inside
            elif inside.kind is not Kind.OTHER:
                direct = inside.holder is Holder.MODULE and inside.kind not in (Kind.OBJECT, Kind.FUNCTION)
                (near if direct or inside.kind is Kind.MODULE else far).append(inside)


def networks_of(function: Any, module: nn.Module) -> dict[str, nn.Module]:
    """Return the networks that a callable refers to, by name, without the modules inside of them."""
    networks: dict[str, nn.Module] = {}
    known: set[nn.Module] = set()
    for part in walk(function, module):
        if part.kind is Kind.MODULE and part.value not in known:
            networks[part.name] = part.value
            known.update(part.value.modules())
    return networks


class _Visited:
    """The values that were met."""

    def __init__(self) -> None:
        # References, as the id of a value that was deleted may be given to another one.
        self._values: dict[int, Any] = {}
        #: Variables of functions, which are only searched and may be met again as state.
        self._variables: dict[int, Any] = {}

    def add(self, part: Part) -> bool:
        """Return whether a value is met for the first time."""
        values = self._variables if part.holder is Holder.FUNCTION else self._values
        if id(part.value) in values:
            return False
        values[id(part.value)] = part.value
        return True


def _is_state(part: Part) -> bool:
    """Return whether a part may have state of its own."""
    if part.kind in (Kind.MODULE, Kind.OBJECT):
        return True
    return part.holder is not Holder.FUNCTION and part.kind not in (Kind.TUPLE, Kind.FUNCTION)


def _holds_tensors(part: Part, room: _Room | None) -> bool:
    """Return whether an object leads to a tensor or a module."""
    inside = _walk(part.value, part.module, room or _Room(), None)
    return any(found.kind in (Kind.TENSOR, Kind.MODULE) for found in inside)


def _inside(part: Part) -> Iterator[Part]:
    """Yield everything directly inside of a value, except for plain numbers and strings."""
    name, value, module, holder, kind = part
    entries: Any = ()
    if kind is Kind.MODULE:
        module, holder = value, Holder.MODULE
        entries = _module_entries(name, value)
    elif kind is Kind.TENSOR and (grad := gradient(value)) is not None:
        entries = [(f"{name}.grad", grad)]
    elif kind in (Kind.CONTAINER, Kind.TUPLE):
        entries = _container_entries(name, value, module)
    elif kind is Kind.FUNCTION:
        holder = Holder.FUNCTION
        entries = ((join(name, key), entry) for key, entry in variables(value, _reads_globals))
    for key, entry in entries:
        if type(entry) not in PLAIN:
            yield Part(key, entry, module, holder, _kind(entry))
    value_type: Any = type(value)
    if kind is Kind.OBJECT or (kind is Kind.CONTAINER and _has_attributes(value_type)):
        yield from _object_parts(part)


def _module_entries(name: str, module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield what a module holds: its namespace, and what the classes of the user share."""
    if isinstance(module, torch.jit.ScriptModule):
        for key, tensor in [*module.named_parameters(), *module.named_buffers()]:
            yield join(name, key), tensor
    else:
        yield name, vars(module)
        for base in type(module).__mro__:
            # Tensors and containers that all modules of a user's class share.
            if _is_users(base.__module__):
                shared = ((key, entry) for key, entry in vars(base).items() if not key.startswith("__"))
                yield from ((join(name, key), entry) for key, entry in shared if _kind(entry) in _SHARED_KINDS)


def _container_entries(name: str, value: Any, module: nn.Module) -> list[tuple[str, Any]]:
    entries = value if isinstance(value, tuple) else contents(value)
    pairs = entries.items() if isinstance(entries, dict) else enumerate(entries)
    tables = _TABLES if value is vars(module) else ()
    return [(name if key in tables else join(name, key), entry) for key, entry in pairs if type(entry) not in PLAIN]


def _object_parts(part: Part) -> Iterator[Part]:
    """Yield the namespace of an object, the values in its slots, and the function by which it is called."""
    name, value, module = part.name, part.value, part.module
    namespace = namespace_of(value)
    if namespace is not None:
        yield Part(name, namespace, module, Holder.OBJECT, Kind.CONTAINER)
    for descriptor, entry in slot_values(value).items():
        yield Part(join(name, descriptor.__name__), entry, module, Holder.OBJECT, _kind(entry))
    call = type(value).__call__ if callable(value) else None
    if isinstance(call, FunctionType):
        yield Part(name, call, module, Holder.OBJECT, Kind.FUNCTION)


def namespace_of(value: Any) -> dict[str, Any] | None:
    """Return the ``__dict__`` of an object, None if it has none of its own."""
    try:
        namespace = object.__getattribute__(value, "__dict__")
    except Exception:
        return None
    return namespace if isinstance(namespace, dict) else None


def _kind(value: Any) -> Kind:
    value_type: Any = type(value)
    kind = _kind_of_type(value_type)
    if kind is Kind.GENERATOR and any(value is generator for generator in _GLOBAL_GENERATORS):
        return Kind.OTHER
    if kind is Kind.OBJECT:
        attributes = [*(namespace_of(value) or {}).values(), *slot_values(value).values()]
        return Kind.OTHER if any(isinstance(entry, _RESOURCES) for entry in attributes) else kind
    return kind


@lru_cache(maxsize=4096)
def _kind_of_type(kind: Any) -> Kind:
    """Return the kind of the objects of a type."""
    classes = {
        nn.Module: Kind.MODULE,
        Tensor: Kind.TENSOR,
        np.memmap: Kind.OTHER,
        np.ndarray: Kind.ARRAY,
        tuple: Kind.TUPLE,
        random.SystemRandom: Kind.OTHER,
        **dict.fromkeys(GENERATORS, Kind.GENERATOR),
        **dict.fromkeys(CONTAINERS, Kind.CONTAINER),
        **dict.fromkeys((FunctionType, MethodType, partial), Kind.FUNCTION),
    }
    known = next((found for base, found in classes.items() if issubclass(kind, base)), None)
    if known is not None:
        return known
    return Kind.OBJECT if _has_attributes(kind) and not hasattr(kind, "__array__") else Kind.OTHER


@lru_cache(maxsize=4096)
def _has_attributes(kind: Any) -> bool:
    """Return whether the attributes of objects of a class are state."""
    if kind in (*CONTAINERS, OrderedDict, defaultdict):
        return False
    return all(base in _OPEN_CLASSES or _is_open(base.__module__) for base in kind.__mro__)


def _is_open(module: Any) -> bool:
    """Return whether objects of the classes of a module of Python are entered."""
    return _is_users(module) or any(f"{module}.".startswith(f"{name}.") for name in _OPEN)


def _is_users(module: Any) -> bool:
    """Return whether a module of Python is the user's own, or of a package."""
    return isinstance(module, str) and module.partition(".")[0] not in _CLOSED


def _reads_globals(function: FunctionType) -> bool:
    """Return whether globals that a function reads may be networks."""
    return _is_users(function.__globals__.get("__name__"))
