"""Differences between the levels of categories: what the interaction of a category is made of.

A category c with levels 1..L has L (L - 1) / 2 pairs of levels a < b. The interaction of c with another unit is one
number per pair of levels, called a contrast; with a second category d there is one per pair of levels of c and pair of
levels of d. With p_a the share of the points at level a, the weight of (a, b) is ::

    w_ab = p_a p_b / sum over a' < b' of p_a' p_b',

and the weight of a contrast of two categories is the product of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geh_explain._process import cached_property
from geh_explain._types import Floats, Ints
from geh_explain.units.pair_set import PairSet


@dataclass(frozen=True)
class Levels:
    """The levels of one category between which differences are taken: their names, and shares of the points (L,).

    Attributes
    ----------
    names
        Names of the levels.
    shares
        Share of the points at each level; they sum to less than 1 if further levels are left out.

    Examples
    --------
    >>> levels = Levels(("a", "b", "c"), np.array([0.5, 0.25, 0.25]))
    >>> [ends.tolist() for ends in levels.ends], levels.weights.tolist()
    ([[0, 0, 1], [1, 2, 2]], [0.4, 0.4, 0.2])
    """

    names: tuple[str, ...]
    shares: Floats

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def ends(self) -> tuple[Ints, Ints]:
        """Indices of both levels a < b of each pair of levels."""
        return np.triu_indices(len(self), 1)

    @cached_property
    def weights(self) -> Floats:
        """Weight of each pair of levels; they sum to 1."""
        first, second = self.ends
        products = self.shares[first] * self.shares[second]
        return np.asarray(products / products.sum())


class Contrasts:
    """The Q contrasts of those among P pairs of units that have a category.

    Sums and draws of a run have P - C + Q columns: the P - C pairs without a category, in order, then the contrasts of
    each of the C others, in order. The contrasts of a pair of units i < j are ordered by the pairs of levels of i, then
    by those of j.

    Parameters
    ----------
    pairs
        The P pairs of units.
    levels
        Levels of each category, by the index of its unit.

    Examples
    --------
    >>> levels = Levels(("a", "b", "c"), np.array([0.5, 0.25, 0.25]))
    >>> contrasts = Contrasts(PairSet.all(3), {0: levels})  # unit 0 is a category: pairs (0, 1) and (0, 2) have one
    >>> contrasts.n_contrasts, contrasts.owners.tolist(), contrasts.n_columns
    (6, [0, 0, 0, 1, 1, 1], 7)
    >>> contrasts.by_pair(np.array([9.0, 1.0, 1.0, 1.0, 0.0, 0.0, 5.0])).tolist()  # column 0 is the pair (1, 2)
    [1.0, 1.0, 9.0]
    """

    def __init__(self, pairs: PairSet, levels: Mapping[int, Levels]) -> None:
        self.pairs = pairs
        self.levels = dict(sorted(levels.items()))
        first, second = pairs.ends
        has_category = np.isin(first, list(levels)) | np.isin(second, list(levels))
        #: Places among the P pairs of those with a category (C,), and of the others (P - C,).
        self.category_pairs: Ints = np.flatnonzero(has_category)
        self.numeric_pairs: Ints = np.flatnonzero(~has_category)
        weights = [self._weights(first[pair], second[pair]) for pair in self.category_pairs]
        sizes = np.array([len(part) for part in weights], dtype=np.int64)
        #: Index of the first contrast of each of the C pairs, and place among the P pairs of each contrast (Q,).
        self.starts: Ints = np.cumsum(sizes) - sizes
        self.owners: Ints = np.repeat(self.category_pairs, sizes)
        #: Weight (Q,) of each contrast; those of a pair sum to 1.
        self.weights: Floats = np.concatenate([np.zeros(0), *weights])

    def _weights(self, first: int, second: int) -> Floats:
        """Return the weights of the contrasts of two units."""
        one = np.ones(1)
        of_first, of_second = (self.levels[unit].weights if unit in self.levels else one for unit in (first, second))
        return np.outer(of_first, of_second).ravel()

    @property
    def n_contrasts(self) -> int:
        """Number of contrasts Q."""
        return len(self.owners)

    @property
    def n_columns(self) -> int:
        """Number of columns P - C + Q of sums and draws."""
        return len(self.numeric_pairs) + self.n_contrasts

    @property
    def numeric(self) -> PairSet:
        """The pairs without a category, which an engine computes."""
        first, second = self.pairs.ends
        chosen = self.numeric_pairs
        return PairSet(self.pairs.n_units, (first[chosen], second[chosen]))

    @cached_property
    def single(self) -> NDArray[np.bool_]:
        """Whether each contrast (Q,) is the only one of its pair, as for categories with two levels."""
        return np.asarray(np.bincount(self.owners, minlength=len(self.pairs))[self.owners] == 1)

    @cached_property
    def several(self) -> Ints:
        """Places among the P pairs of those with more than one contrast."""
        return np.flatnonzero(np.bincount(self.owners, minlength=len(self.pairs)) > 1)

    def of_pair(self, pair: int) -> slice:
        """Return the contrasts of one of the P pairs, none for a pair without a category."""
        start, stop = np.searchsorted(self.owners, [pair, pair + 1])
        return slice(int(start), int(stop))

    def level_ends(self, pair: int) -> list[tuple[Ints, Ints] | None]:
        """Return for both units of a pair the levels a, b of each of its contrasts; None for a unit that is numeric."""
        units = [int(ends[pair]) for ends in self.pairs.ends]
        counts = [len(self.levels[unit].weights) if unit in self.levels else 1 for unit in units]
        places = np.unravel_index(np.arange(counts[0] * counts[1]), counts)
        found: list[tuple[Ints, Ints] | None] = []
        for unit, place in zip(units, places, strict=True):
            ends = self.levels[unit].ends if unit in self.levels else None
            found.append(None if ends is None else (ends[0][place], ends[1][place]))
        return found

    def average(self, values: Any) -> Floats:
        """Return the weighted means (..., C) over the contrasts of each pair, of ``values`` (..., Q)."""
        values = np.asarray(values, dtype=np.float64)
        if not self.n_contrasts:
            return np.zeros((*values.shape[:-1], 0))
        return np.asarray(np.add.reduceat(values * self.weights, self.starts, axis=-1))

    def split(self, columns: Floats) -> tuple[Floats, Floats]:
        """Return the part (..., P - C) of the pairs without a category, and that of the contrasts (..., Q)."""
        return columns[..., : len(self.numeric_pairs)], columns[..., len(self.numeric_pairs) :]

    def join(self, numeric: Floats, of_categories: Floats) -> Floats:
        """Return values (..., P) of all pairs from those without a category (..., P - C) and with one (..., C)."""
        values = np.empty((*numeric.shape[:-1], len(self.pairs)), dtype=numeric.dtype)
        values[..., self.numeric_pairs] = numeric
        values[..., self.category_pairs] = of_categories
        return values

    def by_pair(self, columns: Floats) -> Floats:
        """Return values (..., P) of the pairs from columns (..., P - C + Q): weighted means over contrasts."""
        numeric, contrasts = self.split(columns)
        return self.join(numeric, self.average(contrasts))

    def by_column(self, values: Floats) -> Floats:
        """Return ``values`` (P,) of the pairs as columns (P - C + Q,), the same for all contrasts of a pair."""
        return np.concatenate([values[self.numeric_pairs], values[self.owners]])
