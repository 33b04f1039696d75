"""Selection of the units and pairs that a plot shows, and their labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.plots.axes import shorten
from geh_explain.scores.pair_scores import Scores
from geh_explain.scores.protocol import PairResult

#: Maximum number of characters of a unit's name in the label of a pair.
_MAX_NAME = 30
#: Maximum number of characters of both names that are drawn on one line.
_MAX_LINE = 34


def strongest_units(mean: Floats, max_units: int) -> Ints:
    """Return the indices of the ``max_units`` units with the strongest pairs, in ascending order.

    A unit is as strong as its strongest pair in ``mean`` (D, D).

    >>> import numpy as np
    >>> strongest_units(np.array([[0, 1, 5], [1, 0, 2], [5, 2, 0]]), 2).tolist()
    [0, 2]
    """
    return np.sort(np.argsort(-mean.max(axis=0), kind="stable")[:max_units])


def unit_sizes(result: PairResult, main: Any, measure: str) -> tuple[Floats, str]:
    """Return the size (D,) of the disc of each unit, and its meaning in words.

    The size is the main effect: ``main`` (D,) if given, else that of the result. Without main effects it is the sum of
    the unit's scores in ``measure``.
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


def strongest_pairs(scores: Scores, pairs: int) -> Ints:
    """Return the indices of the ``pairs`` pairs with the largest posterior mean, the strongest first."""
    return np.argsort(-scores.pair_mean, kind="stable")[:pairs]


def pair_labels(names: list[str], pairs: Ints) -> list[str]:
    """Return the labels of the pairs with indices ``pairs`` of the units ``names``."""
    first, second = (ends[pairs] for ends in np.triu_indices(len(names), 1))
    return [pair_label(names[i], names[j]) for i, j in zip(first, second, strict=True)]


def pair_label(first: str, second: str) -> str:
    """Return the label of a pair, on two lines if it is long.

    >>> pair_label("age", "income")
    'age × income'
    """
    first, second = (shorten(" ".join(name.split()), _MAX_NAME) for name in (first, second))
    return f"{first} ×{' ' if len(first) + len(second) <= _MAX_LINE else chr(10)}{second}"
