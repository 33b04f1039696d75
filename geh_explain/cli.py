"""The command line: ``geh-explain demo``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from geh_explain.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="geh-explain", description="Pairwise interactions in trained PyTorch networks, with their uncertainty."
    )
    parser.add_argument("--version", action="version", version=f"geh-explain {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    demo = commands.add_parser("demo", help="train two small networks, explain them, and draw the results")
    demo.add_argument("--output", type=Path, default=Path("demo_output"), help="folder for the figures")
    demo.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    return _demo(options.output, options.seed)


def _demo(folder: Path, seed: int) -> int:
    from geh_explain import demo

    for line in demo.run(folder, seed, progress=sys.stderr.isatty()):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
