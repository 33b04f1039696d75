"""TODO."""

from __future__ import annotations

import numbers
from typing import Any

from geh_explain.errors import GEHTypeError, GEHValueError


def check_int(name: str, value: Any, least: int) -> int:
    """Return ``value`` if it is a whole number of at least ``least``; ``name`` is the argument's."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise GEHTypeError(f"{name}={value!r} must be a whole number of at least {least}.")
    if value < least:
        raise GEHValueError(f"{name}={value} must be at least {least}.")
    return int(value)


def check_level(level: float) -> None:
    """Refuse a credible level outside (0, 1)."""
    check_fraction("level", level, 0.95)


def check_rate(rate: float) -> None:
    """Refuse a false discovery rate outside (0, 1)."""
    check_fraction("fdr", rate, 0.05)


def check_fraction(name: str, value: float, usual: float) -> None:
    """Refuse a number outside (0, 1)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise GEHTypeError(f"{name}={value!r} must be a number between 0 and 1, for instance {usual}.")
    if not 0 < value < 1:
        raise GEHValueError(f"{name}={value!r} must lie between 0 and 1, for instance {usual}.")
