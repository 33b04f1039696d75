"""The command line of the benchmarks: ``python -m benchmarks [case ...]`` times cases and writes the page."""

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
from benchmarks.formatting import format_case
from benchmarks.growth_figure import draw_growth
from benchmarks.page import build_page
from benchmarks.results import Result, load_results, save_results, summarise
from benchmarks.timing import check_agreement, measure_costs

DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    """Check, time and print the cases on the command line; without any, all cases, and write the page."""
    options = _parse_options()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    environment = _describe_environment()
    print(", ".join(f"{name} {value}" for name, value in environment.items()))
    results = [_run_case(key, options.seconds, environment) for key in options.cases or CASES if not options.redraw]
    if options.write or options.redraw or not options.cases:
        _write(results, options.into)


def _parse_options() -> argparse.Namespace:
    """Return the options of the command line; unknown cases end the process with the usage."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Time geh_explain and other methods, as ratios within one run."
    )
    parser.add_argument("cases", nargs="*", metavar="case", help=f"cases to run: {', '.join(CASES)} (all by default)")
    parser.add_argument("--seconds", type=float, default=20.0, help="minimal seconds for which a case is timed (20)")
    parser.add_argument("--threads", type=int, help="threads of torch (its own default)")
    parser.add_argument("--write", action="store_true", help="write single cases to docs/ too, as a run of all does")
    parser.add_argument(
        "--redraw", action="store_true", help="time nothing; write page and figure from the stored numbers"
    )
    parser.add_argument("--into", type=Path, default=DOCS, metavar="folder", help="folder to write to (docs/)")
    options = parser.parse_args()
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; choose from {', '.join(CASES)}")
    return options


def _run_case(key: str, seconds: float, environment: dict[str, Any]) -> Result:
    """Check and time one case, print its tables, and return its result."""
    start = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        case = CASES[key]()
        difference = check_agreement(case)
        result = summarise(key, case, measure_costs(case, seconds), difference, environment)
    print(f"\n{format_case(result)}\n[{perf_counter() - start:.0f} s]", flush=True)
    return result


def _write(results: list[Result], folder: Path) -> None:
    """Write numbers, figure and page to ``folder``; cases that were not run keep their stored numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = folder / "benchmarks.json"
    by_key = {result.key: result for result in [*load_results(numbers), *results]}
    ordered = [by_key[key] for key in CASES if key in by_key]
    save_results(numbers, ordered)
    draw_growth(ordered, folder / "images" / "benchmarks.png")
    (folder / "benchmarks.md").write_text(build_page(ordered), encoding="utf-8")


def _describe_environment() -> dict[str, Any]:
    """Return versions, threads, processor and date of this run."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": _processor_name(),
        "date": date.today().isoformat(),
    }


def _processor_name() -> str:
    """Return the processor's model: from /proc/cpuinfo on Linux, else the name that Python reports."""
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
