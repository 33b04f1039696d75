"""Numbered tasks that are run in parallel and kept in a folder, so that the same call resumes after an interruption."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from geh_explain._hashing import digest
from geh_explain._validation import check_folder
from geh_explain.errors import GEHTypeError, GEHValueError, warn
from geh_explain.inference.dask_tasks import Failure
from geh_explain.inference.jsonl import Record, Store
from geh_explain.inference.workers import run_parallel
from geh_explain.storage.lock import FileLock


class Checkpoint:
    """Records of numbered tasks, in memory and, if a folder is given, in a file there; a context manager.

    Each record in the file has a stamp, the hash of its contents and of the fingerprint. Records without the right
    stamp, and impossible ones, are not used; a warning counts them, and their tasks are run again. No other process can
    use the file until the context ends.

    Parameters
    ----------
    folder
        The folder; None to keep records in memory only.
    name
        Name of the file in the folder. Its first record is the fingerprint.
    fingerprint
        What identifies the test. A folder with another fingerprint is refused.
    check
        Raises an exception for a record that no task can have.

    Attributes
    ----------
    records : dict
        Records by number: those of the file, and those that were added.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with Checkpoint(folder, "squares", {"power": "2"}) as checkpoint:
    ...     checkpoint.add({"number": 3, "square": 9})
    >>> with Checkpoint(folder, "squares", {"power": "2"}) as checkpoint:
    ...     print(checkpoint.records)
    {3: {'number': 3, 'square': 9}}
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        name: str,
        fingerprint: Mapping[str, str],
        check: Callable[[Record], object] | None = None,
    ) -> None:
        self.records: dict[int, Record] = {}
        self._fingerprint = dict(fingerprint)
        self._check = check
        self._store = None if folder is None else _make_store(folder, name)
        self._lock: FileLock | None = None
        if self._store is not None:
            self._lock = FileLock(self._store.path.with_suffix(".lock"), f"checkpoint={str(folder)!r}")

    def __enter__(self) -> Checkpoint:
        if self._store is None or self._lock is None:
            return self
        self._lock.__enter__()
        try:
            self._read(self._store)
        except BaseException:
            self._lock.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            self._lock.__exit__()

    def _read(self, store: Store) -> None:
        """Read the records of a file that is new, or belongs to the same test."""
        stored = list(store)
        owner = next((record["test"] for record in stored if "test" in record), None)
        if owner is None:
            store.add({"test": self._fingerprint})
        elif owner != self._fingerprint:
            _refuse(store.path.parent, owner, self._fingerprint)
        numbered = [record for record in stored if "number" in record]
        valid = [record for record in numbered if self._is_valid(record)]
        self.records = {record["number"]: _without_stamp(record) for record in valid}
        # A record that was computed again after a warning is not counted again.
        refused = {str(record["number"]) for record in numbered} - {str(number) for number in self.records}
        if refused:
            warn(
                f"checkpoint: {len(refused)} record(s) of {store.path.name} are damaged, or of another test; they are "
                "computed again."
            )

    def _is_valid(self, record: Record) -> bool:
        """Return whether a record has the stamp of this test, and can be the record of a task."""
        content = _without_stamp(record)
        if type(content["number"]) is not int or record.get("stamp") != self._stamp(content):
            return False
        try:
            if self._check is not None:
                self._check(content)
        except Exception:  # a record may lack any entry, or have entries of any type
            return False
        return True

    def _stamp(self, record: Record) -> str:
        """Return the hash of a record as JSON holds it, and of the test."""
        content = json.loads(json.dumps(record))
        return digest(json.dumps([self._fingerprint, content], sort_keys=True))

    def add(self, record: Record) -> None:
        """Keep a record, which has its ``"number"``; it is on the disk when this returns."""
        self.records[record["number"]] = record
        if self._store is None:
            return
        try:
            stamp = self._stamp(record)
        except (TypeError, ValueError) as error:
            raise GEHTypeError(
                f"checkpoint: record {record['number']} cannot be stored ({error}); keep= must return a dict of plain "
                "values: numbers of Python, text, lists and dicts."
            ) from error
        self._store.add({**record, "stamp": stamp})

    def run(
        self,
        work: Callable[[int], Record],
        numbers: Sequence[int],
        *,
        workers: int | None,
        progress: bool,
        label: str,
    ) -> dict[int, str]:
        """Run the tasks that have no record, with a progress bar called ``label``, and keep their records.

        Returns
        -------
        dict
            Reasons of failures, by number. An interruption by the keyboard is passed on, with all finished tasks kept.
        """
        missing = [number for number in numbers if number not in self.records]
        failures: dict[int, str] = {}
        done = len(numbers) - len(missing)
        with tqdm(total=len(numbers), initial=done, desc=label, disable=not progress, leave=False) as bar:
            for number, outcome in run_parallel(work, missing, workers):
                bar.update()
                if isinstance(outcome, Failure):
                    failures[number] = outcome.reason
                else:
                    self.add(outcome)
        return failures


def _without_stamp(record: Record) -> Record:
    return {key: value for key, value in record.items() if key != "stamp"}


def _make_store(folder: str | os.PathLike[str], name: str) -> Store:
    """Return the store of a folder, which is made if it does not exist."""
    return Store(check_folder("checkpoint", folder) / f"{name}.jsonl")


def _refuse(folder: Path, stored: Any, fingerprint: dict[str, str]) -> None:
    """Raise that a folder belongs to another test, and in what it differs."""
    there = stored if isinstance(stored, dict) else {}
    differences = ", ".join(
        f"{key} ({there.get(key)} there, {value} here)" for key, value in fingerprint.items() if there.get(key) != value
    )
    raise GEHValueError(
        f"checkpoint={str(folder)!r} belongs to another test: {differences}; give another folder, or remove this one."
    )
