"""The global random generators of torch, NumPy and Python."""

from __future__ import annotations

import _random
import os
import random
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from itertools import count
from threading import active_count
from time import sleep
from typing import Any, NamedTuple

import numpy as np
import torch

from geh_explain._process.interrupts import safe_contextmanager
from geh_explain._process.torch_generator import OwnTorchGenerator

#: The generators behind the functions of NumPy and Python.
_NUMPY: Any = np.random.mtrand._rand
_PYTHON: Any = random._inst
#: Seeds that nobody else uses.
_FIRST_UNUSED, _UNUSED = 0x9E3779B9, count()
#: How often, and how many seconds apart, a thread looks whether others draw random numbers.
_N_LOOKS, _WAIT = 25, 0.01


def _forget_other_threads() -> None:
    """Release NumPy's lock in a forked process if another thread held it: that thread does not exist there."""
    lock = _NUMPY._bit_generator.lock
    if lock.acquire(blocking=False):
        lock.release()
    else:
        lock._at_fork_reinit()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


class _States(NamedTuple):
    """The states of NumPy's and Python's generator."""

    numpy: dict[str, Any]
    python: Any
    #: Every second number of ``random.gauss`` is computed one call ahead.
    gauss: float | None

    @classmethod
    def seeded(cls, seed: int) -> _States:
        numpy = np.random.RandomState(seed % 2**32).get_state(legacy=False)  # numpy takes 32 bits
        return cls(numpy, random.Random(seed).getstate()[1], None)

    @classmethod
    def now(cls) -> _States:
        return cls(_NUMPY.get_state(legacy=False), _random.Random.getstate(_PYTHON), _PYTHON.gauss_next)

    def exchange(self) -> _States:
        """Put the states into place, and return those of before: no other thread can draw in between."""
        with _NUMPY._bit_generator.lock:
            numpy = _NUMPY.get_state(legacy=False)
            _NUMPY.set_state(self.numpy)
        get, put = partial(_random.Random.getstate, _PYTHON), partial(_random.Random.setstate, _PYTHON, self.python)
        call: Any = partial.__call__
        # Python changes threads between its own instructions only, and this is a single one.
        python, _ = map(call, (get, put))
        gauss, _PYTHON.gauss_next = _PYTHON.gauss_next, self.gauss
        return _States(numpy, python, gauss)

    def same(self, other: _States) -> bool:
        """Return whether nothing was drawn between two moments."""
        mine, others = self.numpy["state"], other.numpy["state"]
        return (
            mine["pos"] == others["pos"]
            and np.array_equal(mine["key"], others["key"])
            and self.numpy["has_gauss"] == other.numpy["has_gauss"]
            and self[1:] == other[1:]
        )


class OwnStates:
    """A second pair of states of NumPy's and Python's global generators, for code that can draw from these only.

    The states are in place inside of :meth:`active` and continue from one such context to the next. Another thread that
    draws meanwhile gets numbers of these states. It gets no number twice, unless several objects have the same seed.

    Parameters
    ----------
    seed
        Seed of both generators; None for one that no other object of this process has.
    """

    def __init__(self, seed: int | None) -> None:
        self._states = _States.seeded(_FIRST_UNUSED + next(_UNUSED) if seed is None else seed)
        #: Whether anything was drawn, by this thread or another one.
        self.drew = False

    @safe_contextmanager
    def active(self) -> Iterator[None]:
        """Put the states into place within the context."""
        before = self._states.exchange()
        try:
            yield
        finally:
            states = before.exchange()
            self.drew |= not states.same(self._states)
            self._states = states


class OwnGenerators:
    """Random numbers for code that draws them from the global generators of torch, NumPy and Python.

    Inside of :meth:`active` such code draws from generators with a seed of their own, see :class:`OwnStates` and
    :class:`~geh_explain._process.torch_generator.OwnTorchGenerator`. The numbers continue from one such context to the
    next. Outside of it the global generators are as if nothing had been drawn.

    Parameters
    ----------
    seed
        Seed of all generators; None for 0, and one for NumPy and Python that no other object of this process has.

    Examples
    --------
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

    def __init__(self, seed: int | None) -> None:
        self._seed = 0 if seed is None else seed
        self.torch = OwnTorchGenerator(self._seed)
        self.others = OwnStates(seed)
        self._cuda: list[torch.Tensor] | None = None

    @safe_contextmanager
    def active(self, *, with_torch: bool = True, with_others: bool = True) -> Iterator[None]:
        """Draw from these generators within the context: those of torch, and those of NumPy and Python."""
        with (
            self.torch.active() if with_torch else nullcontext(),
            self._on_cuda() if with_torch and torch.cuda.is_available() else nullcontext(),
            self.others.active() if with_others else nullcontext(),
        ):
            yield

    @safe_contextmanager
    def _on_cuda(self) -> Iterator[None]:
        """Exchange the states of the generators of all GPUs; other threads may draw the same numbers as before."""
        before = torch.cuda.get_rng_state_all()
        if self._cuda is None:
            torch.cuda.manual_seed_all(self._seed)
        else:
            torch.cuda.set_rng_state_all(self._cuda)
        try:
            yield
        finally:
            self._cuda = torch.cuda.get_rng_state_all()
            torch.cuda.set_rng_state_all(before)


@safe_contextmanager
def seeded_generators(seed: int) -> Iterator[None]:
    """Seed the global generators of torch, NumPy and Python, and restore them on exit.

    For functions of the user that run long. Numbers that another thread draws meanwhile may repeat.
    """
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        with OwnStates(seed).active():
            yield
    finally:
        torch.set_rng_state(state)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)


def other_threads_draw() -> bool:
    """Return whether another thread draws from NumPy's or Python's generator: they change while this one waits."""
    if active_count() == 1:
        return False
    before = _States.now()
    for _ in range(_N_LOOKS):
        sleep(_WAIT)
        if not _States.now().same(before):
            return True
    return False
