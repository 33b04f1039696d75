"""Records in a file of JSON lines, written one by one, so that long computations resume after an interruption."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from geh_explain.errors import GEHRuntimeError, GEHValueError, warn
from geh_explain.inference.dask_tasks import Failure
from geh_explain.inference.workers import run_parallel
from geh_explain.storage.whole import explain_os_error, make_folder

#: A dict of plain values, as JSON holds them.
Record = dict[str, Any]


class Store:
    """Records in a file, one line of JSON each; iterating reads them from the start.

    A line that was cut off when the process was killed is skipped, and damaged lines with a warning.

    Parameters
    ----------
    path
        The file. Its folder is created; the file itself appears with the first record.

    Raises
    ------
    GEHRuntimeError
        If the folder cannot be made.

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
        make_folder(path.parent)

    def __iter__(self) -> Iterator[Record]:
        damaged = 0
        for line in self._lines():
            record = _parse(line)
            if record is None:
                damaged += 1
            else:
                yield record
        if damaged:
            warn(f"{self.path.name}: {damaged} line(s) are damaged and not used.")

    def _lines(self) -> Iterator[bytes]:
        """Yield the lines of the file, without one that was cut off at the end when the process was killed."""
        if not self.path.exists():
            return
        if not self.path.is_file():
            raise GEHValueError(f"path={str(self.path)!r} is not a file; give another folder.")
        with open(self.path, "rb") as lines:
            for line in lines:
                if line.endswith(b"\n") or _parse(line) is not None:
                    yield line

    def add(self, record: Record) -> None:
        """Append a record; it is on the disk when this returns, or the file is as it was.

        Raises ``GEHRuntimeError`` if it cannot be written.
        """
        text = json.dumps(record).encode() + b"\n"
        try:
            with open(self.path, "a+b", buffering=0) as lines:
                size = _end_of_records(lines)
                try:
                    _write_all(lines, text)
                    os.fsync(lines.fileno())
                except BaseException:
                    lines.truncate(size)
                    raise
        except OSError as error:
            raise explain_os_error(self.path, error) from error


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
    recorded = {_key(record["task"]) for record in store if isinstance(record.get("task"), list)}
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


def _parse(line: bytes) -> Record | None:
    """Return the record of a line, None if it holds none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _end_of_records(lines: IO[bytes]) -> int:
    """Return the size of a file after its last line was completed, or removed if it was cut off."""
    size = lines.seek(0, os.SEEK_END)
    lines.seek(max(0, size - 1))
    if not size or lines.read(1) == b"\n":
        return size
    lines.seek(0)
    last = lines.read().rpartition(b"\n")[2]
    if _parse(last) is None:
        lines.truncate(size - len(last))
    else:
        _write_all(lines, b"\n")
    return lines.seek(0, os.SEEK_END)


def _write_all(lines: IO[bytes], text: bytes) -> None:
    """Write all bytes of ``text``: a call may write a part of them where the disk is nearly full."""
    while text:
        text = text[lines.write(text) :]


def _key(task: Iterable[Any]) -> str:
    """Return a task as JSON: tuples come back from a file as lists, so tasks are compared in this form."""
    return json.dumps(list(task))
