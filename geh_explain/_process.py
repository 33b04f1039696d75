"""State of the whole process: Ctrl-C, and the global random generators."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, _GeneratorContextManager, contextmanager
from dataclasses import dataclass
from functools import wraps
from threading import active_count, current_thread, get_ident, main_thread
from time import sleep
from types import FrameType
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np
import torch

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class _Interrupts:
    """What the handler of Ctrl-C needs. Only the main thread reads or writes it, as only that runs handlers."""

    #: Number of contexts of this module that are open. The handler is installed while there are any.
    n_open: int = 0
    #: Number of those that defer Ctrl-C until their end.
    n_deferring: int = 0
    #: Whether Ctrl-C was pressed where it must wait.
    waiting: bool = False
    #: The handler that was installed before.
    user_handler: Callable[[int, FrameType | None], Any] | None = None
    #: The thread that opened the contexts; a process that another thread forks does not have them.
    owner: int = 0


_INTERRUPTS = _Interrupts()


class SafeContext(AbstractContextManager[T], Generic[T]):
    """Enters and leaves a context manager without interruption; its body can be interrupted as usual.

    Python raises KeyboardInterrupt between any two instructions, also inside ``__enter__`` and ``__exit__``, where it
    leaves the context half entered or half left. Here Ctrl-C waits until the entry or the exit is complete. After an
    entry the context is left again before KeyboardInterrupt is raised. A handler of the user's own is called at the
    same time, and stays in place. Only the main thread is interrupted, so that others enter and leave as usual.

    >>> from contextlib import nullcontext
    >>> with SafeContext(nullcontext(3)) as value:
    ...     print(value)
    3
    """

    def __init__(self, manager: AbstractContextManager[T]) -> None:
        self._manager = manager
        self._in_main_thread = False

    def __enter__(self) -> T:
        self._in_main_thread = _open()
        try:
            value = self._manager.__enter__()
        except BaseException:
            if self._in_main_thread:
                _close()
            raise
        if self._in_main_thread and _INTERRUPTS.waiting:
            try:
                _deliver(sys._getframe(1))
            except BaseException:
                self.__exit__(*sys.exc_info())
                raise
        return value

    def __exit__(self, *error: Any) -> bool | None:
        try:
            return self._manager.__exit__(*error)
        finally:
            if self._in_main_thread:
                _close()
                if _INTERRUPTS.waiting:
                    _deliver(sys._getframe(1))


def safe_contextmanager(function: Callable[P, Iterator[T]]) -> Callable[P, SafeContext[T]]:
    """Like ``contextlib.contextmanager``, for contexts that Ctrl-C must not leave half entered or half left."""
    make = contextmanager(function)

    @wraps(function)
    def make_safe(*args: P.args, **kwargs: P.kwargs) -> SafeContext[T]:
        return SafeContext(make(*args, **kwargs))

    return make_safe


class defer_interrupt(AbstractContextManager[None]):
    """Postpone Ctrl-C until the context ends, then deliver it to the handler that was set before.

    For short steps that must be complete: a draw is stored in the checkpoint and added to the sums in one such step, so
    that both hold the same draws.
    """

    def __enter__(self) -> None:
        self._in_main_thread = _open()
        if self._in_main_thread:
            _INTERRUPTS.n_deferring += 1

    def __exit__(self, *error: Any) -> None:
        if self._in_main_thread:
            _INTERRUPTS.n_deferring -= 1
            _close()
            if _INTERRUPTS.waiting:
                _deliver(sys._getframe(1))


#: Code during which Ctrl-C waits, together with everything that it calls.
_PROTECTED = {method.__code__ for kind in (SafeContext, defer_interrupt) for method in (kind.__enter__, kind.__exit__)}
#: Code that enters and leaves contexts that are written as generators.
_GENERATOR_CONTEXTS = {
    method.__code__ for method in (_GeneratorContextManager.__enter__, _GeneratorContextManager.__exit__)
}
_TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep


def raise_waiting_interrupt() -> None:
    """Deliver a Ctrl-C that waits, although a context is being entered: for entries that take long."""
    if current_thread() is main_thread() and _INTERRUPTS.waiting:
        _deliver(None)


def _open() -> bool:
    """Open a context; the first one installs the handler. Returns False, and does nothing, outside the main thread."""
    if current_thread() is not main_thread():
        return False
    if not _INTERRUPTS.n_open:
        _INTERRUPTS.waiting = False
        _INTERRUPTS.owner = get_ident()
        handler = signal.getsignal(signal.SIGINT)
        # Others ignore the signal, end the process, or were not set from Python.
        _INTERRUPTS.user_handler = handler if callable(handler) else None
        if _INTERRUPTS.user_handler is not None:
            signal.signal(signal.SIGINT, _on_interrupt)
    _INTERRUPTS.n_open += 1
    return True


def _close() -> None:
    """Close a context; the last one restores the user's handler."""
    _INTERRUPTS.n_open -= 1
    # A handler that was set in the meantime stays.
    if not _INTERRUPTS.n_open and signal.getsignal(signal.SIGINT) is _on_interrupt:
        signal.signal(signal.SIGINT, _INTERRUPTS.user_handler)


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C."""
    _INTERRUPTS.waiting = True
    _deliver(frame)


def _deliver(frame: FrameType | None) -> None:
    """Call the user's handler, which raises KeyboardInterrupt by default, unless ``frame`` must not be interrupted."""
    if _INTERRUPTS.user_handler is not None and not _is_protected(frame):
        _INTERRUPTS.waiting = False
        _INTERRUPTS.user_handler(signal.SIGINT, frame)


def _is_protected(frame: FrameType | None) -> bool:
    """Return whether Ctrl-C must wait in a frame: in a step, or where it or a caller enters or leaves a context."""
    while frame is not None and frame.f_code not in _PROTECTED and not _is_torch_context(frame):
        frame = frame.f_back
    return frame is not None or _INTERRUPTS.n_deferring > 0


def _is_torch_context(frame: FrameType) -> bool:
    """Return whether a frame enters or leaves a context of torch.

    Torch functions use such contexts themselves: some take the current function mode off its stack, and put it back.
    """
    code = frame.f_code
    if code in _GENERATOR_CONTEXTS:
        code = frame.f_locals["self"].gen.gi_code
    elif code.co_name not in ("__enter__", "__exit__"):
        return False
    return code.co_filename.startswith(_TORCH_FOLDER)


def _forget_other_threads() -> None:
    """Remove the contexts of a thread that does not exist in a forked process."""
    if _INTERRUPTS.n_open and _INTERRUPTS.owner != get_ident():
        _INTERRUPTS.n_open, _INTERRUPTS.n_deferring = 1, 0
        _close()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


class GeneratorStates:
    """The states of the global random generators of torch, NumPy and Python at one moment."""

    def __init__(self) -> None:
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
        self._torch = torch.get_rng_state()
        self._numpy = np.random.get_state(legacy=False)
        self._python = random.getstate()

    def restore(self) -> None:
        """Restore all generators."""
        self.restore_torch()
        self.restore_others()

    def restore_torch(self) -> None:
        """Restore the generators of torch, on all devices."""
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)

    def restore_others(self) -> None:
        """Restore the generators of NumPy and Python."""
        np.random.set_state(self._numpy)
        random.setstate(self._python)

    def others_differ(self, states: GeneratorStates) -> bool:
        """Return whether NumPy or Python have drawn numbers between the two moments."""
        mine, others = self._numpy["state"], states._numpy["state"]
        return (
            mine["pos"] != others["pos"]
            or not np.array_equal(mine["key"], others["key"])
            or self._python != states._python
        )


#: Seconds for which a thread waits to see whether others draw random numbers.
_WAIT = 0.01


def other_threads_draw() -> bool:
    """Return whether another thread draws from the generators of NumPy or Python: these change while this one waits."""
    if active_count() == 1:
        return False
    before = GeneratorStates()
    sleep(_WAIT)
    return before.others_differ(GeneratorStates())


@safe_contextmanager
def global_generators() -> Iterator[None]:
    """Restore the global random generators of torch, NumPy and Python on exit."""
    states = GeneratorStates()
    try:
        yield
    finally:
        states.restore()


def seed_generators(seed: int) -> None:
    """Seed the global random generators of torch, NumPy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # numpy takes 32 bits
    random.seed(seed)


class OwnGenerators:
    """A second set of states of the global generators, for code that can draw from the global ones only.

    The states are in place inside of :meth:`active` and continue from one such context to the next. Outside of it the
    global generators are as if nothing had been drawn.

    >>> own = OwnGenerators(seed=0)
    >>> def draw():
    ...     with own.active():
    ...         return random.randint(0, 9)
    >>> before = random.getstate()
    >>> [draw() for _ in range(3)]
    [6, 6, 0]
    >>> random.getstate() == before
    True
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._states: GeneratorStates | None = None

    @safe_contextmanager
    def active(self) -> Iterator[None]:
        """Put the states into place within the context."""
        with global_generators():
            if self._states is None:
                seed_generators(self._seed)
            else:
                self._states.restore()
            try:
                yield
            finally:
                self._states = GeneratorStates()
