"""The command line of the studies: ``python -m studies simulated|mnist|real|decisions|coverage|vision|yardsticks``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from geh_explain.errors import GEHError, GEHValueError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one study, print its progress, and return the exit code.

    The code is 0 on success, 1 after a ``GEHError`` (its message goes to stderr) and 130 after Ctrl-C. Finished records
    are on disk by then, so the same command resumes.
    """
    options = _build_parser().parse_args(arguments)
    try:
        for line in _run_study(options):
            print(line, flush=True)
    except GEHError as error:
        print(f"studies: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command resumes", flush=True)
        return 130
    return 0


def _build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies", description="Run one study and write its page.")
    names = ["simulated", "mnist", "real", "decisions", "coverage", "vision", "yardsticks"]
    parser.add_argument("name", choices=names, help="the study to run")
    parser.add_argument("--quick", action="store_true", help="run a small version that takes minutes")
    parser.add_argument(
        "--output", type=Path, default=Path("study_output"), metavar="DIR", help="folder of the records (study_output)"
    )
    parser.add_argument("--docs", type=Path, metavar="DIR", help="folder of page and figures (the output folder)")
    parser.add_argument(
        "--data", metavar="DIR", help="folder of the data files (GEH_EXPLAIN_DATA, else they are downloaded)"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes, each with one thread (2)")
    parser.add_argument("--parts", type=_words, metavar="A,B", help="yardsticks only: parts to run (all)")
    parser.add_argument("--seeds", type=_numbers, metavar="A,B", help="yardsticks only: seeds (those of the study)")
    return parser


def _words(text: str) -> list[str]:
    """Return the words between commas."""
    return [word.strip() for word in text.split(",")]


def _numbers(text: str) -> list[int]:
    """Return the integers between commas."""
    return [int(word) for word in _words(text)]


def _run_study(options: argparse.Namespace) -> Iterator[str]:
    """Start the study that the options name and return its lines of progress."""
    # Imported here: --help should not wait for torch.
    from studies import coverage, decisions, mnist, real, simulated, vision, yardsticks

    shared = {"quick": options.quick, "workers": options.workers}
    if options.name == "yardsticks":
        return yardsticks.run(options.output, options.docs, **shared, names=options.parts, seeds=options.seeds)
    if options.parts or options.seeds:
        raise GEHValueError(f"--parts and --seeds belong to the study yardsticks; {options.name} runs as a whole.")
    without_data = {
        "simulated": simulated.run,
        "decisions": decisions.run,
        "coverage": coverage.run,
        "vision": vision.run,
    }
    if options.name in without_data:
        study = without_data[options.name]
        return study(options.output, options.docs, **shared)
    run = mnist.run if options.name == "mnist" else real.run
    return run(options.output, options.docs, **shared, data=options.data)


if __name__ == "__main__":
    sys.exit(main())
