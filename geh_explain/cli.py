"""The command line: ``geh-explain demo``, ``geh-explain report saved.npz``, ``geh-explain study mnist``."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from geh_explain._version import __version__
from geh_explain.errors import GEHError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        for line in _COMMANDS[options.command](options):
            print(line, flush=True)
    except GEHError as error:
        print(f"geh-explain: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here" if options.command == "study" else "interrupted")
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="geh-explain", description="Pairwise interactions in trained PyTorch networks, with their uncertainty."
    )
    parser.add_argument("--version", action="version", version=f"geh-explain {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    demo = commands.add_parser("demo", help="train two small networks, explain them, and draw the results")
    demo.add_argument("--output", type=Path, default=Path("demo_output"), help="folder for the figures")
    demo.add_argument("--seed", type=int, default=0)
    report = commands.add_parser("report", help="write the page of a saved result")
    report.add_argument("file", type=Path, help="what result.save wrote")
    report.add_argument("-o", "--output", type=Path, help="the page (the file's name with .html)")
    report.add_argument("--title", help="its title")
    show = commands.add_parser("show", help="print a saved result")
    show.add_argument("file", type=Path, help="what result.save wrote")
    show.add_argument("--pairs", type=int, default=20, help="how many of the strongest (20)")
    show.add_argument("--measure", choices=["geh", "aeh", "eah"], default="geh")
    study = commands.add_parser("study", help="run one of the studies of the documentation")
    study.add_argument("name", choices=["mnist", "real", "simulated"])
    study.add_argument("--quick", action="store_true", help="a small version, in minutes")
    study.add_argument("--output", type=Path, default=Path("study_output"), help="folder for what is computed")
    study.add_argument("--docs", type=Path, help="folder for page and figures (the output folder)")
    study.add_argument("--data", help="folder with data files (else GEH_EXPLAIN_DATA, else a download)")
    study.add_argument("--workers", type=int, default=2, help="processes, of one thread each (2)")
    return parser


def _demo(options: argparse.Namespace) -> Iterable[str]:
    from geh_explain import demo

    return demo.run(options.output, options.seed, progress=sys.stderr.isatty())


def _report(options: argparse.Namespace) -> Iterable[str]:
    from geh_explain.results.interactions import Interactions

    path = options.output or options.file.with_suffix(".html")
    return [f"page: {Interactions.load(options.file).report(path, title=options.title)}"]


def _show(options: argparse.Namespace) -> Iterable[str]:
    from geh_explain.report.text import summarise
    from geh_explain.results.interactions import Interactions

    result = Interactions.load(options.file)
    table = result.top(options.pairs, options.measure)
    width = shutil.get_terminal_size().columns
    return [textwrap.fill(" ".join(summarise(result)), width), "", table.to_string(float_format="{:.4g}".format)]


def _study(options: argparse.Namespace) -> Iterable[str]:
    from studies import mnist, real, simulated

    if options.name == "simulated":
        return simulated.run(options.output, options.docs, quick=options.quick, workers=options.workers)
    run = mnist.run if options.name == "mnist" else real.run
    return run(options.output, options.docs, quick=options.quick, workers=options.workers, data=options.data)


_COMMANDS = {"demo": _demo, "report": _report, "show": _show, "study": _study}


if __name__ == "__main__":
    sys.exit(main())
