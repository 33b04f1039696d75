"""Tables of results, for the terminal and for the page."""

from __future__ import annotations

from benchmarks.results import MAX_QUIET_RATIO, Result, Verdict
from benchmarks.timing import count_noun

#: Heads of the table of targets.
TARGET_HEADS = ["method", "against", "target", "result", "8 rounds of 10", ""]


def format_case(result: Result) -> str:
    """Return the tables of one case for the terminal."""
    lines = [f"{result.key}: {result.title}", describe_timing(result), "", *_align_columns(*cost_table(result))]
    if result.verdicts:
        lines += ["", *_align_columns(TARGET_HEADS, [verdict_cells(verdict) for verdict in result.verdicts])]
    return "\n".join([*lines, *(f"({note})" for note in collect_notes(result))])


def describe_timing(result: Result) -> str:
    """Return rounds, agreement of the answers and unit of the costs, in words."""
    rounds = len(result.row(result.reference).costs)
    agreement = "" if result.max_difference is None else f"; answers agree to {result.max_difference:.0e}"
    return f"{count_noun(rounds, 'round')} in turns{agreement}; costs in {result.unit}"


def collect_notes(result: Result) -> list[str]:
    """Return the remarks on a case: how to read its table, its own notes, and a warning if the machine was busy."""
    has_scaled = any(row.timed_on for row in result.rows)
    has_unchecked = any(not row.is_checked for row in result.rows) and result.max_difference is not None
    return [
        *(["timed on: the part of the job that was timed; its cost is scaled to the whole job"] if has_scaled else []),
        *(["another quantity: its values cannot be compared, only its cost"] if has_unchecked else []),
        *result.notes,
        *(
            [f"the machine was busy (median/best above {MAX_QUIET_RATIO}): run again before trusting the ratios"]
            if result.is_busy
            else []
        ),
    ]


def cost_table(result: Result) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of the table of costs: one row per method."""
    factor = 1e3 if result.unit == "ms" else 1.0  # times are stored in seconds
    reference = result.row(result.reference).best
    heads = ["", "best", "median", "median/best", f"to {result.reference}", "timed on", "answer"]
    if result.points is not None:
        heads.insert(2, "best, per point")
    rows = []
    for row in result.rows:
        cells = [
            row.name,
            _format_number(factor * row.best),
            _format_number(factor * row.median),
            f"{row.spread:.2f}",
            "1" if row.name == result.reference else _format_number(row.best / reference) if reference else "",
            row.timed_on or "all",
            "checked" if row.is_checked else "another quantity" if result.max_difference is not None else "",
        ]
        if result.points is not None:
            cells.insert(2, _format_number(factor * row.best / result.points))
        rows.append(cells)
    # These two columns are left out where all rows are the same.
    is_constant = [
        head in ("timed on", "answer") and len({row[column] for row in rows}) == 1 for column, head in enumerate(heads)
    ]
    return _drop_columns(is_constant, heads), [_drop_columns(is_constant, cells) for cells in rows]


def _drop_columns(is_dropped: list[bool], cells: list[str]) -> list[str]:
    """Return the cells of a row without those of dropped columns."""
    return [cell for cell, dropped in zip(cells, is_dropped, strict=True) if not dropped]


def verdict_cells(verdict: Verdict) -> list[str]:
    """Return the row of one target, by ``TARGET_HEADS``."""
    met = "met" if verdict.met else "missed"
    return [verdict.method, verdict.alternative, verdict.target, verdict.reached, verdict.range, met]


def _format_number(value: float) -> str:
    """Return a number with three significant digits, or without decimals from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _align_columns(heads: list[str], rows: list[list[str]]) -> list[str]:
    """Return one line per row, with the first column aligned left and all others right."""
    table = [heads, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    return [
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in cells).rstrip()
        for cells in (list(enumerate(zip(row, widths, strict=True))) for row in table)
    ]
