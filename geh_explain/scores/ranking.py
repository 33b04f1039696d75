"""Pairs in the order of a score: the common form in which methods are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from geh_explain._types import Floats
from geh_explain.errors import GEHValueError
from geh_explain.scores.pair_names import join_names
from geh_explain.units.pair_set import PairSet
from geh_explain.units.unit_lookup import find_unit as find_unit

if TYPE_CHECKING:
    import pandas as pd


class PairRanking:
    """Pairs of units with the strength that a method assigns to each.

    Parameters
    ----------
    method
        Name of the method, as it appears in tables.
    scores
        Strength (P,) of each pair, in row-major order i < j.
    names
        Names of the D units.
    ties
        Second score (P,), which orders pairs of equal strength in tables; None for row-major order.
    pairs
        The P pairs, among which ranks are counted; None for all D (D - 1) / 2 pairs of the units.

    Examples
    --------
    >>> ranking = PairRanking("mine", [0.1, 3.0, 0.2], ["a", "b", "c"])
    >>> ranking.ranks.tolist(), ranking.top(1)
    ([3.0, 1.0, 2.0], [('a', 'c')])
    """

    def __init__(
        self,
        method: str,
        scores: Sequence[float] | Floats,
        names: Sequence[str],
        ties: Floats | None = None,
        pairs: PairSet | None = None,
    ) -> None:
        self.method = method
        self.scores = np.asarray(scores, dtype=float)
        self.names = [str(name) for name in names]
        self.pairs = PairSet.all(len(self.names)) if pairs is None else pairs
        if self.scores.shape != (len(self.pairs),):
            raise GEHValueError(
                f"scores has shape {self.scores.shape}; {len(self.names)} names have {len(self.pairs)} pairs, in order "
                "i < j."
            )
        self._ties = np.zeros(len(self.pairs)) if ties is None else ties

    @property
    def ranks(self) -> Floats:
        """Rank (P,) of each pair, 1 for the strongest; equal scores share the mean of their ranks."""
        from scipy.stats import rankdata

        return np.asarray(rankdata(-self.scores, method="average"))

    @property
    def matrix(self) -> Floats:
        """Scores as a symmetric matrix (D, D) with zero diagonal; NaN for pairs that are not ranked."""
        return self.pairs.matrix(self.scores)

    def rank(self, i: int | str, j: int | str) -> float:
        """Return the rank of the pair of two units, given by name or index in any order."""
        first, second = (find_unit(unit, self.names) for unit in (i, j))
        return float(self.ranks[self.pairs.index(first, second, self.names)])

    def top(self, pairs: int = 10) -> list[tuple[str, str]]:
        """Return the names of the strongest ``pairs``, the strongest first."""
        strongest = self.table().head(pairs)
        return list(zip(strongest["unit_i"].astype(str), strongest["unit_j"].astype(str), strict=True))

    def table(self) -> pd.DataFrame:
        """Return one row per pair, the strongest first: unit_i, unit_j, score, rank."""
        import pandas as pd

        i, j = self.pairs.ends
        names = np.array(self.names, dtype=object)
        table = pd.DataFrame({"unit_i": names[i], "unit_j": names[j], "score": self.scores, "rank": self.ranks})
        return table.iloc[np.lexsort((-self._ties, self.ranks))].reset_index(drop=True)

    def __repr__(self) -> str:
        first = ", ".join(join_names(a, b) for a, b in self.top(3))
        return f"PairRanking({self.method}, {len(self.scores)} pairs: {first}, ...)"
