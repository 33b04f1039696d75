"""Words and tables of the studies' pages."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence


def filled(text: str) -> str:
    """Return a paragraph in lines of a page's width."""
    return textwrap.fill(" ".join(text.split()), 118)


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [heads, ["---", *("---:" for _ in heads[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plus_minus(mean: float, error: float) -> str:
    """Return a mean and its standard error, to as many digits as that allows."""
    if math.isnan(error):
        return f"{mean:.3g}"
    digits = 2 if error < 0.095 or abs(mean) < 1 else 1
    return f"{mean:.{digits}f} ± {error:.{digits}f}"
