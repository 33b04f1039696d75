"""Time and memory of this version against those of another checkout: ``python -m benchmarks.versions CHECKOUT``.

Both versions run the same calls in processes of their own, in turns, so that other load on the machine affects both.
``git worktree add ../other REVISION`` makes a checkout. The cases use public names that all versions have.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import versions_worker
from studies.text import markdown_table

WORKER = Path(versions_worker.__file__)
HERE = WORKER.parents[1]
#: Largest ratios of times and of peak memory that count as no loss.
_MAX_TIME, _MAX_MEMORY = 1.05, 1.1
#: Rounds of a case.
_ROUNDS = 9


class Version:
    """A process that runs cases with the package of a checkout."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        self._process = _start(checkout, ["serve"], stdin=subprocess.PIPE)

    def seconds(self, case: str) -> float:
        """Run a case once, and return its seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(case + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def megabytes(self, case: str) -> float:
        """Return the peak memory of a case above that of a tiny run, in a fresh process."""
        output, _ = _start(self._checkout, ["memory", case]).communicate()
        return float(output)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _start(checkout: Path, arguments: Sequence[str], stdin: int | None = None) -> subprocess.Popen[str]:
    """Start the worker with the package of ``checkout``, in a folder without any."""
    # Threads that wait do not keep the processor from the other version.
    waiting = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
    environment = {**os.environ, **waiting, "PYTHONPATH": str(checkout)}
    command = [sys.executable, str(WORKER), str(checkout), *arguments]
    return subprocess.Popen(command, cwd=WORKER.parent, env=environment, stdin=stdin, stdout=subprocess.PIPE, text=True)


@dataclass(frozen=True)
class Compared:
    """Costs of one case: seconds (rounds,) and megabytes of the other version and of this one."""

    case: str
    seconds: tuple[list[float], list[float]]
    megabytes: tuple[float, float]

    @property
    def time_ratio(self) -> float:
        """Best time of this version, relative to that of the other one."""
        return min(self.seconds[1]) / min(self.seconds[0])

    @property
    def memory_ratio(self) -> float:
        """Peak memory of this version, relative to that of the other one, each with 20 MB that vary by themselves."""
        return (self.megabytes[1] + 20) / (self.megabytes[0] + 20)

    def row(self) -> list[str]:
        """Return the cells of the table: best times, ratio, middle ratios of the rounds, memory, ratio."""
        rounds = np.array(self.seconds[1]) / np.array(self.seconds[0])
        low, high = np.quantile(rounds, (0.1, 0.9))
        times = [f"{1000 * min(seconds):.3g}" for seconds in self.seconds]
        memory = [f"{size:.0f}" for size in self.megabytes]
        ratios = [
            f"{ratio:.2f}x" if ratio <= limit else f"**{ratio:.2f}x**"
            for ratio, limit in ((self.time_ratio, _MAX_TIME), (self.memory_ratio, _MAX_MEMORY))
        ]
        return [self.case, *times, ratios[0], f"{low:.2f}x to {high:.2f}x", *memory, ratios[1]]


HEADS = ["case", "ms, other", "ms, this", "ratio", "8 rounds of 10", "MB, other", "MB, this", "ratio"]


def compare(checkout: Path, cases: Sequence[str]) -> list[Compared]:
    """Run the cases with the package of ``checkout`` and with this one."""
    versions = [Version(checkout), Version(HERE)]
    found = []
    for case in cases:
        for version in versions:
            version.seconds(case)
        seconds: tuple[list[float], list[float]] = ([], [])
        for _ in range(_ROUNDS):
            for version, measured in zip(versions, seconds, strict=True):
                measured.append(version.seconds(case))
        megabytes = [version.megabytes(case) for version in versions]
        found.append(Compared(case, seconds, (megabytes[0], megabytes[1])))
        print(" | ".join(found[-1].row()), flush=True)
    for version in versions:
        version.close()
    return found


def main() -> None:
    """Compare, print the table, and write it as Markdown where asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="folder of another version")
    parser.add_argument("cases", nargs="*", metavar="case", help=f"{', '.join(versions_worker.CASES)} (all by default)")
    parser.add_argument(
        "--into", type=Path, metavar="file", help="file of the table, with numbers in a .json beside it"
    )
    options = parser.parse_args()
    found = compare(options.checkout.resolve(), options.cases or list(versions_worker.CASES))
    table = markdown_table(HEADS, [result.row() for result in found])
    print(f"\n{table}")
    if options.into is not None:
        options.into.write_text(table + "\n", encoding="utf-8")
        numbers = {result.case: [result.seconds, result.megabytes] for result in found}
        options.into.with_suffix(".json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
