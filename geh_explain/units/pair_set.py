"""The pairs of units that a run computes: all of them, those of some units, or single ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from geh_explain._memory import free_bytes
from geh_explain._process import cached_property
from geh_explain._types import Floats, Ints
from geh_explain.errors import GEHRuntimeError, GEHValueError

#: A matrix of up to so many bytes is made however little memory is free.
_MIN_MATRIX_BYTES = 2**28


@dataclass(frozen=True)
class HessianRow:
    """A row of the Hessian, and the pairs of a :class:`PairSet` that it holds.

    Attributes
    ----------
    unit
        The unit i of the row H_i.
    others
        Columns of the row: the other units of the pairs.
    positions
        Places of these pairs in the set.
    """

    unit: int
    others: slice | Ints
    positions: range | Ints


class PairSet:
    """P pairs i < j of D units, in row-major order: the pairs that all arrays (P,) of a result are about.

    It holds all D (D - 1) / 2 pairs, or those that ``explain(unit=...)``, ``explain(pairs=...)`` or
    ``explain(rows=...)`` asked for.

    Parameters
    ----------
    n_units
        Number of units D.
    ends
        Arrays (first, second) of the units of each pair, distinct, first < second, in row-major order; None for all
        pairs.

    Attributes
    ----------
    n_units
        Number of units D.

    Examples
    --------
    >>> pairs = PairSet.touching([1], n_units=4)
    >>> pairs.first.tolist(), pairs.second.tolist(), len(pairs), pairs.complete
    ([0, 1, 1], [1, 2, 3], 3, False)
    >>> pairs.index(3, 1), len(PairSet.all(4))
    (2, 6)
    """

    def __init__(self, n_units: int, ends: tuple[Ints, Ints] | None = None) -> None:
        self.n_units = n_units
        if ends is not None and len(ends[0]) == count_pairs(n_units):
            ends = None
        self._ends = ends

    @classmethod
    def all(cls, n_units: int) -> PairSet:
        """Return all pairs of ``n_units`` units."""
        return cls(n_units)

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]], n_units: int) -> PairSet:
        """Return some pairs, given by the indices of their units in any order.

        >>> PairSet.of([(2, 0), (0, 1)], n_units=3).second.tolist()
        [1, 2]
        """
        ends = np.array([(min(pair), max(pair)) for pair in pairs], dtype=np.int64).reshape(-1, 2)
        return cls._of_codes(ends[:, 0] * n_units + ends[:, 1], n_units)

    @classmethod
    def leading(cls, count: int, n_units: int) -> PairSet:
        """Return the first ``count`` pairs of the units in row-major order.

        >>> PairSet.leading(4, n_units=4).second.tolist()
        [1, 2, 3, 2]
        """
        # Rows i hold the pairs of i with later units, D - 1 - i of them.
        stops = np.cumsum(np.arange(n_units - 1, 0, -1))
        first = np.searchsorted(stops, np.arange(count), side="right")
        starts = np.concatenate([[0], stops])
        return cls(n_units, (first, np.arange(count) - starts[first] + first + 1))

    @classmethod
    def touching(cls, units: Sequence[int] | Ints, n_units: int) -> PairSet:
        """Return all pairs with an end in ``units``, given by their indices."""
        ends, others = np.asarray(units, dtype=np.int64)[:, None], np.arange(n_units)[None]
        codes = np.minimum(ends, others) * n_units + np.maximum(ends, others)
        return cls._of_codes(codes[ends != others], n_units)

    @classmethod
    def _of_codes(cls, codes: Ints, n_units: int) -> PairSet:
        """Return the pairs with the codes i D + j, whose order is row-major."""
        unique = np.unique(codes)
        return cls(n_units, (unique // n_units, unique % n_units))

    @property
    def complete(self) -> bool:
        """Whether these are all pairs of the units."""
        return self._ends is None

    def __len__(self) -> int:
        return count_pairs(self.n_units) if self._ends is None else len(self._ends[0])

    @property
    def ends(self) -> tuple[Ints, Ints]:
        """Indices (P,) of the first and of the second unit of each pair."""
        # Not stored for all pairs: of thousands of units they are large.
        return np.triu_indices(self.n_units, 1) if self._ends is None else self._ends

    @property
    def first(self) -> Ints:
        """Index (P,) of the first unit of each pair."""
        return self.ends[0]

    @property
    def second(self) -> Ints:
        """Index (P,) of the second unit of each pair."""
        return self.ends[1]

    @property
    def positions(self) -> Ints:
        """Places (P,) of the pairs among all pairs of the units."""
        return np.asarray(position(*self.ends, self.n_units))

    def index(self, i: int, j: int, names: Sequence[str] | None = None) -> int:
        """Return the place of the pair of two different units, given by index in any order.

        Raises GEHValueError if the pair was not computed; ``names`` (D) are those of the units, for the message.
        """
        place = self.find(i, j)
        if place is not None:
            return place
        pair = (i, j) if names is None else (names[i], names[j])
        raise GEHValueError(
            f"the pair {pair!r} was not computed: this result has {len(self):,} of the {count_pairs(self.n_units):,} "
            f"pairs. explain(..., pairs=[{pair!r}]) computes it, explain(...) without pairs=, unit= and rows= all."
        )

    def find(self, i: int, j: int) -> int | None:
        """Return the place of the pair of two different units, given by index in any order; None if it is not known.

        >>> PairSet.of([(0, 3)], n_units=4).find(1, 2) is None
        True
        """
        low, high = min(i, j), max(i, j)
        if self._ends is None:
            return int(position(low, high, self.n_units))
        code = low * self.n_units + high
        place = int(np.searchsorted(self._codes, code))
        return place if place < len(self) and self._codes[place] == code else None

    @cached_property
    def _codes(self) -> Ints:
        return np.asarray(self.first * self.n_units + self.second)

    def has_unit(self, unit: int) -> NDArray[np.bool_]:
        """Return which of the pairs (P,) a unit is part of."""
        first, second = self.ends
        return np.asarray((first == unit) | (second == unit))

    def matrix(self, values: Any) -> Floats:
        """Return the symmetric matrix (D, D) of ``values`` (P,): 0 on the diagonal, NaN for pairs not in the set.

        Raises GEHRuntimeError where it would not fit into memory.

        >>> PairSet.of([(0, 1)], n_units=3).matrix([5.0])[0].tolist()
        [0.0, 5.0, nan]
        """
        n_bytes = 8 * self.n_units**2
        if n_bytes > max(_MIN_MATRIX_BYTES, free_bytes(torch.device("cpu")) // 2):
            raise GEHRuntimeError(
                f"a matrix of {self.n_units:,} units by {self.n_units:,} takes {n_bytes / 1e9:.0f} GB, too much for "
                "the memory. The arrays over pairs have those that were computed: pair_mean, pair_std and "
                "pair_interval() of the scores, table() with names, and result.pairs."
            )
        return self.block(values, np.arange(self.n_units))

    def block(self, values: Any, units: Ints) -> Floats:
        """Return the part (u, u) of :meth:`matrix` that belongs to ``units`` (u,), distinct, without the whole.

        >>> PairSet.of([(0, 3), (1, 2)], n_units=5).block([5.0, 6.0], np.array([3, 0])).tolist()
        [[0.0, 5.0], [5.0, 0.0]]
        """
        part = np.full((len(units), len(units)), np.nan)
        np.fill_diagonal(part, 0.0)
        places = np.full(self.n_units, -1)
        places[units] = np.arange(len(units))
        first, second = (places[end] for end in self.ends)
        inside = (first >= 0) & (second >= 0)
        part[first[inside], second[inside]] = part[second[inside], first[inside]] = np.asarray(values)[inside]
        return part

    @cached_property
    def units(self) -> Ints:
        """Indices of the units all of whose pairs are in the set, in ascending order."""
        if self._ends is None:
            return np.arange(self.n_units)
        return np.flatnonzero(self._degrees() == self.n_units - 1)

    @property
    def is_rows(self) -> bool:
        """Whether the set is made of all pairs of some units, those of :attr:`units`."""
        return self.complete or len(self) == len(PairSet.touching(self.units, self.n_units))

    def _degrees(self) -> Ints:
        """Return the number (D,) of pairs of each unit."""
        return np.bincount(np.concatenate(self.ends), minlength=self.n_units)

    @cached_property
    def rows(self) -> list[HessianRow]:
        """Rows of the Hessian that hold all pairs of the set, each pair once.

        The units of the rows cover all pairs. For single pairs they are chosen greedily: the unit with the most pairs
        that are not covered yet comes next.

        >>> [row.unit for row in PairSet.of([(0, 3), (1, 3), (2, 3), (1, 2)], n_units=5).rows]
        [3, 1]
        """
        if self._ends is None:
            stops = np.cumsum(np.arange(self.n_units - 1, 0, -1)).tolist()
            starts = [0, *stops[:-1]]
            return [
                HessianRow(unit, slice(unit + 1, None), range(start, stop))
                for unit, (start, stop) in enumerate(zip(starts, stops, strict=True))
            ]
        first, second = self._ends
        # For each unit its pairs, and their other ends.
        order = np.argsort(np.concatenate([first, second]), kind="stable")
        places, others = np.tile(np.arange(len(self)), 2)[order], np.concatenate([second, first])[order]
        degrees = self._degrees()
        borders = np.concatenate([[0], np.cumsum(degrees)])
        covered = np.zeros(len(self), dtype=bool)
        rows = []
        while not covered.all():
            unit = int(np.argmax(degrees))
            part = slice(borders[unit], borders[unit + 1])
            new = ~covered[places[part]]
            rows.append(HessianRow(unit, others[part][new], places[part][new]))
            covered[places[part]] = True
            degrees[others[part][new]] -= 1
            degrees[unit] = 0
        return rows

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PairSet):
            return NotImplemented
        same_size = (self.n_units, len(self)) == (other.n_units, len(other))
        return same_size and (self.complete or np.array_equal(self._codes, other._codes))

    def __hash__(self) -> int:
        return hash((self.n_units, len(self)))

    def __repr__(self) -> str:
        return f"PairSet({len(self)} of {count_pairs(self.n_units)} pairs of {self.n_units} units)"


def count_pairs(n_units: int) -> int:
    """Return the number D (D - 1) / 2 of pairs of D units."""
    return n_units * (n_units - 1) // 2


def position(low: Any, high: Any, n_units: int) -> Any:
    """Return the place of pairs low < high, numbers or arrays, among all pairs of the units in row-major order.

    >>> position(0, 1, 4), position(2, 3, 4)
    (0, 5)
    """
    # Rows before ``low`` hold (D - 1) + (D - 2) + ... pairs.
    return low * n_units - low * (low + 1) // 2 + high - low - 1
