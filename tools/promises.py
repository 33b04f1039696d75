"""Check the promises of docs/trust.md and write the table of their last results: ``python -m tools.promises``.

Promises about one call are checked by tests, which run now. Promises about error rates need hundreds of networks:
their results are read from the files that the studies wrote, without running them again. ``--page-only`` runs no tests
and takes their last outcomes from docs/promises.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "trust.md"
RECORDS = ROOT / "docs" / "promises.json"
STUDIES = ROOT / "docs" / "studies"
_BEGIN, _END = "<!-- promises: written by python -m tools.promises -->\n", "<!-- end of promises -->\n"


@dataclass(frozen=True)
class TestedPromise:
    """A promise about one call, which tests check."""

    text: str
    paths: tuple[str, ...]
    long: str = ""

    @property
    def command(self) -> str:
        """The command that runs the tests."""
        return f"pytest {' '.join(self.paths)}"

    def check(self) -> dict[str, Any]:
        """Run the tests and return how many passed, failed and were skipped, and how long they took."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            # Options of the project name further folders; here only the named files run.
            options = ["-q", "-o", "addopts=--strict-markers", f"--junitxml={report}"]
            files = [str(path) for pattern in self.paths for path in sorted(ROOT.glob(pattern))]
            subprocess.run([sys.executable, "-m", "pytest", *options, *files], cwd=ROOT, check=False)
            suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
        total, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
        failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
        passed = total - skipped - failed
        seconds = round(float(suite.attrib["time"]))
        return {"passed": passed, "failed": failed, "skipped": skipped, "seconds": seconds, "date": _today()}


@dataclass(frozen=True)
class StudiedPromise:
    """A promise about error rates, whose result is read from a file that a study wrote."""

    text: str
    command: str
    file: str


TESTED = {
    "unchanged": TestedPromise(
        "The model comes back unchanged: parameters, buffers, modes, hooks, attributes; also after an exception",
        ("tests/model/test_preserve*.py", "tests/model/test_snapshot*.py"),
        "make test-long",
    ),
    "exact": TestedPromise(
        "Engines give the second derivatives of known functions and of two backward passes",
        ("tests/engines/test_exact.py", "tests/engines/test_double_backward.py", "tests/engines/structured"),
    ),
    "same": TestedPromise(
        "The same seed gives the same result, whatever the size of batches and the order of rows",
        ("tests/scores/test_invariants.py",),
    ),
    "resumption": TestedPromise(
        "A run that was interrupted or killed resumes bit-identically from its checkpoint",
        ("tests/run/test_checkpoint.py", "tests/run/test_checkpoint_races.py"),
        "make test-long",
    ),
    "interruption": TestedPromise(
        "Ctrl-C at any moment leaves nothing behind, and finished draws are a result",
        ("tests/test_interrupt.py",),
        "make test-long",
    ),
    "files": TestedPromise(
        "Nothing in a file is executed, and damaged files are refused",
        ("tests/results/test_forged_files.py", "tests/test_package.py"),
        "make test-long",
    ),
}

_DECISIONS = "python -m studies decisions --docs docs"
STUDIED = {
    "level": StudiedPromise(
        "Level: 5 % of the pairs that do not interact have p < 0.05", _DECISIONS, "studies/decisions.csv"
    ),
    "fdr": StudiedPromise(
        "False discovery rate: at most 5 % of the significant pairs do not interact",
        _DECISIONS,
        "studies/decisions.csv",
    ),
    "real": StudiedPromise(
        "The same with features of real tables and targets without interactions: at most 5 % have a discovery",
        "python -m studies real --docs docs",
        "studies/real_false_positives.csv",
    ),
    "coverage": StudiedPromise(
        "95 % of the intervals of `result.table()` hold the score of the population",
        "python -m studies coverage --docs docs",
        "studies/coverage.csv",
    ),
    "architectures": StudiedPromise(
        "Interactions in networks of torchvision are those of two backward passes in double precision",
        "make test-zoo",
        "architectures.md",
    ),
}


def main() -> int:
    """Run the tests, unless only the page is wanted, write record and page; return 1 if a test failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.promises", description=__doc__.splitlines()[0])
    parser.add_argument("--page-only", action="store_true", help="run no tests; take their last outcomes")
    only_page = parser.parse_args().page_only
    records = json.loads(RECORDS.read_text(encoding="utf-8")) if only_page else _check_all()
    records["studies"] = {name: _written_on(promise.file) for name, promise in STUDIED.items()}
    RECORDS.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), build_table(records)), encoding="utf-8")
    return int(any(outcome["failed"] for outcome in records["tests"].values()))


def _check_all() -> dict[str, Any]:
    """Return the outcomes of all tests, with the versions that they ran with."""
    import torch

    from geh_explain import __version__

    python = ".".join(map(str, sys.version_info[:3]))
    versions = {"geh_explain": __version__, "torch": torch.__version__, "python": python}
    return {"versions": versions, "tests": {name: promise.check() for name, promise in TESTED.items()}}


def build_table(records: dict[str, Any]) -> str:
    """Return the table of promises, commands and last results as Markdown."""
    lines = ["| promise | command that checks it | last result | date |", "|---|---|---|---|"]
    for name, studied in STUDIED.items():
        lines.append(f"| {studied.text} | `{studied.command}` | {_RESULTS[name]()} | {records['studies'][name]} |")
    for name, tested in TESTED.items():
        outcome = records["tests"][name]
        commands = f"`{tested.command}`" + (f"; longer: `{tested.long}`" if tested.long else "")
        found = f"{outcome['passed']} of {outcome['passed'] + outcome['failed']} tests passed"
        lines.append(f"| {tested.text} | {commands} | {found} | {outcome['date']} |")
    versions = records["versions"]
    ran = (
        f"Tests ran with geh_explain {versions['geh_explain']}, torch {versions['torch']}, Python {versions['python']}."
    )
    return "\n".join([*lines, "", ran]) + "\n"


def with_table(page: str, table: str) -> str:
    """Return the page with the table between its marks."""
    head, _, rest = page.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    return f"{head}{_BEGIN}\n{table}\n{_END}{tail}"


def _error_rates(column: str) -> str:
    """Return an error rate of the test: its mean over all kinds of data, the smallest and the largest."""
    rates = pd.read_csv(STUDIES / "decisions.csv").groupby("scenario")[column].agg(["mean", "sem"])
    mean, low, high = (_percent(getattr(rates["mean"], part)()) for part in ("mean", "min", "max"))
    error = _percent(float(rates["sem"].iloc[int(rates["mean"].argmax())]))
    return f"{mean} on average over {len(rates)} kinds of data; lowest {low}, highest {high} ± {error}"


def _real() -> str:
    """Return the share of targets without interactions that have a discovery, for each table."""
    table = pd.read_csv(STUDIES / "real_false_positives.csv")
    of_rule = table[(table["rule"] == "any discovery") & (table["posterior"] == "mean field")]
    rows = of_rule[of_rule["target"] != "permuted"]
    columns = zip(rows["data"], rows["rate"], rows["error"], strict=True)
    shares = [f"{name} {_percent(rate)} (± {_percent(error)})" for name, rate, error in columns]
    return f"targets with a discovery: {', '.join(shares)}"


def _coverage() -> str:
    """Return the coverage of intervals over points, draws and clusters."""
    from studies.coverage.summary import misses

    table = pd.read_csv(STUDIES / "coverage.csv")
    used = table[table["part"] != "clusters ignored"]
    coverages = zip(used["coverage"], used["true"], strict=True)
    below = sum(coverage < 0.95 and misses(coverage, true) for coverage, true in coverages)
    mean, low = _percent(used["coverage"].mean()), _percent(used["coverage"].min())
    return f"{mean} on average over {len(used)} kinds of pairs; {below} below their target, the lowest {low}"


def _architectures() -> str:
    """Return the largest difference over all architectures."""
    rows = re.findall(r"^\| (.+) \|$", (ROOT / "docs/architectures.md").read_text(encoding="utf-8"), re.MULTILINE)
    cells = [row.split(" | ") for row in rows if not row.startswith("architecture")]
    errors = [float(cell[5]) for cell in cells]
    return f"largest difference over {len(errors)} architectures: {max(errors):.0e} of the largest entry"


_RESULTS: dict[str, Callable[[], str]] = {
    "level": partial(_error_rates, "level"),
    "fdr": partial(_error_rates, "fdr 0.05"),
    "real": _real,
    "coverage": _coverage,
    "architectures": _architectures,
}


def _percent(rate: float) -> str:
    """Return a rate in per cent."""
    return f"{100 * rate:.1f} %"


def _written_on(name: str) -> str:
    """Return the date of the last change of a file of the documentation: of its commit, or today if it has none."""
    path = f"docs/{name}"
    changed = _git("status", "--porcelain", "--", path)
    return _today() if changed else _git("log", "-1", "--format=%cs", "--", path) or _today()


def _git(*arguments: str) -> str:
    """Return what a git command prints; empty outside of a clone."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _today() -> str:
    return datetime.date.today().isoformat()


if __name__ == "__main__":
    sys.exit(main())
