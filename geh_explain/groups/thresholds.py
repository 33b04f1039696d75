"""Thresholds of rules as numbers with few digits."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

#: Most digits after the first one that a threshold has.
_MAX_DIGITS = 8


def between(low: float, high: float) -> float:
    """Return a threshold above ``low`` and at most ``high``: the middle, if rounding leaves it there."""
    middle = low / 2 + high / 2
    return float(middle if low < middle else high)


def round_numbers(value: float, whole: bool) -> Iterator[float]:
    """Yield 0, and a number rounded to more and more digits; the last one of a whole column is the next whole number.

    >>> list(round_numbers(6.5, whole=True)), [x for x, _ in zip(round_numbers(0.4987, False), range(4))]
    ([0.0, 10.0, 7.0], [0.0, 0.0, 0.5, 0.5])
    """
    yield 0.0
    first = -math.floor(math.log10(abs(value))) - 1 if value else 0
    for digits in range(first, 0 if whole else first + _MAX_DIGITS):
        yield round(value, digits)
    yield float(math.ceil(value)) if whole else value


def number_text(value: float) -> str:
    """Return a number as text, without an exponent where it is of ordinary size.

    >>> number_text(7.0), number_text(0.35), number_text(-250000.0), number_text(1e-9), number_text(0.10000000149)
    ('7', '0.35', '-250000', '1e-09', '0.1')
    """
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.4g}"
    return np.format_float_positional(float(f"{value:.7g}"), trim="-")
