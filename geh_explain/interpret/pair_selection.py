"""Selection of the pairs of a result that a gallery shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain._validation import check_int
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.scores.decisions import Decisions
from geh_explain.scores.pair_names import join_names
from geh_explain.scores.protocol import PairResult

if TYPE_CHECKING:
    import pandas as pd


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
        Ends of the score's 95 % interval, as in ``result.table()``; NaN if its uncertainty is unknown.
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
        Measure that ranks them: "geh", "aeh", "eah" or "supported".
    unit_set
        ``repr`` of the result's unit set, None if the result does not record it.
    output_std
        Standard deviation of the explained output over the points, if the result records it and its scores are joint
        changes of the output by one standard deviation of each unit (``scale="std"``); else None.
    """

    pairs: tuple[ScoredPair, ...]
    measure: str
    unit_set: str | None
    output_std: float | None = None


def choose_pairs(result: PairResult, pairs: Any, measure: str | None) -> PairSelection:
    """Return the strongest pairs of a result, in the order of ``result.table(measure)``, or those that the user named.

    Parameters
    ----------
    result
        Scores of all pairs.
    pairs
        Number of strongest pairs, or a list of pairs of units, by name or index.
    measure
        Measure that ranks the pairs, as in ``result.table``; None for "supported" where there is evidence, else "geh".

    Raises
    ------
    GEHTypeError
        If ``pairs`` is neither a number nor a list.
    GEHValueError
        If ``pairs`` is empty, less than 1, or has entries that are not pairs of two different units.
    """
    decisions = result.decisions(measure)
    # Units i and j of each pair number.
    first, second = result.pairs.ends
    chosen = []
    for number in _pair_numbers(result, pairs, decisions):
        i, j = int(first[number]), int(second[number])
        chosen.append(
            ScoredPair(
                units=(result.names[i], result.names[j]),
                numbers=(i, j),
                mean=float(decisions.mean[number]),
                low=float(decisions.low[number]),
                high=float(decisions.high[number]),
                regions=result.regions(i, j),
            )
        )
    return PairSelection(tuple(chosen), decisions.measure, result.settings.get("units"), _output_std(result))


def _output_std(result: PairResult) -> float | None:
    """Return the standard deviation of the output, None if it is unknown or has another unit than the scores."""
    smoothed = result.settings.get("smoothed")
    if result.settings.get("scale") != "std" or not smoothed:
        return None
    std: float | None = smoothed.get("output_std")
    return std


def _pair_numbers(result: PairResult, pairs: Any, decisions: Decisions) -> list[int]:
    """Return the numbers of the selected pairs in row-major order i < j."""
    if isinstance(pairs, (int, np.integer)):
        strongest: list[int] = decisions.order[: check_int("pairs", pairs, 1)].tolist()
        return strongest
    if isinstance(pairs, str) or not isinstance(pairs, Sequence):
        raise GEHTypeError(f"pairs={pairs!r} is not supported; give a number, or a list of pairs such as [(0, 3)].")
    if not pairs or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise GEHValueError(f"pairs={pairs!r}: give a number, or a list of pairs of units, by name or index.")
    return [result.pair(i, j) for i, j in pairs]
