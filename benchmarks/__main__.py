"""Run the cases and print their tables: ``python -m benchmarks [case ...]``."""

from __future__ import annotations

import argparse
import platform

import torch

from benchmarks.cases import CASES
from benchmarks.timing import QUIET, Case, Times, check, race


def main() -> None:
    """Check, time and print the cases asked for, all by default."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Time geh_explain against its rivals.")
    parser.add_argument("cases", nargs="*", metavar="case", help=f"which to run: {', '.join(CASES)} (all by default)")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each case is timed (15)")
    parser.add_argument("--threads", type=int, help="threads of torch (its own default)")
    options = parser.parse_args()
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; there are {', '.join(CASES)}")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    print(f"python {platform.python_version()}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name in options.cases or CASES:
        case = CASES[name]()
        apart = check(case)
        print("\n" + report(case, race(case, options.seconds), apart), flush=True)


def report(case: Case, times: dict[str, Times], apart: float) -> str:
    """Return the table of one case: times, ratios to the reference, and the targets."""
    rounds = len(times[case.reference].seconds)
    lines = [case.name, f"{rounds} rounds in turns; answers agree to {apart:.0e}; times in ms", ""]
    lines += _columns(["", "best", "median", "median/best", "best, to reference"], _time_rows(case, times))
    lines += ["", *_columns(["target", "wanted", "by best", "by median", ""], _target_rows(case, times))]
    notes = list(case.notes)
    if max(taken.spread for taken in times.values()) > QUIET:
        notes.append(f"the machine was busy, see median/best above {QUIET}: run again before trusting a ratio")
    return "\n".join([*lines, *(f"({note})" for note in notes)])


def _time_rows(case: Case, times: dict[str, Times]) -> list[list[str]]:
    unit = times[case.reference].best
    return [
        [
            name,
            f"{1e3 * taken.best:.1f}",
            f"{1e3 * taken.middle:.1f}",
            f"{taken.spread:.2f}",
            "reference" if name == case.reference else f"{taken.best / unit:.2f}x",
        ]
        for name, taken in times.items()
    ]


def _target_rows(case: Case, times: dict[str, Times]) -> list[list[str]]:
    """Return a row per target; the best times decide, the medians show how sure that is."""
    rows = []
    for target in case.targets:
        own, rival = times[target.contestant], times[target.rival]
        ratio = own.best / rival.best
        rows.append(
            [
                f"{target.contestant} to {target.rival}",
                ("at least " if target.limit < 1 else "at most ") + target.words(target.limit),
                target.words(ratio),
                target.words(own.middle / rival.middle),
                "met" if target.met(ratio) else "missed",
            ]
        )
    return rows


def _columns(heads: list[str], rows: list[list[str]]) -> list[str]:
    """Return lines of aligned columns, the first to the left, the others to the right."""
    table = [heads, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    return [
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in cells).rstrip()
        for cells in (list(enumerate(zip(row, widths, strict=True))) for row in table)
    ]


if __name__ == "__main__":
    main()
