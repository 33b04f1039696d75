"""Ctrl-C at any moment of an explanation: at random times, and at every call in the package."""

import os
import signal
import sys
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import torch
from state_comparison import (
    DRAWS,
    Fuse,
    Lived,
    automatic,
    dropout,
    dropout_of_one_module,
    ensemble,
    ensemble_of_others,
    explain_case,
    own,
    point,
    samples_of,
    stochastic,
    untouched,
    weights,
)
from torch import nn

import geh_explain as geh
from geh_explain import posterior as posteriors
from geh_explain.posterior.linear_expansion import linearise


class Attending(nn.Module):
    """Half-precision attention with dropout in train mode only, and an embedding that rescales its own weights."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.3, batch_first=True)
        self.last = nn.Linear(4, 1)
        self.to(torch.bfloat16)

    def forward(self, x):
        hidden = torch.tanh(self.first(x.to(self.first.weight.dtype)))[:, None]
        hidden = nn.functional.dropout(hidden, 0.2) if self.training else hidden
        return self.last(self.attention(hidden, hidden, hidden)[0][:, 0])


class Linearised:
    """The linear expansion of a network at shifted weights, as Laplace draws it."""

    def draws(self, model, n, seed):
        for draw in range(n):
            yield linearise(model, {"first.weight": 0.1 * (1 + draw) * torch.ones_like(model.first.weight)})


def half_precision(fuse):
    return Attending(), posteriors.MCDropout(), ()


def half_precision_weights(fuse):
    model = Attending()
    return model, posteriors.WeightSamples(samples_of(model)), ()


def linearised(fuse):
    model = Lived(fuse)
    model._backward_hooks.clear()  # torch's full backward hooks have no forward-mode derivative
    model.middle._backward_hooks.clear()
    model._backward_pre_hooks.clear()
    return model, Linearised(), ()


def swag(fuse):
    model = Lived(fuse)
    return model, posteriors.SWAG(samples_of(model)), ()


def mean_field(fuse):
    model = Lived(fuse)
    model.middle = geh.bnn.MeanField(model.middle.requires_grad_(True)).double()
    return model, posteriors.MeanField(), ()


CASES = [automatic, dropout, dropout_of_one_module, weights, stochastic, own, point, half_precision]
CASES += [half_precision_weights, linearised, swag, mean_field, ensemble, ensemble_of_others]
#: Each case at the inputs and, where hidden layers are accepted, at one of these.
SETTINGS = [(case, None) for case in CASES]
SETTINGS += [(case, "first") for case in CASES if case not in (ensemble, ensemble_of_others)]


class Run:
    """One explanation of a case, which a signal interrupts."""

    def __init__(self, case, layer):
        torch.manual_seed(0)
        self.model, self.posterior, self.members = case(Fuse())
        self.layer = layer
        self.name = f"{case.__name__} at {layer or 'inputs'}"
        #: How often the user's handler was called, and how often it raised KeyboardInterrupt.
        self.calls = self.raised = 0

    def explain(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            explain_case(self.model, self.posterior, self.layer, draws=DRAWS)

    def handler(self, number, frame):
        self.calls += 1
        # Not in the test itself, nor where pytest reports an exception that a finalizer raised.
        while frame is not None and not frame.f_code.co_filename.endswith("unraisableexception.py"):
            if frame.f_code is Run.explain.__code__:
                self.raised += 1
                raise KeyboardInterrupt
            frame = frame.f_back

    @contextmanager
    def checked(self):
        """Fail if the block, which may be interrupted, changes any state or the handler."""
        before = signal.signal(signal.SIGINT, self.handler)
        try:
            with untouched(self.model, *self.members):
                try:
                    yield
                except KeyboardInterrupt:
                    assert self.raised, "KeyboardInterrupt without the user's handler"
            assert signal.getsignal(signal.SIGINT) == self.handler
        finally:
            signal.signal(signal.SIGINT, before)


def runs():
    """Return a run of each case, at the inputs and at a hidden layer."""
    return [Run(case, layer) for case, layer in SETTINGS]


def seconds(run):
    """Return how long an explanation takes once everything is imported and compiled."""
    run.explain()
    start = time.perf_counter()
    run.explain()
    return time.perf_counter() - start


def interrupt_at_random(run, delays):
    """Explain while a timer sends signals after the given delays in seconds, each from the one before."""
    remaining = list(delays)

    def send(*_):
        remaining.pop(0)
        if remaining:
            signal.setitimer(signal.ITIMER_REAL, max(remaining[0], 1e-6))
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGALRM, send)
    try:
        with run.checked():
            signal.setitimer(signal.ITIMER_REAL, max(remaining[0], 1e-6))
            try:
                run.explain()
            finally:
                while remaining:
                    time.sleep(0.001)
                time.sleep(0.001)  # for the handler of the last signal
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


#: Files in which signals are raised: the package, and what enters and leaves contexts for it.
_TRACED = ("geh_explain", "contextlib.py", "overrides.py", "hooks.py", "forward_ad.py", "grad_mode.py", "signal.py")


def _place(frame, event):
    """Return (file, line, event) where Python looks for signals: a function begins, or one written in C has returned.

    Between other instructions it does not, and in particular not between a context's entry and its body.
    """
    if event not in ("call", "c_return"):
        return None
    file = frame.f_code.co_filename
    return (file, frame.f_lineno, event) if any(part in _TRACED for part in Path(file).parts[-4:]) else None


def places(run):
    """Return how often an explanation passes each place at which a signal may interrupt it."""
    counts = Counter()

    def profile(frame, event, argument):
        if place := _place(frame, event):
            counts[place] += 1

    sys.setprofile(profile)
    try:
        run.explain()
    finally:
        sys.setprofile(None)
    return counts


def interrupt_at(run, place, occurrence):
    """Explain, with a signal when a place is passed for the given time."""
    remaining = occurrence

    def profile(frame, event, argument):
        nonlocal remaining
        if _place(frame, event) == place:
            remaining -= 1
            if remaining == 0:
                signal.raise_signal(signal.SIGINT)

    with run.checked():
        sys.setprofile(profile)
        try:
            run.explain()
        finally:
            sys.setprofile(None)
