"""Running mean and standard deviation of draws, for runs whose draws do not fit into memory."""

from __future__ import annotations

import numpy as np

from geh_explain._types import Floats
from geh_explain.errors import GEHValueError


class Moments:
    """Running mean and standard deviation of arrays that arrive one at a time (Welford's algorithm).

    With mean m_k and sum of squared deviations s_k after k draws ::

        m_k = m_{k-1} + (x_k - m_{k-1}) / k
        s_k = s_{k-1} + (x_k - m_{k-1}) (x_k - m_k)

    Parameters
    ----------
    count
        Number of draws k that ``mean`` and ``squares`` summarise.
    mean, squares
        m_k and s_k, arrays of the shape of a draw. None starts empty; the first draw sets the shape.

    Examples
    --------
    >>> import numpy as np
    >>> moments = Moments()
    >>> for draw in (1.0, 2.0, 6.0):
    ...     moments.add(np.array([draw]))
    >>> moments.count, float(moments.mean[0]), round(float(moments.std[0]), 3)
    (3, 3.0, 2.646)
    """

    def __init__(self, count: int = 0, mean: Floats | None = None, squares: Floats | None = None) -> None:
        self.count = count
        self.mean: Floats = np.zeros(()) if mean is None else mean
        self.squares: Floats = np.zeros(()) if squares is None else squares

    def add(self, draw: Floats) -> None:
        """Update with one draw, without changing it or arrays handed out before."""
        self.count += 1
        delta = draw - self.mean
        self.mean = self.mean + delta / self.count
        self.squares = self.squares + delta * (draw - self.mean)

    @property
    def std(self) -> Floats:
        """Standard deviation, with divisor k - 1; NaN for a single draw."""
        if self.count < 2:
            return np.full_like(self.mean, np.nan)
        return np.asarray(np.sqrt(self.squares / (self.count - 1)))


def draws_not_kept(name: str, n_draws: int, n_units: int) -> GEHValueError:
    """Return the error to raise if draws are read by the attribute ``name`` and only their moments were kept."""
    return GEHValueError(
        f"{name}: the {n_draws} draws of {n_units} units did not fit into memory; only means and standard deviations "
        "were kept. Explain fewer units (units=Subset([...])) or pass a larger memory=."
    )
