"""Numbered tasks that are run in parallel and kept in a folder, so that the same call resumes after an interruption."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from tqdm.auto import tqdm

from geh_explain._validation import check_folder
from geh_explain.errors import GEHValueError
from geh_explain.inference.jsonl import Record, Store
from geh_explain.inference.workers import Failure, run_parallel


class Checkpoint:
    """Records of numbered tasks, in memory and, if a folder is given, in a file there.

    Parameters
    ----------
    folder
        The folder; None to keep records in memory only.
    name
        Name of the file in the folder. Its first record is the fingerprint.
    fingerprint
        What identifies the test. A folder with another fingerprint is refused.

    Attributes
    ----------
    records : dict
        Records by number: those of the file, and those that were added.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Checkpoint(folder, "squares", {"power": "2"}).add({"number": 3, "square": 9})
    ...     print(Checkpoint(folder, "squares", {"power": "2"}).records)
    {3: {'number': 3, 'square': 9}}
    """

    def __init__(self, folder: str | os.PathLike[str] | None, name: str, fingerprint: Mapping[str, str]) -> None:
        self._store = None if folder is None else _open_store(folder, name, dict(fingerprint))
        self.records: dict[int, Record] = {}
        if self._store is not None:
            self.records = {record["number"]: record for record in self._store if "number" in record}

    def add(self, record: Record) -> None:
        """Keep a record, which has its ``"number"``; it is on the disk when this returns."""
        self.records[record["number"]] = record
        if self._store is not None:
            self._store.add(record)

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


def _open_store(path: str | os.PathLike[str], name: str, fingerprint: dict[str, str]) -> Store:
    """Return the store of a folder, which is new or belongs to the same test."""
    folder = check_folder("checkpoint", path)
    store = Store(folder / f"{name}.jsonl")
    stored = next((record["test"] for record in store if "test" in record), None)
    if stored is None:
        store.add({"test": fingerprint})
    elif stored != fingerprint:
        differences = ", ".join(
            f"{key} ({stored.get(key)} there, {value} here)"
            for key, value in fingerprint.items()
            if stored.get(key) != value
        )
        raise GEHValueError(
            f"checkpoint={str(folder)!r} belongs to another test: {differences}; give another folder, or remove this "
            "one."
        )
    return store
