"""The groups of a result in which each pair has groups of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from geh_explain._types import Floats, Ints

_HALVES = ("low", "high")


@dataclass(frozen=True)
class PairCells:
    """The groups of each of P pairs: M = 4 combinations of halves of two units, or M = 8 of three.

    Attributes
    ----------
    edges
        Value (D,) from which on a unit is high; NaN for units with one value, which are low everywhere.
    thirds
        Index (P,) of the third unit of each pair, -1 where there is none.
    sizes
        Number of points (M, P) of each group; the last four groups of a pair without a third unit are empty.
    unit_sizes
        Number of points (M, D) at which each unit is low and high, the first two rows; the others are 0.
    """

    edges: Floats
    thirds: Ints
    sizes: Ints
    unit_sizes: Ints

    @property
    def names(self) -> list[str]:
        """Names (M) of the groups: halves of the first unit, the second and the third one."""
        thirds = _HALVES if len(self.sizes) > 4 else ("",)
        return [" ".join(halves[1:] + halves[:1]).strip() for halves in product(thirds, _HALVES, _HALVES)]

    def describe(self, pair: int, units: Sequence[int], names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return names and descriptions of the groups of one pair, those that it has: 4 or 8.

        Parameters
        ----------
        pair
            Index of the pair.
        units
            Indices of its two units.
        names
            Names of all units.

        Examples
        --------
        >>> cells = PairCells(np.array([0.5, 2.0]), np.array([-1]), np.full((4, 1), 5), np.full((4, 2), 5))
        >>> [words[1] for words in cells.describe(0, [0, 1], ["age", "bmi"])]
        ['age low, bmi high', 'age < 0.5, bmi >= 2']
        """
        third = int(self.thirds[pair])
        order = [*units] if third < 0 else [third, *units]
        titles, rules = [], []
        for halves in product((0, 1), repeat=len(order)):
            # The third unit, which varies slowest, is named last.
            chosen = list(zip(order, halves, strict=True))
            chosen = chosen if third < 0 else [*chosen[1:], chosen[0]]
            titles.append(", ".join(f"{names[unit]} {_HALVES[half]}" for unit, half in chosen))
            known = [(unit, half) for unit, half in chosen if not np.isnan(self.edges[unit])]
            rules.append(", ".join(f"{names[unit]} {('<', '>=')[half]} {self.edges[unit]:.4g}" for unit, half in known))
        return titles, rules

    def equals(self, other: PairCells) -> bool:
        """Return whether two results have the same groups: the same edges, and third units."""
        same_edges = np.array_equal(self.edges, other.edges, equal_nan=True)
        return bool(same_edges and np.array_equal(self.thirds, other.thirds))
