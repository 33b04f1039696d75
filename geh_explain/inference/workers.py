"""Work that is spread over processes or machines by joblib, and survives those that fail or die."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")

#: How often work is tried before it is given up.
_TRIES = 2
#: One piece of work at a time in each process: random numbers, and the number of threads, are the process's.
_ALONE = Lock()


@dataclass(frozen=True)
class Failure:
    """Why a piece of work could not be done."""

    reason: str


def spread(work: Callable[[T], R], tasks: Sequence[T], workers: int | None = None) -> Iterator[tuple[T, R | Failure]]:
    """Do the tasks, one thread each, and yield each with what came of it, in the order in which they end.

    joblib does it, with ``workers`` processes, or as ``joblib.parallel_config`` says: its backends "dask" and "ray"
    use a cluster. Work that raises is tried once more. Where a process dies, those that worked beside it are done
    again, each alone, so that only what kills its process is given up.
    """
    from joblib import effective_n_jobs

    left, doubtful = dict(enumerate(tasks)), list[int]()
    while left:
        try:
            for number, outcome in _results(work, left, workers):
                yield left.pop(number), outcome
        except Exception as error:
            if not _is_death(error):
                raise
            doubtful += list(left)[: effective_n_jobs(workers)]
            for number in doubtful:
                left.pop(number, None)
    for number in doubtful:
        try:
            outcome = next(iter(_results(work, {number: tasks[number]}, max(2, effective_n_jobs(workers)))))[1]
        except Exception as error:
            if not _is_death(error):
                raise
            outcome = Failure("its process died, twice: killed, out of memory, or crashed")
        yield tasks[number], outcome


def _results(work: Callable[[T], R], tasks: dict[int, T], workers: int | None) -> Iterator[tuple[int, R | Failure]]:
    from joblib import Parallel, delayed, effective_n_jobs

    calls = [delayed(_attempt)(work, number, task) for number, task in tasks.items()]
    try:
        parallel = Parallel(workers, return_as="generator_unordered", batch_size=1)
    except ValueError:  # a backend that hands over everything at the end
        several = 4 * effective_n_jobs(workers)
        for start in range(0, len(calls), several):
            yield from Parallel(workers, batch_size=1)(calls[start : start + several])
        return
    yield from parallel(calls)


def _attempt(work: Callable[[T], R], number: int, task: T) -> tuple[int, R | Failure]:
    reason = ""
    with _ALONE, one_thread():
        for _ in range(_TRIES):
            try:
                return number, work(task)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
    return number, Failure(reason)


def _is_death(error: Exception) -> bool:
    """Tell whether an error says that a process died; Dask has a class of its own for it."""
    return isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker"


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute as workers do: sums by several threads differ in their last digits, and trained networks in the first."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
