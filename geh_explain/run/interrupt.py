"""Ctrl-C at the right moment: a step that must not be cut in half is finished first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread


@contextmanager
def defer_interrupt() -> Iterator[None]:
    """Postpone Ctrl-C until the context ends, then deliver it to the handler that was set before.

    A draw is stored in the checkpoint and added to the sums in one such step, so that both hold the same draws. Signal
    handlers can only be set in the main thread; in other threads the context does nothing.
    """
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    waiting: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if waiting:
        # By default this raises KeyboardInterrupt; a process that ignores the signal goes on.
        signal.raise_signal(signal.SIGINT)
