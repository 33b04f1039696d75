"""Values of the units over the points: their moments, and the factors of ``scale``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._process import cached_property
from geh_explain._types import Bools, Floats
from geh_explain.data.conversion import check_unmasked
from geh_explain.data.points import Points
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.model.cut import Cut

#: Standard deviations up to this, relative to the largest absolute value, are rounding.
_ROUNDING = 10 * np.finfo(np.float64).eps
#: Quantiles between which most values are, and their distance for a normal variable of standard deviation 1.
_QUANTILES = (0.025, 0.975)
_NORMAL_DISTANCE = 3.92
#: How many times the standard deviation of most values that of all values may be.
_MAX_RATIO = 2.0
#: With fewer values the quantiles are not known.
_MIN_VALUES = 40
#: Rows, and numbers, of the sample that gives the quantiles.
_MAX_SAMPLE_ROWS = 256
_MAX_SAMPLE_NUMBERS = 2**22


def limited_std(std: Floats, values: Floats, weights: Floats | None = None) -> Floats:
    """Return standard deviations (...) that a few outliers in a sample of values (n, ...) do not dominate.

    With the quantiles q of the sample, the standard deviation of most values is ::

        r = (q(0.975) - q(0.025)) / 3.92,

    that of all of them if they are normal. A standard deviation s counts as min(s, 2 r). Up to moderately heavy tails,
    such as those of exponential and log-normal variables, that is s itself. It is s also if r is 0 or n below 40.
    Quantiles are those of values with ``weights`` (n,), if there are any.

    >>> values = np.append(np.linspace(-1, 1, 99), 1e6)
    >>> round(float(limited_std(values.std(), values)), 2)
    0.98
    """
    if len(values) < _MIN_VALUES:
        return std
    low, high = _quantiles(values, _QUANTILES, weights)
    most = (high - low) / _NORMAL_DISTANCE
    return np.asarray(np.where(most > 0, np.minimum(std, _MAX_RATIO * most), std))[()]


def _quantiles(values: Floats, levels: Sequence[float], weights: Floats | None) -> Floats:
    """Return quantiles (len(levels), D) of values (n, D) with weights (n,), interpolated between the values.

    >>> _quantiles(np.array([[0.0], [1.0]]), [0.25, 0.5], np.array([1.0, 3.0])).tolist()
    [[0.25], [0.75]]
    """
    if weights is None:
        return np.asarray(np.quantile(values, levels, axis=0))
    found = np.empty((len(levels), values.shape[1]))
    for column, order in enumerate(values.argsort(axis=0, kind="stable").T):
        # The middle of each value's share of the weights.
        places = np.cumsum(weights[order]) - weights[order] / 2
        found[:, column] = np.interp(np.asarray(levels) * weights.sum(), places, values[order, column])
    return found


class UnitMoments:
    """Mean and standard deviation (D,) of the units' values, accumulated over batches of rows.

    Chan's update of the mean m and of the sum of squared deviations S by a batch of k rows, with mean m' and sum S',
    after n rows::

        S <- S + S' + (m' - m)^2 n k / (n + k),    m <- m + (m' - m) k / (n + k).

    Unlike sums of squares it loses no digits where the mean is large against the standard deviation, and the result
    depends on the batches by rounding only. A unit whose values are all equal, or differ by rounding, has a standard
    deviation of exactly 0.

    Parameters
    ----------
    n_units
        Number of units D.
    weights
        Case weights (N,) of all rows, in the order in which they are added: n and k are sums of them. None for 1.

    Attributes
    ----------
    mean
        Mean (D,) over the rows added so far.

    Examples
    --------
    >>> import torch
    >>> moments = UnitMoments(n_units=1)
    >>> moments.add(torch.tensor([[1.0], [2.0]]))
    >>> moments.add(torch.tensor([[6.0]]))
    >>> moments.mean.tolist(), (moments.std**2).round(12).tolist()
    ([3.0], [4.666666666667])
    """

    def __init__(self, n_units: int, weights: Floats | None = None) -> None:
        self.mean: Floats = np.zeros(n_units)
        self._weights = weights
        #: Sum of the weights of the rows added so far; their number without weights.
        self._total = 0.0
        self._squares: Floats = np.zeros(n_units)
        self._low: Floats = np.full(n_units, np.inf)
        self._high: Floats = np.full(n_units, -np.inf)
        self._count = 0
        #: Every so many rows one is in the sample.
        self._stride = 1
        self._sample: list[Floats] = []

    def add(self, values: Tensor) -> None:
        """Add the values (n, D) of further rows."""
        batch = values.double().cpu().numpy()
        self._add_to_sample(batch)
        for cached in ("limited_std", "centre"):
            self.__dict__.pop(cached, None)
        added, mean, spread = _batch_moments(batch, None if self._weights is None else self._weights[self._count :])
        total = self._total + added
        delta = mean - self.mean
        self._squares += spread + delta**2 * self._total * added / total
        self.mean = self.mean + delta * added / total
        self._total = total
        self._count += len(batch)
        self._low = np.minimum(self._low, batch.min(axis=0))
        self._high = np.maximum(self._high, batch.max(axis=0))

    def _add_to_sample(self, batch: Floats) -> None:
        """Keep rows at equal distances, whatever the batches."""
        most = min(_MAX_SAMPLE_ROWS, _MAX_SAMPLE_NUMBERS // max(1, batch.shape[1]))
        if most < _MIN_VALUES:
            return
        # A copy: a view would keep all rows in memory.
        self._sample.append(batch[-self._count % self._stride :: self._stride].copy())
        while -(-(self._count + len(batch)) // self._stride) > most:
            self._sample = [np.concatenate(self._sample)[::2].copy()]
            self._stride *= 2

    @property
    def _sample_weights(self) -> Floats | None:
        """Weights of the rows in the sample: every so many rows."""
        return None if self._weights is None else self._weights[: self._count : self._stride]

    @cached_property
    def limited_std(self) -> Floats:
        """Standard deviation (D,) that a few outliers do not dominate, see :func:`limited_std`."""
        if not self._sample:
            return self.std
        return limited_std(self.std, np.concatenate(self._sample), self._sample_weights)

    @cached_property
    def centre(self) -> Floats:
        """Mean (D,), or the median of a sample where a few outliers have moved the mean away from most values."""
        if not self._sample or sum(map(len, self._sample)) < _MIN_VALUES:
            return self.mean
        low, median, high = _quantiles(np.concatenate(self._sample), (0.1, 0.5, 0.9), self._sample_weights)
        outside = (high > low) & ((self.mean < low) | (self.mean > high))
        return np.where(outside, median, self.mean)

    @property
    def std(self) -> Floats:
        """Standard deviation (D,) over the rows added so far (divided by their number); 0 for constant units."""
        std = np.sqrt(self._squares / self._total)
        # The mean of equal numbers is rounded, so that their squared deviations from it are not exactly 0.
        rounding = _ROUNDING * np.maximum(np.abs(self._low), np.abs(self._high))
        return np.where((self._low == self._high) | (std <= rounding), 0.0, std)


def _batch_moments(batch: Floats, weights: Floats | None) -> tuple[float, Floats, Floats]:
    """Return the sum of the weights of a batch (n, D), its mean and its sum of squared deviations (D,).

    ``weights`` start with those of the batch; None for 1.
    """
    if weights is None:
        mean = batch.mean(axis=0)
        return float(len(batch)), mean, ((batch - mean) ** 2).sum(axis=0)
    own = weights[: len(batch)]
    total = float(own.sum())
    mean = own @ batch / total
    return total, mean, own @ (batch - mean) ** 2


def unit_moments(cut: Cut, points: Points, batch_size: int | None, weights: Floats | None = None) -> UnitMoments:
    """Return the moments of the units' values over all points, with case weights (N,), by one pass over the data."""
    moments = UnitMoments(cut.n_units, weights)
    for rows in points.split(batch_size):
        moments.add(cut.units.values(cut.activations(rows)))
    return moments


def whole_units(cut: Cut) -> Bools:
    """Return which units (D,) move a column of integers, booleans or text of a data frame that the model is given.

    They can be moved by whole numbers only, or the column would change its dtype.
    """
    return _units_of(cut, [] if cut.frame is None else cut.frame.whole)


def text_units(cut: Cut) -> Bools:
    """Return which units (D,) move a column of a data frame that is no number, whose values have no distance."""
    return _units_of(cut, [] if cut.frame is None else list(cut.frame.coded))


def discrete_units(cut: Cut) -> Bools:
    """Return which units (D,) move a column of text or booleans of a data frame, whose dtype says that it jumps."""
    frame = cut.frame
    if frame is None:
        return _units_of(cut, [])
    return _units_of(cut, [*frame.coded, *(place for place in frame.numeric if frame.dtypes[place].kind == "b")])


def _units_of(cut: Cut, columns: list[int]) -> Bools:
    """Return which units (D,) move one of some columns."""
    if not columns:
        return np.zeros(cut.n_units, dtype=bool)
    is_one = torch.zeros(1, *cut.shape, dtype=cut.dtype, device=cut.device)
    is_one[0, columns] = 1
    return np.asarray(cut.units.values(is_one)[0].cpu().numpy() > 0)


def check_scale(scale: Any, cut: Cut) -> Floats | None:
    """Return the factors (D,) by which ``scale`` multiplies the units.

    Parameters
    ----------
    scale
        None for factors of 1, ``"std"`` for the units' standard deviations, or one finite number per unit.
    cut
        Gives the number of units.

    Returns
    -------
    Floats or None
        The factors; None for ``"std"``, which needs a pass over the data.

    Raises
    ------
    GEHTypeError
        If ``scale`` cannot be converted to an array of numbers.
    GEHValueError
        If it is another word, has another shape than (D,), or is not finite, or has masked entries.
    """
    if scale is None:
        return np.ones(cut.n_units)
    if isinstance(scale, str):
        if scale != "std":
            raise GEHValueError(f"scale={scale!r} is unknown; use None, 'std' or an array with one number per unit.")
        return None
    check_unmasked(scale, "scale")
    try:
        factors = np.asarray(scale.tolist() if isinstance(scale, Tensor) else scale, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GEHTypeError(
            f"scale={scale!r} is not an array of numbers; give one for each of the {cut.n_units} units, or 'std' or "
            "None."
        ) from error
    if factors.shape != (cut.n_units,) or not np.isfinite(factors).all():
        raise GEHValueError(
            f"scale has shape {factors.shape}; give one finite number for each of the {cut.n_units} units of "
            f"{cut.place}."
        )
    return factors
