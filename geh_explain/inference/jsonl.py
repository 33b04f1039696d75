"""Records in a file of JSON lines, written one by one, so that long computations resume after an interruption."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from geh_explain.errors import GEHRuntimeError
from geh_explain.inference.workers import Failure, run_parallel

#: A dict of plain values, as JSON holds them.
Record = dict[str, Any]


class Store:
    """Records in a file, one line of JSON each; iterating reads them from the start.

    A line that was cut off when the process was killed is skipped.

    Parameters
    ----------
    path
        The file. Its folder is created; the file itself appears with the first record.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(Path(folder) / "records.jsonl")
    ...     store.add({"task": [1], "score": 0.5})
    ...     print(list(store))
    [{'task': [1], 'score': 0.5}]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def __iter__(self) -> Iterator[Record]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:  # cut off when the process was killed
                continue

    def add(self, record: Record) -> None:
        """Append a record; it is on the disk when this returns."""
        with open(self.path, "a+b") as lines:
            # A cut-off line would swallow the new record.
            if lines.tell() and not _ends_with_newline(lines):
                lines.write(b"\n")
            lines.write(json.dumps(record).encode() + b"\n")
            lines.flush()
            os.fsync(lines.fileno())


def complete(
    store: Store, tasks: Iterable[Any], work: Callable[[Any], Record], workers: int
) -> Iterator[tuple[int, int]]:
    """Run the tasks that ``store`` has no record of, add their records, and yield (number done, number of tasks).

    Parameters
    ----------
    store
        Where records are kept, each with its task under ``"task"``.
    tasks
        Tuples of plain values.
    work
        Function of a task that returns its record.
    workers
        Number of processes.

    Raises
    ------
    GEHRuntimeError
        After all other tasks, if a task failed twice; names the first one and its error.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(Path(folder) / "squares.jsonl")
    ...     square = lambda task: {"square": task[0] ** 2}
    ...     print(list(complete(store, [(1,), (2,)], square, workers=1)))
    ...     print(list(complete(store, [(1,), (2,), (3,)], square, workers=1)))
    [(0, 2), (1, 2), (2, 2)]
    [(2, 3), (3, 3)]
    """
    all_tasks = [tuple(task) for task in tasks]
    recorded = {_key(record["task"]) for record in store}
    missing = [task for task in all_tasks if _key(task) not in recorded]
    done = len(all_tasks) - len(missing)
    failures: dict[Any, str] = {}
    yield done, len(all_tasks)
    for task, outcome in run_parallel(work, missing, workers):
        if isinstance(outcome, Failure):
            failures[task] = outcome.reason
            continue
        store.add({"task": list(task), **outcome})
        done += 1
        yield done, len(all_tasks)
    if failures:
        task, reason = next(iter(failures.items()))
        raise GEHRuntimeError(f"{len(failures)} of {len(all_tasks)} tasks failed; the first, {task}: {reason}")


def _ends_with_newline(lines: IO[bytes]) -> bool:
    """Return whether the last byte of a file, which is not empty, is a newline."""
    lines.seek(-1, os.SEEK_END)
    return lines.read(1) == b"\n"


def _key(task: Iterable[Any]) -> str:
    """Return a task as JSON: tuples come back from a file as lists, so tasks are compared in this form."""
    return json.dumps(list(task))
