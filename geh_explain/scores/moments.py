"""TODO."""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats


class Moments:
    """Mean and standard deviation of draws that are seen one at a time (Welford).

    >>> import numpy as np
    >>> seen = Moments()
    >>> for draw in (1.0, 2.0, 6.0):
    ...     seen.add(np.array([draw]))
    >>> seen.count, float(seen.mean[0]), round(float(seen.std[0]), 3)
    (3, 3.0, 2.646)
    """

    def __init__(self, count: int = 0, mean: Floats | None = None, squares: Floats | None = None) -> None:
        self.count = count
        self.mean: Floats = np.zeros(()) if mean is None else mean
        self.squares: Floats = np.zeros(()) if squares is None else squares

    def add(self, draw: Floats) -> None:
        """See one more draw."""
        self.count += 1
        delta = draw - self.mean
        self.mean = self.mean + delta / self.count
        self.squares = self.squares + delta * (draw - self.mean)

    @property
    def std(self) -> Floats:
        """The standard deviation; NaN for a single draw."""
        if self.count < 2:
            return np.full_like(self.mean, np.nan)
        return np.asarray(np.sqrt(self.squares / (self.count - 1)))
