"""Parallel tasks: failing tasks are repeated, tasks that kill their process are reported, and all others are kept."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from geh_explain.errors import GEHRuntimeError
from geh_explain.inference.dask_tasks import Failure
from geh_explain.inference.jsonl import Store, complete
from geh_explain.inference.workers import run_parallel

# joblib warns when a process dies.
pytestmark = pytest.mark.filterwarnings("ignore:A worker stopped while some jobs were given")


def double(task):
    return 2 * task


def threads(task):
    return torch.get_num_threads()


class Stumbling:
    """Fails the first time for every task, and always for some; counts in files, which processes share."""

    def __init__(self, folder, always=()):
        self.folder, self.always = Path(folder), always

    def __call__(self, task):
        mark = self.folder / f"{task}.{time.time_ns()}"
        mark.touch()
        if task in self.always or len(list(self.folder.glob(f"{task}.*"))) == 1:
            raise ArithmeticError(f"cannot do {task}")
        return task


class Deadly:
    """Kills the process on some tasks, and on others the first time."""

    def __init__(self, folder, always=(), once=()):
        self.folder, self.always, self.once = Path(folder), always, once

    def __call__(self, task):
        time.sleep(0.05)
        mark = self.folder / str(task)
        if task in self.always or (task in self.once and not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task


@pytest.mark.parametrize("workers", [1, 2, None])
def test_every_task_is_done_once(workers):
    assert dict(run_parallel(double, range(7), workers)) == {task: 2 * task for task in range(7)}
    assert list(run_parallel(double, [], workers)) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_one_thread_each_and_the_callers_number_comes_back(workers):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert {count for _, count in run_parallel(threads, range(3), workers)} == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_task_is_tried_twice(tmp_path, workers):
    outcomes = dict(run_parallel(Stumbling(tmp_path, always=(3,)), range(5), workers))
    assert [outcomes[task] for task in (0, 1, 2, 4)] == [0, 1, 2, 4]
    assert outcomes[3] == Failure("ArithmeticError: cannot do 3")
    assert all(len(list(tmp_path.glob(f"{task}.*"))) == 2 for task in range(5))


def test_a_process_that_dies_takes_nothing_with_it(tmp_path):
    outcomes = dict(run_parallel(Deadly(tmp_path, always=(2,), once=(5,)), range(9), 2))
    assert {task for task, outcome in outcomes.items() if isinstance(outcome, Failure)} == {2}
    assert "its process died" in outcomes[2].reason
    assert all(outcomes[task] == task for task in range(9) if task != 2)


def record(task):
    if task[0] == 2:
        raise ValueError("two is too many")
    return {"value": task[0]}


def test_a_failing_task_is_an_error_at_the_end_and_all_other_records_are_kept(tmp_path):
    store = Store(tmp_path / "records.jsonl")
    with pytest.raises(GEHRuntimeError, match=r"1 of 4 tasks failed; the first, \(2,\): ValueError: two is too many"):
        list(complete(store, [(1,), (2,), (3,), (4,)], record, 1))
    assert sorted(kept["value"] for kept in store) == [1, 3, 4]


def test_a_record_after_a_torn_one_is_whole(tmp_path):
    store = Store(tmp_path / "records.jsonl")
    store.add({"task": [1]})
    with open(store.path, "a") as lines:
        lines.write('{"task": [2], "val')  # killed while writing
    store.add({"task": [3]})
    assert [kept["task"] for kept in store] == [[1], [3]]


def test_a_task_may_run_tasks_of_its_own():
    def nested(task):
        return sum(outcome for _, outcome in run_parallel(double, range(task), workers=1))

    assert dict(run_parallel(nested, [2, 3], workers=1)) == {2: 2, 3: 6}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_is_forked_while_a_thread_runs_a_task_can_run_tasks():
    inside, done = threading.Event(), threading.Event()

    def waiting(task):
        inside.set()
        done.wait()
        return task

    thread = threading.Thread(target=lambda: list(run_parallel(waiting, [1], workers=1)))
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if dict(run_parallel(double, [1], workers=1)) == {1: 2} else 1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
