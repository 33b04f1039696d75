"""What the share of interactions would cost: seconds, from a few timed calls of the model."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain.data.conversion import is_frame
from geh_explain.data.rows import Rows
from geh_explain.model.cut import Cut

#: Rows of a timed call, and how many times as many have the next one if it takes less than so many seconds.
_TIMED_ROWS = 256
_REPEATS = 16
_SHORT_CALL = 0.05
#: Seconds of one row above which no further calls are timed.
_SLOW_ROW = 0.25


def is_in_memory(inputs: Any) -> bool:
    """Return whether inputs are at hand without a pass over a loader or a data set.

    >>> is_in_memory(torch.zeros(3, 2)), is_in_memory(iter([]))
    (True, False)
    """
    if isinstance(inputs, (tuple, list)):
        return all(is_in_memory(part) for part in inputs)
    if isinstance(inputs, dict):
        return all(is_in_memory(part) for part in inputs.values())
    return isinstance(inputs, (Tensor, np.ndarray)) or is_frame(inputs)


@torch.no_grad()
def seconds_of_rows(cut: Cut, rows: Rows, n_calls: int, n_rows: int) -> float:
    """Return about how many seconds ``n_calls`` calls of the model with ``n_rows`` rows in all take.

    A call and a row are timed with some of ``rows``. The result is infinite for models that are slow at one row.
    """
    if _seconds(cut, rows[:1]) > _SLOW_ROW:
        return np.inf
    batch = rows[:_TIMED_ROWS]
    if _seconds(cut, batch) < _SHORT_CALL:
        batch = batch.repeat(_REPEATS)
    # The first calls take longer.
    of_batch, of_row = (min(_seconds(cut, part) for _ in range(2)) for part in (batch, rows[:1]))
    per_row = max(0.0, of_batch - of_row) / max(1, len(batch) - 1)
    return n_calls * of_row + n_rows * per_row


def _seconds(cut: Cut, rows: Rows) -> float:
    """Return the seconds of one call."""
    start = perf_counter()
    cut.outputs(rows)
    return perf_counter() - start
