"""Run the cases, print their tables and write the page: ``python -m benchmarks [case ...]``."""

from __future__ import annotations

import argparse
import platform
import warnings
from datetime import date
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

import geh_explain as geh
from benchmarks.cases import CASES
from benchmarks.page import page
from benchmarks.picture import draw
from benchmarks.report import text
from benchmarks.results import Result, conclude, store, stored
from benchmarks.timing import check, race

DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    """Check, time and print the cases asked for; all, and the page, by default."""
    options = _options()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    where = _where()
    print(", ".join(f"{what} {value}" for what, value in where.items()))
    results = [_measured(key, options.seconds, where) for key in options.cases or CASES if not options.redraw]
    if options.write or options.redraw or not options.cases:
        _write(results, options.into)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Time geh_explain against its rivals.")
    parser.add_argument("cases", nargs="*", metavar="case", help=f"which to run: {', '.join(CASES)} (all by default)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each case is timed at least (20)")
    parser.add_argument("--threads", type=int, help="threads of torch (its own default)")
    parser.add_argument("--write", action="store_true", help="put some cases into docs/ too, as a whole run does")
    parser.add_argument(
        "--redraw", action="store_true", help="only write page and picture anew, from the numbers there"
    )
    parser.add_argument("--into", type=Path, default=DOCS, metavar="folder", help="where to write (docs/)")
    options = parser.parse_args()
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; there are {', '.join(CASES)}")
    return options


def _measured(key: str, seconds: float, where: dict[str, Any]) -> Result:
    """Check and race one case, and print what it shows."""
    begin = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        case = CASES[key]()
        apart = check(case)
        result = conclude(key, case, race(case, seconds), apart, where)
    print(f"\n{text(result)}\n[{perf_counter() - begin:.0f} s]", flush=True)
    return result


def _write(results: list[Result], folder: Path) -> None:
    """Write numbers, picture and page; cases that were not run keep the numbers they had."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = folder / "benchmarks.json"
    known = {result.key: result for result in [*stored(numbers), *results]}
    ordered = [known[key] for key in CASES if key in known]
    store(numbers, ordered)
    draw(ordered, folder / "images" / "benchmarks.png")
    (folder / "benchmarks.md").write_text(page(ordered), encoding="utf-8")


def _where() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": _processor(),
        "date": date.today().isoformat(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
