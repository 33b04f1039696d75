"""Tasks run in parallel by joblib, in processes or on a cluster, with retries for failures and dead processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from functools import partial
from threading import RLock
from typing import TypeVar

from geh_explain.inference.dask_tasks import Failure, run_on_dask
from geh_explain.run.threads import one_thread

T = TypeVar("T")
R = TypeVar("R")

#: Attempts per task before it is reported as a failure.
_ATTEMPTS = 2
#: Tasks per worker that are handed at once to a joblib backend which cannot stream its results.
_TASKS_PER_WORKER = 4
#: One task at a time in each process: random generators and the number of threads belong to the whole process. A task
#: may run tasks of its own.
_TASK_LOCK = RLock()


def _forget_other_threads() -> None:
    """Replace the lock in a forked process if another thread held it: that thread does not exist there."""
    global _TASK_LOCK
    if _TASK_LOCK.acquire(blocking=False):
        _TASK_LOCK.release()
    else:
        _TASK_LOCK = RLock()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


def run_parallel(
    work: Callable[[T], R], tasks: Sequence[T], workers: int | None = None
) -> Iterator[tuple[T, R | Failure]]:
    """Yield every task with ``work(task)``, or with a :class:`Failure`, in the order in which tasks end.

    A task that raises is tried once more. If a process dies, the tasks that were running are repeated one by one, so
    that only a task which kills its own process becomes a failure. Each task runs with one torch thread.

    Parameters
    ----------
    work
        Function of one task. It is pickled where tasks run in other processes.
    tasks
        Arguments of ``work``.
    workers
        Number of processes, -1 for all processors. None follows ``joblib.parallel_config``, whose backends "dask" and
        "ray" use a cluster.

    Examples
    --------
    >>> sorted(run_parallel(abs, [-1, 2], workers=1))
    [(-1, 1), (2, 2)]
    """
    from joblib import effective_n_jobs

    remaining = dict(enumerate(tasks))
    suspects: list[int] = []
    while remaining:
        try:
            for number, outcome in _run_all(work, dict(remaining), workers):
                yield remaining.pop(number), outcome
        except Exception as error:
            if not _is_process_death(error):
                raise
            # Tasks are started in order, so the first ones without a result were running when the process died.
            running = list(remaining)[: effective_n_jobs(workers)]
            suspects += running
            for number in running:
                del remaining[number]
    for number in suspects:
        yield tasks[number], _run_alone(work, tasks[number], max(2, effective_n_jobs(workers)))


def _run_alone(work: Callable[[T], R], task: T, workers: int) -> R | Failure:
    """Return the outcome of a task in whose company a process died; it may not have been running at the time.

    There are at least two workers, as joblib runs a single one inside this process, which must survive.
    """
    for _ in range(_ATTEMPTS):
        try:
            return next(iter(_run_all(work, {0: task}, workers)))[1]
        except Exception as error:
            if not _is_process_death(error):
                raise
    return Failure("its process died, twice: killed, out of memory, or crashed")


def _run_all(work: Callable[[T], R], tasks: dict[int, T], workers: int | None) -> Iterator[tuple[int, R | Failure]]:
    """Yield the number and outcome of each task as it ends; raises if a process dies."""
    from joblib import Parallel, delayed, effective_n_jobs
    from joblib.parallel import get_active_backend

    client = getattr(get_active_backend()[0], "client", None)
    if client is not None:
        yield from run_on_dask(client, partial(_attempt, work), tasks)
        return
    calls = [delayed(_attempt)(work, number, task) for number, task in tasks.items()]
    try:
        parallel = Parallel(workers, return_as="generator_unordered", batch_size=1)
    except ValueError:
        # This backend returns all results at the end: small portions let the caller save some of them earlier.
        portion = _TASKS_PER_WORKER * effective_n_jobs(workers)
        for start in range(0, len(calls), portion):
            yield from Parallel(workers, batch_size=1)(calls[start : start + portion])
        return
    yield from parallel(calls)


def _attempt(work: Callable[[T], R], number: int, task: T) -> tuple[int, R | Failure]:
    """Run one task inside a worker, up to two times; returns its number with the result or the last error."""
    reason = ""
    with _TASK_LOCK, one_thread():
        for _ in range(_ATTEMPTS):
            try:
                return number, work(task)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
    return number, Failure(reason)


def _is_process_death(error: Exception) -> bool:
    """Return whether an error means that a worker process died."""
    return isinstance(error, BrokenExecutor)
