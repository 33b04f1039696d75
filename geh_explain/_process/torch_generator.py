"""A generator of one thread's own in the place of torch's global one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from threading import Lock, local
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from geh_explain._process.interrupts import SafeContext, safe_contextmanager

#: Operations that draw and take no generator, in all versions of torch or in older ones.
_WITHOUT_GENERATOR = ("native_dropout", "rand_like", "randint_like", "randn_like")


class OwnTorchGenerator:
    """Random numbers of torch on the CPU, for code that draws them from the global generator.

    Inside :meth:`active` torch operations of the current thread that are given no generator draw from this one, and
    functions such as ``torch.manual_seed`` and ``torch.random.fork_rng`` apply to it. The global generator is neither
    read nor written, so that other threads may draw from it. The numbers continue from one context to the next.

    >>> own = OwnTorchGenerator(seed=0)
    >>> before = torch.get_rng_state()
    >>> with own.active():
    ...     first = torch.rand(2)
    >>> bool((torch.get_rng_state() == before).all()), bool((torch.manual_seed(0) and torch.rand(2) == first).all())
    (True, True)
    """

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        #: Whether anything was drawn from it, or it was seeded.
        self.drew = False

    @safe_contextmanager
    def active(self) -> Iterator[None]:
        """Draw from this generator within the context."""
        with _routed(self), SafeContext(_Redirection(self)):
            yield

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operation that draws, with this generator if it would take the global one."""
        form = _with_generator(func)
        if not _is_on_cpu(args, kwargs) or _has_own_generator(func, args, kwargs):
            return func(*args, **kwargs)
        if form is not None:
            self.drew = True
            position = _position(form)
            args = args if position is None or position >= len(args) else args[:position]
            return form(*args, **{**kwargs, "generator": self.generator})
        if func.overloadpacket.__name__ in _WITHOUT_GENERATOR:
            self.drew = True
            return self._run_in_global_place(func, args, kwargs)
        return func(*args, **kwargs)

    def _run_in_global_place(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operation that takes no generator: the global one has the state of this one meanwhile."""
        generator = torch.default_generator
        before = generator.get_state()
        generator.set_state(self.generator.get_state())
        try:
            return func(*args, **kwargs)
        finally:
            self.generator.set_state(generator.get_state())
            generator.set_state(before)


class _Redirection(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Passes operations of the current thread that draw random numbers to an :class:`OwnTorchGenerator`."""

    def __init__(self, own: OwnTorchGenerator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._own = own

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise the first call imports torch's compiler, which takes more than a second.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # Operations of TorchScript get here without having passed function modes, which must not see them.
        with torch._C.DisableTorchFunction():
            return self._own.run(func, args, kwargs or {}) if _draws(func) else func(*args, **(kwargs or {}))


@cache
def _draws(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


@cache
def _position(func: Any) -> int | None:
    """Return the position of the argument ``generator`` of an operation, None if it has none."""
    names = [argument.name for argument in func._schema.arguments]
    return names.index("generator") if "generator" in names else None


@cache
def _with_generator(func: Any) -> Callable[..., Any] | None:
    """Return the form of an operation that takes a generator, None if it has no such form."""
    if _position(func) is not None:
        return func  # type: ignore[no-any-return]
    wanted = [(argument.name, str(argument.type)) for argument in func._schema.arguments]
    packet = func.overloadpacket
    for overload in (getattr(packet, name) for name in packet.overloads()):
        arguments = [(argument.name, str(argument.type)) for argument in overload._schema.arguments]
        if [argument for argument in arguments if argument[0] != "generator"] == wanted != arguments:
            return overload  # type: ignore[no-any-return]
    return None


def _has_own_generator(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call names a generator that is not the global one."""
    position = _position(func)
    given = args[position] if position is not None and position < len(args) else kwargs.get("generator")
    # Operations get another Python object for the same generator.
    return given is not None and given._cdata != torch.default_generator._cdata  # type: ignore[attr-defined]


def _is_on_cpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    device = tensors[0].device if tensors else torch.device(kwargs.get("device") or "cpu")
    return device.type == "cpu"


#: The generators of the current thread, innermost last.
_OF_THREAD = local()


class _Router:
    """Takes the place of the global generator in ``torch.random``, whose functions seed it and set its state."""

    def __getattr__(self, name: str) -> Any:
        own: list[OwnTorchGenerator] | None = getattr(_OF_THREAD, "own", None)
        if not own:
            return getattr(torch.default_generator, name)
        # A model that only seeds must find this generator in later passes, too.
        own[-1].drew = True
        return getattr(own[-1].generator, name)


_ROUTER = _Router()
#: Number of contexts in all threads that need the router.
_n_routed = 0
_ROUTER_LOCK = Lock()


def _forget_other_threads() -> None:
    """Replace the lock in a forked process: a thread that held it does not exist there."""
    global _ROUTER_LOCK
    _ROUTER_LOCK = Lock()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


@safe_contextmanager
def _routed(own: OwnTorchGenerator) -> Iterator[None]:
    """Apply the functions of ``torch.random`` to a generator, in this thread."""
    stack = _OF_THREAD.__dict__.setdefault("own", [])
    stack.append(own)
    _count_routed(1)
    try:
        yield
    finally:
        _count_routed(-1)
        stack.pop()


def draws_are_redirected() -> bool:
    """Return whether the current thread draws from a generator of its own."""
    return bool(getattr(_OF_THREAD, "own", None))


def _count_routed(change: int) -> None:
    global _n_routed
    with _ROUTER_LOCK:
        _n_routed += change
        vars(torch.random)["default_generator"] = _ROUTER if _n_routed else torch.default_generator
