"""Which units and pairs a picture shows, and what pairs are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.plots.axes import shorten

if TYPE_CHECKING:
    from geh_explain.results.interactions import Interactions
    from geh_explain.scores.pair_scores import Scores


#: Letters of a unit's name in a pair's, and those of a pair that stay on one line.
_LETTERS, _LINE = 30, 34


def strongest_units(mean: Floats, most: int) -> Ints:
    """Return the numbers of the ``most`` units with the strongest pairs of ``mean`` (D, D), in the given order."""
    return np.sort(np.argsort(-mean.max(axis=0), kind="stable")[:most])


def unit_sizes(result: Interactions, main: Any, measure: str) -> tuple[Floats, str]:
    """Return how large every unit is drawn (D,), and what that is: its main effect, or its summed interactions.

    ``main`` are effects of the user's own (D,); None for those of the result, if it has any.
    """
    if main is None and not result.has_main:
        return np.asarray(result.scores(measure).mean.sum(axis=0)), f"summed {measure.upper()}"
    if main is None:
        return result.main.strength, "main effect"
    try:
        sizes = np.abs(np.asarray(main, dtype=float))
    except (TypeError, ValueError) as error:
        raise GEHTypeError(f"main={main!r} must be an array of numbers, one for each unit.") from error
    units = len(result.names)
    if sizes.shape != (units,) or not np.isfinite(sizes).all():
        raise GEHValueError(
            f"main has shape {sizes.shape}; give one finite main effect for each of the {units} units, or None."
        )
    return np.asarray(sizes), "main effect"


def strongest_pairs(scores: Scores, count: int) -> Ints:
    """Return the numbers of the ``count`` strongest pairs, the strongest first."""
    return np.argsort(-scores.pair_mean(), kind="stable")[:count]


def pair_names(result: Interactions, pairs: Ints) -> list[str]:
    """Return the names of some pairs, long ones on two lines."""
    first, second = (ends[pairs] for ends in np.triu_indices(len(result.names), 1))
    return [pair_name(result.names[i], result.names[j]) for i, j in zip(first, second, strict=True)]


def pair_name(first: str, second: str) -> str:
    """Return the name of a pair, on two lines if it is long.

    >>> pair_name("age", "income")
    'age × income'
    """
    first, second = (shorten(" ".join(name.split()), _LETTERS) for name in (first, second))
    return f"{first} ×{' ' if len(first) + len(second) <= _LINE else chr(10)}{second}"
