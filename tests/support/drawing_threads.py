"""Threads that draw random numbers from the global generators while another one explains."""

import random
import threading
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from interrupted_runs import network, rows
from torch.utils.data import TensorDataset

import geh_explain as geh
from geh_explain.posterior import Ensemble, MCDropout, PointEstimate, Stochastic, WeightSamples


@contextmanager
def repeating(step):
    """Call a function again and again in another thread."""
    stop = threading.Event()

    def repeat():
        while not stop.is_set():
            step()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class Augmented(TensorDataset):
    """A dataset with augmentation that draws from all global generators."""

    def __getitem__(self, index):
        return super().__getitem__(index)[0] + 0 * (torch.rand(()) + np.random.rand() + random.random())


def drawing(x):
    """A function that draws from all global generators, and does not use the numbers."""
    return x.prod(1) + 0 * (torch.rand(()) + np.random.rand() + random.random())


def noisy(x):
    """A function with one random weight."""
    return x.prod(1) * torch.normal(2.0, 0.1, ())


def _explanation(model, posterior):
    explainer, points = geh.GEHExplainer(model, posterior=posterior), rows(60)
    return lambda: explainer.explain(points, groups=2, draws=3, progress=False)


def scaled_weights(net):
    return WeightSamples([{name: value * (1 + 0.1 * k) for name, value in net.state_dict().items()} for k in range(3)])


#: Return calls during which no number of another thread may repeat.
EXPLANATIONS = {
    "dropout": lambda: _explanation(network(), MCDropout()),
    "weights": lambda: _explanation(network(), scaled_weights(network())),
    "ensemble": lambda: _explanation(network(), Ensemble([network(), network(1, drop=0)])),
    "point": lambda: _explanation(network(), PointEstimate()),
    "model that draws": lambda: _explanation(drawing, PointEstimate()),
    "stochastic": lambda: _explanation(noisy, Stochastic()),
}


def count_repeated(explain, *, n_calls=1, seconds=0.0, load=0):
    """Explain while another thread draws from all global generators, and ``load`` threads compute.

    Returns how often it drew, and how many numbers were drawn twice, by generator.
    """
    drawn = []
    end = time.monotonic() + seconds
    with ExitStack() as stack:
        stack.enter_context(
            repeating(
                lambda: drawn.append((torch.rand(1, dtype=torch.double).item(), np.random.rand(), random.random()))
            )
        )
        for _ in range(load):
            stack.enter_context(repeating(lambda: sum(range(1000))))
        calls = 0
        while calls < n_calls or time.monotonic() < end:
            explain()
            calls += 1
    numbers = dict(zip(("torch", "numpy", "python"), zip(*drawn, strict=True), strict=True))
    return len(drawn), {name: len(values) - len(set(values)) for name, values in numbers.items()}
