"""Records that are kept as they come, so that long work can be interrupted and taken up again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

from geh_explain.errors import GEHRuntimeError
from geh_explain.inference.workers import Failure, spread

Record = dict[str, Any]


class Store:
    """Records in a file, one line of JSON each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def __iter__(self) -> Iterator[Record]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:  # cut off when the work was interrupted
                continue

    def add(self, record: Record) -> None:
        """Keep one more record."""
        with open(self.path, "a+b") as lines:
            if lines.tell() and not self._ends_well(lines):
                lines.write(b"\n")
            lines.write(json.dumps(record).encode() + b"\n")
            lines.flush()
            os.fsync(lines.fileno())

    @staticmethod
    def _ends_well(lines: Any) -> bool:
        """Tell whether the last line is whole."""
        lines.seek(-1, os.SEEK_END)
        return bool(lines.read(1) == b"\n")


def complete(
    store: Store, tasks: Iterable[Any], work: Callable[[Any], Record], workers: int
) -> Iterator[tuple[int, int]]:
    """Do the tasks that ``store`` has no record of, and yield how many are done, and how many there are.

    A task is a tuple of plain values. What fails twice is told at the end, when all the rest is kept.
    """
    wanted = [tuple(task) for task in tasks]
    known = {_key(record["task"]) for record in store}
    left = [task for task in wanted if _key(task) not in known]
    done, failures = len(wanted) - len(left), dict[Any, str]()
    yield done, len(wanted)
    for task, record in spread(work, left, workers):
        if isinstance(record, Failure):
            failures[task] = record.reason
            continue
        store.add({"task": list(task), **record})
        done += 1
        yield done, len(wanted)
    if failures:
        task, reason = next(iter(failures.items()))
        raise GEHRuntimeError(f"{len(failures)} of {len(wanted)} tasks failed; the first, {task}: {reason}")


def _key(task: Iterable[Any]) -> Hashable:
    return json.dumps(list(task))
