"""Tasks on a Dask cluster: each result is handed over when it is there, and a dead scheduler is an error in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from geh_explain.errors import GEHRuntimeError

T = TypeVar("T")
R = TypeVar("R")

#: Seconds between two looks at the state of the cluster while no task ends.
_POLL_SECONDS = 1.0
#: Seconds that a finished result may take to arrive.
_RESULT_SECONDS = 60.0


@dataclass(frozen=True)
class Failure:
    """The outcome of a task that could not be done, with the reason in words."""

    reason: str


def run_on_dask(
    client: Any, attempt: Callable[[int, T], tuple[int, R | Failure]], tasks: Mapping[int, T]
) -> Iterator[tuple[int, R | Failure]]:
    """Yield the number and outcome of each task, in the order in which they end.

    Parameters
    ----------
    client
        The ``distributed.Client`` of the cluster.
    attempt
        Function of a task's number and the task, which returns the number and the outcome.
    tasks
        Tasks by number.

    Raises
    ------
    GEHRuntimeError
        If the scheduler cannot be reached any more. Outcomes of finished tasks were yielded before.
    """
    # The function may hold all data: it is sent once, as the result of a task that Dask repeats if its worker dies.
    try:
        shared = client.submit(_same, attempt, pure=False)
        futures = {client.submit(_call, shared, number, task, pure=False): number for number, task in tasks.items()}
    except Exception as error:
        raise _unreachable(client, str(error)) from error
    waiting = set(futures)
    try:
        while waiting:
            done = {future for future in waiting if future.status != "pending"}
            for future in done:
                yield _outcome(client, future, futures[future])
            waiting -= done
            if client.status not in ("running", "connecting", "newly-created"):
                raise _unreachable(client, f"its client is {client.status}")
            if waiting and not done:
                _wait_for_any(waiting)
    finally:
        # Tasks that are not needed any more, after an interruption; there may be no scheduler to be told.
        if waiting and client.status == "running":
            with suppress(Exception):
                client.cancel(list(waiting), asynchronous=False)


def _outcome(client: Any, future: Any, number: int) -> tuple[int, Any]:
    """Return the number and outcome of a task that has ended."""
    if future.status == "finished":
        try:
            outcome: tuple[int, Any] = future.result(timeout=_RESULT_SECONDS)
            return outcome
        except Exception as error:  # the result was on its way when the scheduler died
            raise _unreachable(client, f"{type(error).__name__}: {error}") from error
    if future.status == "error":
        reason: Exception = future.exception()
        if type(reason).__name__ == "KilledWorker":
            return number, Failure("its process died, several times: killed, out of memory, or crashed")
        raise reason
    raise _unreachable(client, f"its tasks are {future.status}")


def _wait_for_any(futures: set[Any]) -> None:
    """Wait until one of the futures has ended, or for a moment."""
    import distributed

    wait: Any = distributed.wait  # it has no annotations
    # Errors of the cluster show in the state of client and futures.
    with suppress(Exception):
        wait(list(futures), timeout=_POLL_SECONDS, return_when="FIRST_COMPLETED")


def _unreachable(client: Any, reason: str) -> GEHRuntimeError:
    """Return the error for a cluster that does not answer any more."""
    return GEHRuntimeError(
        f"the scheduler of the Dask cluster has died or cannot be reached ({reason}); start a cluster again and repeat "
        "the call: with checkpoint= it resumes after the tasks that were finished."
    )


def _same(value: T) -> T:
    return value


def _call(attempt: Callable[[int, T], tuple[int, R]], number: int, task: T) -> tuple[int, R]:
    return attempt(number, task)
