"""Spread of what enters kinked functions, without a few outliers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from geh_explain._types import Floats
from geh_explain.data.rows import Rows
from geh_explain.engines.smoothing.movement import entering_values
from geh_explain.engines.smoothing.view import KinkedCallView
from geh_explain.model.cut import Cut
from geh_explain.model.unit_values import limited_std

#: Values of a call that are kept per row.
_VALUES_PER_ROW = 1000


class EnteringValues(KinkedCallView):
    """Collects values that enter each kinked call, up to 1,000 of each row, and changes nothing.

    Parameters
    ----------
    n_calls
        Number of kinked calls of a forward pass.
    """

    def __init__(self, n_calls: int) -> None:
        super().__init__()
        self._values: list[list[Floats]] = [[] for _ in range(n_calls)]
        self._n_rows = 1

    def collect(self, cut: Cut, parts: list[Rows]) -> None:
        """Add the values of some rows, a few at a time."""
        with cut.viewed(self), torch.no_grad():
            for rows in parts:
                self._n_rows = len(rows)
                cut.all_outputs(rows, cut.zeros(rows))

    def handle_kinked(self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of one kinked call, unchanged, and keep some of what enters it."""
        if self.n_calls <= len(self._values):
            flat = entering_values(name, args, kwargs).flatten()
            step = max(1, flat.numel() // (_VALUES_PER_ROW * self._n_rows))
            self._values[self.n_calls - 1].append(flat[::step].double().cpu().numpy())
        return func(*args, **kwargs)

    def limited_std(self, number: int, std: float) -> float:
        """Return the standard deviation of what enters a call, limited by the values that were kept."""
        values = np.concatenate([*self._values[number], np.zeros(0)])
        return float(limited_std(np.asarray(std), values[np.isfinite(values)]))
