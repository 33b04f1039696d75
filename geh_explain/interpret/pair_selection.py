"""Selection of the pairs of a result that a gallery shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from geh_explain._types import Floats
from geh_explain._validation import check_int
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.scores.pair_names import join_names
from geh_explain.scores.pair_scores import Scores

if TYPE_CHECKING:
    import pandas as pd


class PairResult(Protocol):
    """What the selection reads from a result; :class:`geh_explain.Interactions` satisfies this protocol."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the D units."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the run; the entry "units" is the repr of the unit set."""

    def scores(self, measure: str) -> Scores:
        """Return the scores of all pairs by "geh", "aeh" or "eah"."""

    def pair(self, i: int | str, j: int | str) -> int:
        """Return the number of a pair of units in row-major order i < j."""

    def regions(self, i: int | str, j: int | str) -> pd.DataFrame:
        """Return the signed effect of a pair in each group of points."""


@dataclass(frozen=True, repr=False)
class ScoredPair:
    """A pair of units with its score.

    Attributes
    ----------
    units
        Names of the two units.
    numbers
        Their indices (i, j), i < j, in the unit set of the result.
    mean
        Posterior mean of the score.
    low, high
        Ends of the score's 95 % credible interval; NaN if there is a single posterior draw.
    regions
        Signed effect in each group of points, as returned by ``result.regions(i, j)``.
    """

    units: tuple[str, str]
    numbers: tuple[int, int]
    mean: float
    low: float
    high: float
    regions: pd.DataFrame

    def __repr__(self) -> str:
        return f"{join_names(*self.units)}: {self.mean:.4g}"


@dataclass(frozen=True)
class PairSelection:
    """Pairs of one result.

    Attributes
    ----------
    pairs
        The pairs, strongest first or in the order in which the user named them.
    measure
        Measure of their scores: "geh", "aeh" or "eah".
    unit_set
        ``repr`` of the result's unit set, None if the result does not record it.
    """

    pairs: tuple[ScoredPair, ...]
    measure: str
    unit_set: str | None


def choose_pairs(result: PairResult, pairs: Any, measure: str) -> PairSelection:
    """Return the strongest pairs of a result, or those that the user named.

    Parameters
    ----------
    result
        Scores of all pairs.
    pairs
        Number of strongest pairs, or a list of pairs of units, by name or index.
    measure
        Measure that ranks the pairs: "geh", "aeh" or "eah".

    Raises
    ------
    GEHTypeError
        If ``pairs`` is neither a number nor a list.
    GEHValueError
        If ``pairs`` is empty, less than 1, or has entries that are not pairs of two different units.
    """
    scores = result.scores(measure)
    low, high = _interval(scores)
    # Units i and j of each pair number.
    first, second = np.triu_indices(len(result.names), 1)
    chosen = []
    for number in _pair_numbers(result, pairs, scores):
        i, j = int(first[number]), int(second[number])
        chosen.append(
            ScoredPair(
                units=(result.names[i], result.names[j]),
                numbers=(i, j),
                mean=float(scores.mean[i, j]),
                low=float(low[i, j]),
                high=float(high[i, j]),
                regions=result.regions(i, j),
            )
        )
    return PairSelection(tuple(chosen), measure, result.settings.get("units"))


def _pair_numbers(result: PairResult, pairs: Any, scores: Scores) -> list[int]:
    """Return the numbers of the selected pairs in row-major order i < j."""
    if isinstance(pairs, (int, np.integer)):
        count = check_int("pairs", pairs, 1)
        # A stable sort keeps pairs with equal scores in row-major order.
        strongest: list[int] = np.argsort(-scores.pair_mean, kind="stable")[:count].tolist()
        return strongest
    if isinstance(pairs, str) or not isinstance(pairs, Sequence):
        raise GEHTypeError(f"pairs={pairs!r} is not supported; give a number, or a list of pairs such as [(0, 3)].")
    if not pairs or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise GEHValueError(f"pairs={pairs!r}: give a number, or a list of pairs of units, by name or index.")
    return [result.pair(i, j) for i, j in pairs]


def _interval(scores: Scores) -> tuple[Floats, Floats]:
    """Return the ends (D, D) of the 95 % credible intervals, NaN if there is a single draw."""
    # Scores.interval raises an error for a single draw; a gallery is useful without intervals.
    if scores.n_draws < 2:
        undefined = np.full_like(scores.mean, np.nan)
        return undefined, undefined
    return scores.interval()
