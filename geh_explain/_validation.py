"""Checks of the numbers that users pass.

Each function returns the checked number, or raises an error whose message has the name of the argument, the value and
what is accepted: :class:`~geh_explain.errors.GEHTypeError` if the value is not a number of the right kind,
:class:`~geh_explain.errors.GEHValueError` if it is out of range. Booleans are never accepted as numbers.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

from geh_explain.errors import GEHTypeError, GEHValueError


def check_int(name: str, value: Any, minimum: int) -> int:
    """Return ``value`` as an int if it is a whole number of at least ``minimum``.

    Parameters
    ----------
    name
        Name of the argument, for the error message.
    value
        What the user passed. NumPy integers are accepted, floats are not, not even ``2.0``.
    minimum
        The smallest accepted value.

    Examples
    --------
    >>> check_int("draws", 100, 1)
    100
    >>> check_int("draws", 0, 1)
    Traceback (most recent call last):
        ...
    geh_explain.errors.GEHValueError: draws=0 must be at least 1.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise GEHTypeError(f"{name}={value!r} must be a whole number of at least {minimum}.")
    if value < minimum:
        raise GEHValueError(f"{name}={value} must be at least {minimum}.")
    return int(value)


def check_positive(name: str, value: Any, expected: str = "a positive number") -> float:
    """Return ``value`` as a float if it is positive and finite.

    ``expected`` ends the error message and may add a unit or an alternative.

    >>> check_positive("step", 1)
    1.0
    >>> check_positive("step", -1, "a positive number of standard deviations")
    Traceback (most recent call last):
        ...
    geh_explain.errors.GEHValueError: step=-1 must be a positive number of standard deviations.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise GEHTypeError(f"{name}={value!r} must be {expected}.")
    # NaN fails both comparisons, so it is refused as well.
    if not 0 < float(value) < math.inf:
        raise GEHValueError(f"{name}={value!r} must be {expected}.")
    return float(value)


def check_fraction(name: str, value: Any, example: float) -> float:
    """Return ``value`` as a float if it lies strictly between 0 and 1; ``example`` is a usual value.

    >>> check_fraction("level", 95, 0.95)
    Traceback (most recent call last):
        ...
    geh_explain.errors.GEHValueError: level=95 must lie between 0 and 1, for instance 0.95.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise GEHTypeError(f"{name}={value!r} must be a number between 0 and 1, for instance {example}.")
    if not 0 < float(value) < 1:
        raise GEHValueError(f"{name}={value!r} must lie between 0 and 1, for instance {example}.")
    return float(value)


def check_level(level: Any) -> float:
    """Return the confidence or credible level ``level`` as a float if it lies in (0, 1)."""
    return check_fraction("level", level, 0.95)


def check_rate(rate: Any) -> float:
    """Return the false discovery rate ``fdr`` as a float if it lies in (0, 1)."""
    return check_fraction("fdr", rate, 0.05)
