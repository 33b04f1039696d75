"""TODO."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread


@contextmanager
def defer_interrupt() -> Iterator[None]:
    """Let Ctrl-C wait until a step is whole."""
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
        raise KeyboardInterrupt
