"""The command line: ``geh-explain demo``, ``geh-explain report saved.npz`` and ``geh-explain show saved.npz``."""

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
    """Run one command, print its lines, and return the exit code.

    Parameters
    ----------
    arguments
        The words after the program's name; None takes those of the process.

    Returns
    -------
    int
        0 on success, 1 after a :class:`~geh_explain.errors.GEHError` (its message goes to stderr), 130 after Ctrl-C.

    Raises
    ------
    SystemExit
        With code 2 and the usage on stderr, if the arguments cannot be parsed.
    """
    options = _build_parser().parse_args(arguments)
    try:
        for line in _COMMANDS[options.command](options):
            print(line, flush=True)
    except GEHError as error:
        print(f"geh-explain: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted")
        return 130
    return 0


def _build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="geh-explain", description="Pairwise interactions in trained PyTorch networks, with their uncertainty."
    )
    parser.add_argument("--version", action="version", version=f"geh-explain {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    demo = commands.add_parser("demo", help="train two small networks, explain them, and draw the results")
    demo.add_argument(
        "-o", "--output", type=Path, default=Path("demo_output"), help="folder of the figures (demo_output)"
    )
    demo.add_argument("--seed", type=int, default=0, help="seed of data, training and draws (0)")
    report = commands.add_parser("report", help="write the interactive page of a saved result")
    report.add_argument("file", type=Path, help="file written by result.save")
    report.add_argument("-o", "--output", type=Path, help="file of the page (the file's name with .html)")
    report.add_argument("--title", help="title of the page")
    show = commands.add_parser("show", help="print the summary and the strongest pairs of a saved result")
    show.add_argument("file", type=Path, help="file written by result.save")
    show.add_argument("--pairs", type=int, default=20, help="number of strongest pairs (20)")
    show.add_argument(
        "--measure", choices=["geh", "aeh", "eah", "supported"], help="measure to sort by (as in result.table)"
    )
    for command in (report, show):
        rule_help = "rule that decides about pairs (as in result.table)"
        command.add_argument("--rule", choices=["evidence", "sign", "interval"], help=rule_help)
        command.add_argument("--level", type=float, default=0.95, help="level of the intervals (0.95)")
        command.add_argument("--fdr", type=float, help="false discovery rate of the rule (as in result.table)")
    return parser


# Each command imports what it needs when it runs: --help and --version should not wait for torch.


def _demo(options: argparse.Namespace) -> Iterable[str]:
    """Run the demonstration and return its lines, which appear while it runs."""
    from geh_explain import demo

    return demo.run(options.output, options.seed, progress=sys.stderr.isatty())


def _report(options: argparse.Namespace) -> Iterable[str]:
    """Write the page of a saved result and return the line that names the file."""
    from geh_explain.results.interactions import Interactions

    path = options.output or options.file.with_suffix(".html")
    result = Interactions.load(options.file)
    chosen = {"level": options.level, "rule": options.rule, "fdr": options.fdr}
    return [f"page: {result.report(path, title=options.title, **chosen)}"]


def _show(options: argparse.Namespace) -> Iterable[str]:
    """Return the summary of a saved result, wrapped to the terminal's width, and the table of its strongest pairs."""
    from geh_explain.report.text import describe_columns, summarise
    from geh_explain.results.interactions import Interactions
    from geh_explain.results.tables import format_table

    result = Interactions.load(options.file)
    chosen = {"level": options.level, "rule": options.rule, "fdr": options.fdr}
    table = format_table(result.top(options.pairs, options.measure, **chosen))
    width = shutil.get_terminal_size().columns
    decisions = result.decisions(options.measure, **chosen)
    words = " ".join(summarise(result, decisions)), *describe_columns(decisions)
    return [*(textwrap.fill(text, width) for text in words), "", table.to_string()]


#: Functions of the commands: parsed options to the lines that are printed.
_COMMANDS = {"demo": _demo, "report": _report, "show": _show}


if __name__ == "__main__":
    sys.exit(main())
