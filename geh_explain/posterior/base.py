"""The contract of a posterior, and what its kinds share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import nn


@runtime_checkable
class Posterior(Protocol):
    """A distribution over functions. This one method is all that a user's own needs.

    ``draws`` yields at most ``n`` context managers. Inside each, ``model`` is one fixed function: every
    row, batch and derivative sees the same weights or masks. The first forward inside a draw has a
    single row, so that whatever depends on the shape of a row can be drawn then.

    Two things more may be said: ``inputs_only = True`` by a posterior whose hidden units do not correspond
    from draw to draw, and ``steady(model, seed)``, a context manager, by one whose model is random
    outside its draws.
    """

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield the draws, each to be entered once and left before the next."""
        ...


def steady(posterior: Posterior, model: nn.Module, seed: int) -> AbstractContextManager[Any]:
    """Return a context in which the model is one function outside of any draw."""
    hold = getattr(posterior, "steady", None)
    return nullcontext() if hold is None else hold(model, seed)


def seed_of_draw(seed: int, draw: int) -> int:
    """Return the seed of one draw; the first draws are the same however many follow."""
    return int(np.random.SeedSequence([seed, draw]).generate_state(1, np.uint64)[0] >> np.uint64(1))
