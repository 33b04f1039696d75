"""Forks: a forked process has one thread only, so that a lock that another thread held is never released there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

T = TypeVar("T")


class cached_property(functools.cached_property[T]):
    """A cached property without a lock.

    Before version 3.12 Python holds a lock of the property while any object computes it. A process that is forked
    meanwhile would wait for it. The lock belongs to one thread, and two of them may compute the same value without it.
    """

    lock: Any

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock = nullcontext()
