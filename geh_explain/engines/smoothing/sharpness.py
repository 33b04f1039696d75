"""Sharpness beta of the smooth forms: the argument ``smooth``, and the rule for ``"auto"``."""

from __future__ import annotations

import numbers
import sys
from typing import Any

from geh_explain.errors import GEHValueError

#: beta times the standard deviation of what enters the kink. On ReLU networks with a known interaction this value finds
#: it to a few per cent, and moves the output by about 1 % of its spread.
_AUTO_SHARPNESS = 10.0


def check_smooth(smooth: Any) -> None:
    """Refuse what is neither ``"auto"``, nor None, nor a positive finite number.

    Raises
    ------
    GEHValueError
        For any other value or type.
    """
    number = isinstance(smooth, numbers.Real) and not isinstance(smooth, bool)
    word = smooth is None or (isinstance(smooth, str) and smooth == "auto")
    if not word and not (number and 0 < smooth < sys.float_info.max):
        raise GEHValueError(
            f"smooth={smooth!r} is unknown; use 'auto', None (never), or a positive number, the beta of the softplus "
            "that replaces ReLU."
        )


def choose_beta(smooth: str | float, std: float) -> float | None:
    """Return the sharpness beta of one kinked call.

    Parameters
    ----------
    smooth
        ``"auto"`` for beta = 10 / ``std``, or beta itself.
    std
        Standard deviation of what enters the call, over rows and positions.

    Returns
    -------
    float or None
        None if ``"auto"`` meets a constant, which has no scale and crosses no kink.

    Examples
    --------
    >>> choose_beta("auto", std=0.5), choose_beta(7.0, std=0.5), choose_beta("auto", std=0.0)
    (20.0, 7.0, None)
    """
    if not isinstance(smooth, str):
        return float(smooth)
    return None if std == 0 else _AUTO_SHARPNESS / std
