"""Results that are kept as they come, so that a long study can be interrupted and taken up again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class Store:
    """Records in a file, one line of JSON each, found by their ``task``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def __iter__(self) -> Iterator[Record]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:  # cut off when the study was interrupted
                continue

    def add(self, record: Record) -> None:
        """Keep one more record."""
        with open(self.path, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(record) + "\n")
            lines.flush()
            os.fsync(lines.fileno())


def complete(
    store: Store, tasks: Iterable[Any], work: Callable[[Any], Record], workers: int
) -> Iterator[tuple[int, int]]:
    """Do the tasks that ``store`` has no record of, and yield how many are done, and how many there are.

    A task is a tuple of plain values. Each worker is a process with one thread: small networks gain nothing from more.
    """
    wanted = [tuple(task) for task in tasks]
    known = {_key(record["task"]) for record in store}
    left = [task for task in wanted if _key(task) not in known]
    done = len(wanted) - len(left)
    yield done, len(wanted)
    if workers == 1:
        for task in left:
            store.add({"task": list(task), **work(task)})
            done += 1
            yield done, len(wanted)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        waiting = {pool.submit(work, task): task for task in left}
        try:
            for future in as_completed(waiting):
                store.add({"task": list(waiting[future]), **future.result()})
                done += 1
                yield done, len(wanted)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _key(task: Iterable[Any]) -> Hashable:
    return json.dumps(list(task))


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
