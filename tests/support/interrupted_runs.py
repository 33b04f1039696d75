"""Runs with checkpoints: a network, its data, a posterior of a user's own, and processes that are killed."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from explaining import random_points
from torch import nn

import geh_explain as geh

ROOT = Path(__file__).parents[2]


def network(seed=0, drop=0.2):
    """Return a network of five inputs with two dropout layers, in single precision."""
    torch.manual_seed(seed)
    layers = (nn.Linear(5, 16), nn.Tanh(), nn.Dropout(drop), nn.Linear(16, 8), nn.ReLU(), nn.Dropout(drop))
    return nn.Sequential(*layers, nn.Linear(8, 1))


def rows(count=200, seed=1):
    """Return points (count, 5) in single precision."""
    return random_points(count, 5, seed=seed, dtype=torch.float)


class OneAfterTheOther:
    """A posterior of a user's own, whose draws come from one generator as they are entered."""

    def draws(self, model, n, seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(n):
            yield Shaken(model[0].weight, generator)


class Shaken:
    """A draw: the weight plus noise from the generator, sampled on entering."""

    def __init__(self, weight, generator):
        self.weight, self.generator = weight, generator

    def __enter__(self):
        self.before = self.weight.data
        self.weight.data = self.before + 0.1 * torch.randn(self.before.shape, generator=self.generator)

    def __exit__(self, *error):
        self.weight.data = self.before


def ensemble():
    return geh.posterior.Ensemble([network(seed, drop=0) for seed in range(6)])


def assert_identical(a, b):
    """Compare names, groups, moments of all measures and errors of points of two results, bit by bit."""
    assert (a.names, a.group_names) == (b.names, b.group_names)
    np.testing.assert_array_equal(a.labels, b.labels)
    for measure in ("geh", "aeh", "eah"):
        np.testing.assert_array_equal(a.scores(measure).mean, b.scores(measure).mean)
        np.testing.assert_array_equal(a.scores(measure).std, b.scores(measure).std)
    np.testing.assert_array_equal(a.main.mean, b.main.mean)
    np.testing.assert_array_equal(a.point_errors, b.point_errors)
    assert a.point_errors is not None
    assert a.geh.n_draws == b.geh.n_draws


RUN = """
import sys, torch
sys.path[:0] = {paths!r}
from interrupted_runs import network, rows
import geh_explain as geh
torch.set_num_threads(1)
print("started", flush=True)
result = geh.GEHExplainer(network()).explain(
    rows(4000), draws={draws}, groups="auto", batch_size={batch_size}, progress=False, checkpoint={folder!r}
)
result.save({saved!r})
"""


def killed(folder, saved, after, *, wait=0.0, draws=40, batch_size=500):
    """Run in a new process, kill it ``wait`` seconds after ``after`` new draws; return whether it finished before."""
    paths = [str(ROOT), str(ROOT / "tests/support")]
    code = RUN.format(paths=paths, folder=str(folder), saved=str(saved), draws=draws, batch_size=batch_size)
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    before = len(list(folder.glob("draw_*.npz")))
    while process.poll() is None:
        if len(list(folder.glob("draw_*.npz"))) >= before + after:
            time.sleep(wait)
            process.kill()
            break
        time.sleep(0.005)
    process.wait()
    process.stdout.close()
    return process.returncode == 0


def kill_until_done(folder, kills, seed):
    """Kill a run several times after a random number of draws, let it end, and return the result; no draw is lost."""
    chance = np.random.default_rng(seed)
    for _ in range(kills):
        known = {path.name: path.read_bytes() for path in folder.glob("draw_*.npz")}
        if killed(folder / "run", folder / "result.npz", after=chance.integers(0, 3)):
            break
        assert all((folder / name).read_bytes() == content for name, content in known.items())
    assert killed(folder / "run", folder / "result.npz", after=10**6)
    return geh.Interactions.load(folder / "result.npz")
