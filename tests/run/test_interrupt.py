"""An interrupt by Ctrl-C returns the finished draws, and never splits a step."""

import os
import signal

import numpy as np
import pytest
from interrupted_runs import network, rows
from torch import nn

import geh_explain as geh
from geh_explain.run.interrupt import defer_interrupt


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
