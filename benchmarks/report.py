"""Results in words: tables for the terminal and for the page, from the same cells."""

from __future__ import annotations

from benchmarks.results import QUIET, Result, Verdict
from benchmarks.timing import counted

TARGET_HEADS = ["contestant", "against", "wanted", "reached", "8 rounds of 10", ""]


def text(result: Result) -> str:
    """Return the tables of one case for the terminal."""
    lines = [f"{result.key}: {result.title}", method(result), "", *_columns(*costs(result))]
    if result.verdicts:
        lines += ["", *_columns(TARGET_HEADS, [verdict_cells(verdict) for verdict in result.verdicts])]
    return "\n".join([*lines, *(f"({note})" for note in notes(result))])


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table for the page, its first column to the left, the others to the right."""
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def method(result: Result) -> str:
    """Say how the case was measured."""
    rounds = len(result.row(result.reference).costs)
    agreed = "" if result.apart is None else f"; answers agree to {result.apart:.0e}"
    return f"{counted(rounds, 'round')} in turns{agreed}; costs in {result.unit}"


def notes(result: Result) -> list[str]:
    """Return what else a reader should know."""
    scaled = any(row.part for row in result.rows)
    other = any(not row.compared for row in result.rows) and result.apart is not None
    return [
        *(["timed on: a part of the job, scaled to the whole of it"] if scaled else []),
        *(["another quantity: not comparable in value, there for its cost"] if other else []),
        *result.notes,
        *(
            [f"the machine was busy (median/best above {QUIET}): run again before trusting the ratios"]
            if result.busy
            else []
        ),
    ]


def costs(result: Result) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells of the table of costs."""
    factor = 1e3 if result.unit == "ms" else 1.0
    unit = result.row(result.reference).best
    heads = ["", "best", "median", "median/best", f"to {result.reference}", "timed on", "answer"]
    if result.points is not None:
        heads.insert(2, "best, per point")
    rows = []
    for row in result.rows:
        cells = [
            row.name,
            _number(factor * row.best),
            _number(factor * row.middle),
            f"{row.spread:.2f}",
            "1" if row.name == result.reference else _number(row.best / unit) if unit else "",
            row.part or "all",
            "checked" if row.compared else "another quantity" if result.apart is not None else "",
        ]
        if result.points is not None:
            cells.insert(2, _number(factor * row.best / result.points))
        rows.append(cells)
    # Columns that say the same everywhere say nothing.
    dull = [
        head in ("timed on", "answer") and len({row[column] for row in rows}) == 1 for column, head in enumerate(heads)
    ]
    return _without(dull, heads), [_without(dull, cells) for cells in rows]


def _without(dull: list[bool], cells: list[str]) -> list[str]:
    return [cell for cell, gone in zip(cells, dull, strict=True) if not gone]


def verdict_cells(verdict: Verdict) -> list[str]:
    """Return the cells of one target."""
    met = "met" if verdict.met else "missed"
    return [verdict.contestant, verdict.rival, verdict.wanted, verdict.reached, verdict.range, met]


def _number(value: float) -> str:
    """Return three digits, or as many as stand before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _columns(heads: list[str], rows: list[list[str]]) -> list[str]:
    """Return lines of aligned columns, the first to the left, the others to the right."""
    table = [heads, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    return [
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in cells).rstrip()
        for cells in (list(enumerate(zip(row, widths, strict=True))) for row in table)
    ]
