"""Tasks on a Dask cluster: outcomes come one by one, and a scheduler that dies is an error that says how to go on."""

import pytest

import geh_explain as geh
from geh_explain.inference.dask_tasks import Failure, run_on_dask


class FutureOfTest:
    def __init__(self, status, outcome=None):
        self.status, self.outcome = status, outcome

    def result(self, timeout):
        return self.outcome

    def exception(self):
        return self.outcome


class ClientOfTest:
    """A client whose tasks end at once, until the scheduler dies before task number ``dies_at``."""

    status = "running"

    def __init__(self, dies_at=None, killing=()):
        self.dies_at, self.killing, self.cancelled = dies_at, killing, []

    def submit(self, function, *args, pure):
        if len(args) == 1:
            return args[0]
        attempt, number, task = args
        if self.dies_at is not None and number >= self.dies_at:
            return FutureOfTest("cancelled")
        if number in self.killing:
            return FutureOfTest("error", type("KilledWorker", (Exception,), {})())
        return FutureOfTest("finished", function(attempt, number, task))

    def cancel(self, futures, asynchronous):
        self.cancelled += futures


def double(number, task):
    return number, 2 * task


def test_outcomes_and_tasks_that_kill_their_workers():
    outcomes = dict(run_on_dask(ClientOfTest(killing=(1,)), double, {0: 5, 1: 6, 2: 7}))
    assert (outcomes[0], outcomes[2]) == (10, 14)
    assert outcomes[1] == Failure("its process died, several times: killed, out of memory, or crashed")


def test_a_dead_scheduler_is_an_error_after_the_outcomes_that_were_there():
    found, client = [], ClientOfTest(dies_at=4)
    outcomes = run_on_dask(client, double, {number: number for number in range(6)})
    words = (
        r"scheduler of the Dask cluster has died .*its tasks are cancelled.*repeat the call: with checkpoint= it res"
    )
    with pytest.raises(geh.GEHError, match=words):
        found.extend(outcome for outcome in outcomes)
    assert len(found) <= 4

    class Unreachable(ClientOfTest):
        def submit(self, *args, **options):
            raise OSError("no route to the scheduler")

    with pytest.raises(geh.GEHError, match=r"cannot be reached \(no route to the scheduler\)"):
        list(run_on_dask(Unreachable(), double, {0: 1}))


def test_other_errors_are_passed_on_and_open_tasks_are_cancelled():
    client = ClientOfTest()
    client.submit = lambda function, *args, **options: FutureOfTest("error", ArithmeticError("a bug"))
    with pytest.raises(ArithmeticError, match="a bug"):
        list(run_on_dask(client, double, {0: 1}))
    assert len(client.cancelled) == 1
