"""An interrupt by Ctrl-C returns the finished draws, never splits a step, and leaves nothing behind."""

import os
import random
import signal
import threading
import time
from contextlib import contextmanager

import interrupt_campaign as campaign
import numpy as np
import pytest
from interrupted_runs import network, rows
from torch import nn

import geh_explain as geh
from geh_explain._process import SafeContext, defer_interrupt
from geh_explain.model.preserve import preserved


class Stopping(nn.Module):
    """Behaves as if the user pressed Ctrl-C after some calls."""

    def __init__(self, net, calls):
        super().__init__()
        self.net, self.calls = net, calls

    def forward(self, x):
        if len(x) > 8:  # not in the first looks
            self.calls -= 1
            if self.calls == 0:
                raise KeyboardInterrupt
        return self.net(x)


def test_what_is_finished_at_ctrl_c_is_a_result(tmp_path):
    options = {"draws": 30, "groups": 2, "batch_size": 100, "progress": False}
    complete = geh.GEHExplainer(Stopping(network(), -1)).explain(rows(), **options)
    stopping = Stopping(network(), 30)
    with pytest.warns(geh.GEHWarning, match=r"the \d+ of 30 draws that were finished. explain\(checkpoint=...\) would"):
        part = geh.GEHExplainer(stopping).explain(rows(), **options)
    assert 2 < part.geh.n_draws < 30
    np.testing.assert_array_equal(part.geh.draws, complete.geh.draws[: part.geh.n_draws])
    assert part.settings["draws"] == part.geh.n_draws
    assert stopping.net.training
    assert geh.Interactions.load(part.save(tmp_path / "part.npz")).table().equals(part.table())


def test_ctrl_c_before_anything_is_finished_is_ctrl_c():
    with pytest.raises(KeyboardInterrupt):
        geh.GEHExplainer(Stopping(network(), 1)).explain(rows(), draws=9, groups=2, batch_size=100, progress=False)


@pytest.fixture
def handler():
    """Set the handler of Ctrl-C, and restore that of the test run."""
    before = signal.getsignal(signal.SIGINT)
    yield lambda value: signal.signal(signal.SIGINT, value)
    signal.signal(signal.SIGINT, before)


def interrupted_step():
    done = []
    with defer_interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("the rest of the step")
    return done


def test_ctrl_c_waits_until_a_step_is_complete(handler):
    handler(signal.default_int_handler)
    done = []

    def step():
        with defer_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("the rest of the step")

    with pytest.raises(KeyboardInterrupt):
        step()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_that_ignores_ctrl_c_goes_on(handler):
    handler(signal.SIG_IGN)
    assert interrupted_step() == ["the rest of the step"]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_handler_of_the_users_own_is_called_after_the_step(handler):
    calls = []
    handler(lambda number, frame: calls.append(number))
    assert interrupted_step() == ["the rest of the step"]
    assert calls == [signal.SIGINT]


# Contexts


@contextmanager
def noted(log, *, on_entry=0, on_exit=0):
    """A context that is interrupted while it is entered or left."""
    for _ in range(on_entry):
        signal.raise_signal(signal.SIGINT)
    log.append("entered")
    try:
        yield "value"
    finally:
        for _ in range(on_exit):
            signal.raise_signal(signal.SIGINT)
        log.append("left")


def test_a_context_is_left_again_if_ctrl_c_comes_while_it_is_entered(handler):
    handler(signal.default_int_handler)
    log = []
    with pytest.raises(KeyboardInterrupt), SafeContext(noted(log, on_entry=2)):
        log.append("body")
    assert log == ["entered", "left"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_does_not_cut_the_exit_of_a_context(handler):
    handler(signal.default_int_handler)
    log = []
    with pytest.raises(KeyboardInterrupt), SafeContext(noted(log)), SafeContext(noted(log, on_exit=2)):
        raise KeyboardInterrupt
    assert log == ["entered", "entered", "left", "left"]


def test_a_handler_that_does_not_raise_is_called_and_the_body_runs(handler):
    calls, log = [], []
    own = lambda number, frame: calls.append(number)  # noqa: E731
    handler(own)
    with SafeContext(noted(log, on_entry=1, on_exit=1)) as value:
        assert value == "value"
        assert len(calls) == 1
        signal.raise_signal(signal.SIGINT)
        assert len(calls) == 2
    assert len(calls) == 3
    assert signal.getsignal(signal.SIGINT) is own


def test_the_body_of_a_context_is_interrupted_at_once(handler):
    handler(signal.default_int_handler)
    log = []

    def enter():
        with SafeContext(noted(log)):
            signal.raise_signal(signal.SIGINT)
            log.append("body")

    with pytest.raises(KeyboardInterrupt):
        enter()
    assert log == ["entered", "left"]


def test_a_handler_that_is_set_inside_of_a_context_stays(handler):
    handler(signal.default_int_handler)
    with SafeContext(noted([])):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_enter_and_leave_as_usual():
    log = []

    def enter():
        with SafeContext(noted(log)), defer_interrupt():
            log.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert log == ["entered", signal.getsignal(signal.SIGINT), "left"]


@contextmanager
def pressed_after(seconds):
    """Press Ctrl-C after some time, and fail if the body takes more than a second longer."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    timer.start()
    try:
        yield
    finally:
        timer.join()
    assert time.monotonic() < start + seconds + 1


def test_a_forward_pass_that_takes_long_is_interrupted_at_once(handler):
    handler(signal.default_int_handler)

    def slow(x):
        time.sleep(5)
        return x.prod(1)

    with pressed_after(0.2), pytest.raises(KeyboardInterrupt):
        geh.GEHExplainer(slow, posterior=geh.posterior.PointEstimate()).explain(rows(9), groups=1, progress=False)


def test_ctrl_c_ends_the_wait_for_another_thread(handler):
    handler(signal.default_int_handler)
    inside, done = threading.Event(), threading.Event()

    def hold():
        with preserved(network()):
            inside.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    try:
        with pressed_after(0.2), pytest.raises(KeyboardInterrupt):
            geh.GEHExplainer(network()).explain(rows(9), groups=1, progress=False)
    finally:
        done.set()
        thread.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# Any moment of an explanation; tests/long has many more


# Python ignores KeyboardInterrupt where it closes a generator that nobody refers to any more.
unraisable = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@unraisable
def test_signals_at_random_moments_leave_nothing_behind():
    chance = random.Random(0)
    for run in campaign.runs():
        campaign.interrupt_at_random(run, [chance.uniform(0, 0.1), chance.uniform(0, 0.02)])
        assert run.calls


@unraisable
def test_signals_at_calls_that_enter_and_leave_contexts_leave_nothing_behind():
    chance = random.Random(0)
    for run in chance.sample(campaign.runs(), 3):
        passed = campaign.places(run)
        entering = [place for place in sorted(passed) if place[0].endswith(("interrupts.py", "contextlib.py"))]
        for place in chance.sample(entering, 2):
            campaign.interrupt_at(run, place, chance.randint(1, passed[place]))
        assert run.calls
