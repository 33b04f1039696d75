"""Paragraphs, tables and numbers of the studies' Markdown pages."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

#: Characters per line of a page.
PAGE_WIDTH = 118


def fill_paragraph(text: str) -> str:
    """Return ``text`` as one paragraph, with its lines broken at the width of a page."""
    return textwrap.fill(" ".join(text.split()), PAGE_WIDTH)


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with its first column aligned left and all others right."""
    lines = [heads, ["---", *("---:" for _ in heads[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plus_minus(mean: float, error: float) -> str:
    """Return ``mean ± error`` with one or two decimals, by the size of the error; the mean alone if that is NaN."""
    if math.isnan(error):
        return f"{mean:.3g}"
    digits = 2 if error < 0.095 or abs(mean) < 1 else 1
    return f"{mean:.{digits}f} ± {error:.{digits}f}"
