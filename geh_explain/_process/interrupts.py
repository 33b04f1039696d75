"""Ctrl-C: contexts that it does not leave half entered or half left, and steps that it does not cut in two."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, _GeneratorContextManager, contextmanager
from dataclasses import dataclass
from functools import wraps
from threading import current_thread, get_ident, main_thread
from types import FrameType
from typing import Any, Generic, ParamSpec, TypeVar

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
