"""Standard deviations that a few outliers do not dominate.

With the quantiles q of a sample of values, the standard deviation of most of them is ::

    r = (q(0.975) - q(0.025)) / 3.92,

that of all of them if they are normal. A standard deviation s counts as min(s, 2 r). Up to moderately heavy tails, such
as those of exponential and log-normal variables, that is s itself.
"""

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

#: Quantiles between which most values are, and their distance for a normal variable of standard deviation 1.
_QUANTILES = (0.025, 0.975)
_NORMAL_DISTANCE = 3.92
#: How many times the standard deviation of most values that of all values may be.
_MAX_RATIO = 2.0
#: With fewer values the quantiles are not known.
_MIN_VALUES = 40
#: Values of a call that are kept per row.
_VALUES_PER_ROW = 1000


def limited_std(std: Floats, values: Floats) -> Floats:
    """Return min(s, 2 r) for standard deviations s (...) and a sample of values (n, ...); s if r is 0 or n is small.

    >>> values = np.append(np.linspace(-1, 1, 99), 1e6)
    >>> round(float(limited_std(values.std(), values)), 2)
    0.98
    """
    if len(values) < _MIN_VALUES:
        return std
    low, high = np.quantile(values, _QUANTILES, axis=0)
    most = (high - low) / _NORMAL_DISTANCE
    return np.asarray(np.where(most > 0, np.minimum(std, _MAX_RATIO * most), std))[()]


def limited_unit_std(std: Floats, cut: Cut, parts: list[Rows]) -> Floats:
    """Return the standard deviations (D,) of the units, limited by their values in some rows."""
    values = [cut.units.values(cut.activations(rows)).double().cpu().numpy() for rows in parts]
    return limited_std(std, np.concatenate(values))


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
