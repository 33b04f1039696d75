"""Case weights: how much each row counts in means over the points.

Rows of weight 0 are left out of the run. The weights of the others are divided by their mean, so that they sum to the
number of points: sums over groups divided by it are weighted means, as they are means without weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from geh_explain._hashing import digest
from geh_explain._types import Floats, Ints
from geh_explain.data.conversion import check_unmasked
from geh_explain.data.points import DerivedPoints, InMemoryPoints, Points
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHTypeError, GEHValueError

#: What the argument takes, for error messages.
_WANTED = "give one number for each of the {rows} rows, 0 or more, such as frame['weight']"


@dataclass(frozen=True)
class CaseWeights:
    """The weights of the rows of a call.

    Attributes
    ----------
    rows
        Number of rows of the data.
    kept
        Indices (n,) of the n rows that count, None where all of them do.
    values
        Weights (n,) of these rows, with mean 1; None where all are equal.

    Examples
    --------
    >>> weights = CaseWeights.of(np.array([3.0, 0.0, 1.0]))
    >>> weights.kept.tolist(), weights.values.tolist(), weights.expand(weights.values).tolist()
    ([0, 2], [1.5, 0.5], [1.5, 0.0, 0.5])
    """

    rows: int
    kept: Ints | None = None
    values: Floats | None = None

    @classmethod
    def of(cls, weights: Floats) -> CaseWeights:
        """Return the weights of rows with the numbers ``weights`` (N,), not negative and not all 0."""
        positive = weights > 0
        # Divided by the largest first: the sum of very large weights would overflow.
        values = weights[positive] / weights.max()
        equal = bool((values == values[0]).all())
        return cls(
            len(weights),
            None if positive.all() else np.flatnonzero(positive),
            None if equal else values / values.mean(),
        )

    @property
    def sample_weight(self) -> Floats | None:
        """Weights (N,) of all rows, 0 for those that do not count; None where all rows count alike."""
        if self.kept is None:
            return self.values
        return np.asarray(self.expand(np.ones(len(self.kept)) if self.values is None else self.values))

    @property
    def effective(self) -> float | None:
        """Number of rows of equal weight that tell as much, (sum w)^2 / sum w^2; None where all rows count alike."""
        if self.values is None:
            return None if self.kept is None else float(len(self.kept))
        return float(self.values.sum() ** 2 / (self.values**2).sum())

    def expand(self, values: Any, missing: float = 0) -> Any:
        """Return an array (N,) with the ``values`` (n,) of the rows that count, and ``missing`` for the others."""
        if self.kept is None:
            return values
        full = np.full(self.rows, missing, dtype=values.dtype)
        full[self.kept] = values
        return full

    def select(self, labels: Any) -> Any:
        """Return the entries of the rows that count, out of one entry per row as a user passed it."""
        if self.kept is None:
            return labels
        entries = labels.tolist() if hasattr(labels, "tolist") else list(labels)
        return [entries[row] for row in self.kept]

    def points(self, points: Points) -> Points:
        """Return the points that count."""
        return points if self.kept is None else _CountedPoints.of(points, self.kept)


def read_weights(sample_weight: Any, points: Points, argument: str = "sample_weight") -> CaseWeights:
    """Return the weights that a user passed for all rows of ``points``; None counts all rows alike.

    Raises
    ------
    GEHTypeError
        If the weights are no numbers.
    GEHValueError
        If there is not one finite number per row, if one is negative, if all are 0, or if the order of a loader's rows
        is unknown.
    """
    if sample_weight is None:
        return CaseWeights(len(points))
    points.check_matched(argument)
    return CaseWeights.of(check_weights(sample_weight, len(points), argument))


def check_weights(sample_weight: Any, rows: int, argument: str = "sample_weight") -> Floats:
    """Return the weights of ``rows`` rows as numbers (N,); raises as :func:`read_weights` does.

    >>> check_weights([1, 2.5], 2).tolist()
    [1.0, 2.5]
    """
    wanted = _WANTED.format(rows=rows)
    if isinstance(sample_weight, (str, bytes, dict)):
        raise GEHTypeError(f"{argument}={sample_weight!r}: {wanted}.")
    check_unmasked(sample_weight, argument)
    try:
        if hasattr(sample_weight, "to_numpy"):
            sample_weight = sample_weight.to_numpy(dtype=np.float64, na_value=np.nan)
        weights = np.asarray(sample_weight.tolist() if hasattr(sample_weight, "tolist") else sample_weight)
        # Text is no number, though NumPy would convert it.
        if weights.dtype.kind not in "fiub" and not (weights.dtype == object and None in weights):
            raise TypeError(f"dtype {weights.dtype}")
        weights = weights.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise GEHTypeError(f"{argument}: a {type(sample_weight).__name__} without numbers; {wanted}.") from error
    if weights.shape != (rows,):
        raise GEHValueError(f"{argument} has shape {weights.shape}; {wanted}.")
    bad = np.flatnonzero(~np.isfinite(weights))
    if len(bad):
        raise GEHValueError(
            f"{argument}: {len(bad)} of {rows} weights are missing, NaN or infinite (the first is that of row "
            f"{bad[0]}); give every row a finite weight, 0 to leave it out."
        )
    negative = np.flatnonzero(weights < 0)
    if len(negative):
        raise GEHValueError(
            f"{argument}: {len(negative)} of {rows} weights are negative (the first is {weights[negative[0]]:g}, of "
            f"row {negative[0]}); weights are 0 or more."
        )
    if not weights.any():
        raise GEHValueError(f"{argument}: all {rows} weights are 0, so that no row counts; give some a larger one.")
    return weights


class _CountedPoints(DerivedPoints):
    """The rows of points with some indices, in their order, as points of their own."""

    def __init__(self, points: Points, kept: Ints) -> None:
        super().__init__(points)
        self._kept = kept

    @classmethod
    def of(cls, points: Points, kept: Ints) -> Points:
        """Return the rows with the indices ``kept``; those of points in memory are copied once."""
        chosen = cls(points, kept)
        if points.streamed:
            return chosen
        (rows,) = chosen.batches()
        return InMemoryPoints(rows, points.columns, points.ordered, points.code_names)

    def __len__(self) -> int:
        return len(self._kept)

    def batches(self) -> Iterator[Rows]:
        """Yield the rows that count, numbered anew."""
        start = 0
        for rows in self._points.batches():
            first, last = np.searchsorted(self._kept, [rows.start, rows.start + len(rows)])
            if last > first:
                inside = (self._kept[first:last] - rows.start).tolist()
                yield replace(rows.take(inside), start=start)
                start += len(inside)

    def digest(self) -> str:
        return digest(self._points.digest(), self._kept)
