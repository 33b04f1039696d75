"""The parts of the study, their cases, and the files that hold their records."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from geh_explain.errors import GEHValueError
from geh_explain.inference.jsonl import Record, Store

#: Seeds below this one were used for development.
FIRST_SEED = 100
#: Seeds of the full study. Two parts were first run, with seeds 100 to 109, on networks without products of three
#: features; they have later seeds.
_FULL_SEEDS = tuple(range(FIRST_SEED, FIRST_SEED + 10))
LATER_SEEDS = {name: tuple(range(FIRST_SEED + 10, FIRST_SEED + 20)) for name in ("nid", "effector")}
#: Seeds of the quick form.
QUICK_SEEDS = (0,)
#: Names of the parts, each a module with ``run(seed, quick)``.
NAMES = ("nid", "diamond", "archipelago", "effector", "taylor")
#: Parts of the quick form: they need neither files of data nor further packages.
QUICK_NAMES = ("nid", "diamond", "archipelago", "effector")
#: Case of the parts that are not divided into cases.
_WHOLE = "all"


def available(quick: bool) -> tuple[str, ...]:
    """Return the names of the parts that are run by default."""
    names = QUICK_NAMES if quick else NAMES
    return tuple(name for name in names if importlib.util.find_spec(f"studies.yardsticks.{name}"))


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of parts; raise GEHValueError for unknown ones."""
    for name in names:
        if name not in available(quick=False):
            raise GEHValueError(f"parts: {name!r} is unknown; use {', '.join(available(quick=False))}.")
    return tuple(dict.fromkeys(names))


def choose_seeds(names: Sequence[str], seeds: Sequence[int] | None, quick: bool) -> dict[str, tuple[int, ...]]:
    """Return the seeds of each part: those that are given, or None for those of the study."""
    if seeds is not None:
        return dict.fromkeys(names, tuple(dict.fromkeys(seeds)))
    return {name: QUICK_SEEDS if quick else LATER_SEEDS.get(name, _FULL_SEEDS) for name in names}


def tasks(seeds: Mapping[str, Sequence[int]], quick: bool) -> list[tuple[str, str, int]]:
    """Return one task per part, case and seed, for the seeds of each part.

    Some cases are run with the first seeds only, after those that all seeds are for.
    """
    found = [
        (name, case, seed, _count_seeds(name, case))
        for place in range(max(map(len, seeds.values()), default=0))
        for name, own in seeds.items()
        for seed in own[place : place + 1]
        for case in _cases(name, quick)
        if place < _count_seeds(name, case)
    ]
    return [task[:3] for task in sorted(found, key=lambda task: -task[3])]


def seeds_run(name: str, table: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """Return for each case of a part how many seeds a table has, and how many the study wants."""
    found = dict.fromkeys(_cases(name, quick=False), 0)
    rows: list[Record] = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    for case, _ in {(_case_of(name, row), row["seed"]) for row in rows}:
        found[case] = found.get(case, 0) + 1
    return {case: (count, _count_seeds(name, case)) for case, count in found.items()}


def run_task(task: tuple[str, str, int], quick: bool) -> Record:
    """Run one task, and return its record: rows of a table."""
    name, case, seed = task
    module = _module(name)
    return {"rows": module.run(seed, quick) if case == _WHOLE else module.run_case(case, seed, quick)}


def _cases(name: str, quick: bool) -> list[str]:
    """Return the cases of a part."""
    module = _module(name)
    return list(module.cases(quick)) if hasattr(module, "cases") else [_WHOLE]


def _case_of(name: str, row: Record) -> str:
    """Return the case that a row of a part's table belongs to."""
    module = _module(name)
    return str(module.case_of(row) if hasattr(module, "case_of") else row.get("case", row.get("function", _WHOLE)))


def _count_seeds(name: str, case: str) -> int:
    """Return how many seeds a case is run with, at most."""
    module = _module(name)
    return int(module.count_seeds(case)) if hasattr(module, "count_seeds") else len(_FULL_SEEDS)


def _module(name: str) -> Any:
    """Return the module of a part."""
    return importlib.import_module(f"studies.yardsticks.{name}")


class SeedFiles(Store):
    """Records of several parts and seeds, one file each, so that processes with other seeds or parts can run beside.

    Cases that only a table of the documentation has are records too, of any seed, so that another machine goes on where
    one ended, and no row of a table is lost.

    Parameters
    ----------
    folder
        Folder of the files.
    seeds
        Seeds of each part, whose records are read and written.
    quick
        Whether they are those of the quick form, which reads no tables.
    tables
        Folder of the tables, see :func:`table_path`; None reads none.
    """

    def __init__(
        self, folder: Path, seeds: Mapping[str, Sequence[int]], quick: bool, tables: Path | None = None
    ) -> None:
        kind = "quick" if quick else "full"
        self._files = {
            (name, seed): Store(folder / f"yardsticks_{kind}_{name}_{seed}.jsonl")
            for name, own in seeds.items()
            for seed in own
        }
        self._tables = None if quick else tables

    def __iter__(self) -> Iterator[Record]:
        known = set()
        for store in self._files.values():
            for record in store:
                known.add(tuple(record["task"]))
                yield record
        for name in dict.fromkeys(name for name, _ in self._files):
            path = None if self._tables is None else table_path(self._tables, name)
            for record in _read_table(path, name) if path is not None and path.exists() else ():
                if tuple(record["task"]) not in known:
                    yield record

    def add(self, record: Record) -> None:
        """Append a record to the file of its part and seed."""
        name, _, seed = record["task"]
        self._files[name, seed].add(record)


def table_path(folder: Path, name: str) -> Path:
    """Return the file of a part's table."""
    return folder / f"yardsticks_{name}.csv"


def _read_table(path: Path, name: str) -> Iterator[Record]:
    """Yield the records of a table: one for each case and seed."""
    found: dict[tuple[str, int], list[Record]] = {}
    for row in pd.read_csv(path).to_dict("records"):
        filled = {str(key): value for key, value in row.items() if not pd.isna(value)}
        found.setdefault((_case_of(name, filled), int(filled["seed"])), []).append(filled)
    for (case, seed), rows in found.items():
        yield {"task": [name, case, seed], "rows": rows}
