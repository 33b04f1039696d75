"""Runs that are interrupted or killed go on where they were, to the last bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh
from geh_explain._hashing import digest

ROOT = Path(__file__).parents[2]


def network(seed=0, drop=0.2):
    torch.manual_seed(seed)
    layers = (nn.Linear(5, 16), nn.Tanh(), nn.Dropout(drop), nn.Linear(16, 8), nn.ReLU(), nn.Dropout(drop))
    return nn.Sequential(*layers, nn.Linear(8, 1))


def rows(count=200, seed=1):
    return torch.randn(count, 5, generator=torch.Generator().manual_seed(seed))


class OneAfterTheOther:
    """A posterior of a user's own, whose draws come from one generator as they are entered."""

    def draws(self, model, n, seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(n):
            yield Shaken(model[0].weight, generator)


class Shaken:
    def __init__(self, weight, generator):
        self.weight, self.generator = weight, generator

    def __enter__(self):
        self.before = self.weight.data
        self.weight.data = self.before + 0.1 * torch.randn(self.before.shape, generator=self.generator)

    def __exit__(self, *error):
        self.weight.data = self.before


def ensemble():
    return geh.posterior.Ensemble([network(seed, drop=0) for seed in range(6)])


CASES = {
    "several draws at once": ({}, {}, 200),
    "one draw at a time": ({}, {"batch_size": 60}, 200),
    "draws that depend on those before": ({"posterior": OneAfterTheOther()}, {}, 200),
    "an ensemble": ({"posterior": ensemble()}, {}, 200),
    "Stein's noise": ({"engine": "stein"}, {"draws": 4}, 50),
    "differences": ({"engine": "difference"}, {}, 50),
    "a hidden layer": ({"layer": "1", "units": geh.units.Subset(range(6))}, {"scale": "std"}, 200),
    "moments only": ({}, {"groups": 3, "memory": 2e-5}, 30),
    "groups by hand": ({}, {"groups": np.arange(200) % 4}, 200),
}


def same(a, b):
    assert (a.names, a.group_names) == (b.names, b.group_names)
    np.testing.assert_array_equal(a.labels, b.labels)
    for measure in ("geh", "aeh", "eah"):
        np.testing.assert_array_equal(a.scores(measure).mean, b.scores(measure).mean)
        np.testing.assert_array_equal(a.scores(measure).std, b.scores(measure).std)
    np.testing.assert_array_equal(a.main.mean, b.main.mean)
    assert a.geh.n_draws == b.geh.n_draws


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
@pytest.mark.parametrize("case", CASES)
def test_a_run_taken_up_again_is_the_same_to_the_last_bit(case, tmp_path):
    made, asked, count = CASES[case]
    asked = {"draws": 30, "progress": False, **asked}
    complete = geh.GEHExplainer(network(), **made).explain(rows(count), **asked)
    with_folder = geh.GEHExplainer(network(), **made).explain(rows(count), **asked, checkpoint=tmp_path)
    same(complete, with_folder)
    kept = sorted(tmp_path.glob("draw_*.npz"))
    assert len(kept) >= 2
    for path in kept[len(kept) // 2 :]:
        path.unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("draw_*.npz")}
    same(complete, geh.GEHExplainer(network(), **made).explain(rows(count), **asked, checkpoint=tmp_path))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert sorted(tmp_path.glob("draw_*.npz")) == kept


def test_what_is_there_is_not_computed_again(tmp_path, monkeypatch):
    explainer = geh.GEHExplainer(network())
    first = explainer.explain(rows(), draws=30, groups=2, progress=False, checkpoint=tmp_path)
    monkeypatch.setattr("geh_explain.run.loop._DrawLoop._sums", lambda *_: pytest.fail("computed again"))
    same(first, explainer.explain(rows(), draws=30, groups=2, progress=False, checkpoint=tmp_path))
    fewer = explainer.explain(rows(), draws=7, groups=2, progress=False, checkpoint=tmp_path)
    np.testing.assert_array_equal(fewer.geh.draws, first.geh.draws[:7])


def test_more_draws_go_on_from_those_that_are_there(tmp_path):
    explainer = geh.GEHExplainer(network())
    few = explainer.explain(rows(), draws=10, groups=2, progress=False, checkpoint=tmp_path)
    more = explainer.explain(rows(), draws=25, groups=2, progress=False, checkpoint=tmp_path)
    np.testing.assert_array_equal(more.geh.draws[:10], few.geh.draws)
    alone = explainer.explain(rows(), draws=25, groups=2, progress=False)
    np.testing.assert_allclose(more.geh.draws, alone.geh.draws, rtol=1e-5, atol=1e-7)


# Another run


@pytest.mark.parametrize(
    ("made", "asked", "data", "named"),
    [
        ({}, {"seed": 1}, {}, r"seed \(0 there, 1 here\)"),
        ({}, {"groups": 3}, {}, r"groups \(2 there, 3 here\)"),
        ({}, {"scale": "std"}, {}, r"scale \(None there, std here\)"),
        ({}, {"target": 0}, {}, r"target \(None there, 0 here\)"),
        ({}, {"memory": 3.5}, {}, r"memory \(None there, 3.5 here\)"),
        ({}, {"batch_size": 7}, {}, r"batch_size \(None there, 7 here\)"),
        ({}, {}, {"seed": 2}, r"another inputs \("),
        ({}, {}, {"count": 199}, r"another inputs \("),
        ({"output": "probability"}, {}, {}, r"output \(raw there, probability here\)"),
        ({"smooth": 5.0}, {}, {}, r"smooth \(auto there, 5.0 here\)"),
        ({"engine": "exact"}, {}, {}, r"engine \(Structured\(\) there, Exact\(\) here\)"),
        ({"units": geh.units.Subset([0, 1, 2])}, {}, {}, r"another units \("),
        ({"posterior": OneAfterTheOther()}, {}, {}, r"another posterior \("),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_folder_of_another_run_is_refused_and_the_difference_named(made, asked, data, named, tmp_path):
    options = {"draws": 3, "groups": 2, "progress": False, "checkpoint": tmp_path}
    geh.GEHExplainer(network()).explain(rows(), **options)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(geh.GEHError, match=f"belongs to another run.*{named}"):
        geh.GEHExplainer(network(), **made).explain(rows(**data), **{**options, **asked})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_another_model_and_another_version_are_refused(tmp_path, monkeypatch):
    options = {"draws": 3, "groups": 2, "progress": False, "checkpoint": tmp_path}
    net = network()
    geh.GEHExplainer(net).explain(rows(), **options)
    with torch.no_grad():
        net[3].bias[2] += 1e-6
    with pytest.raises(geh.GEHError, match="another model"):
        geh.GEHExplainer(net).explain(rows(), **options)
    with pytest.raises(geh.GEHError, match="another model"):
        geh.GEHExplainer(network(drop=0.3)).explain(rows(), **options)
    monkeypatch.setattr("geh_explain.run.identity.__version__", "0.0.1")
    with pytest.raises(geh.GEHError, match=r"geh_explain \(.* there, 0.0.1 here\)"):
        geh.GEHExplainer(network()).explain(rows(), **options)


def test_a_folder_that_is_none_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    explainer = geh.GEHExplainer(network())
    with pytest.raises(geh.GEHError, match="is a file; give a folder"):
        explainer.explain(rows(), checkpoint=tmp_path / "file", progress=False)
    with pytest.raises(geh.GEHError, match="checkpoint=7 is no path"):
        explainer.explain(rows(), checkpoint=7, progress=False)
    for content in ("{", "[1]", "[" * 100_000):
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(geh.GEHError, match=r"its run\.json cannot be read"):
            explainer.explain(rows(), checkpoint=tmp_path, progress=False)


@pytest.mark.parametrize("damage", ["cut", "flip", "other"])
def test_a_damaged_draw_is_computed_again(damage, tmp_path):
    options = {"draws": 6, "groups": 2, "batch_size": 100, "progress": False, "checkpoint": tmp_path}
    first = geh.GEHExplainer(network()).explain(rows(), **options)
    path = tmp_path / "draw_000003.npz"
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        middle = len(content) // 3
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :])
    else:
        np.savez(path, signed=np.zeros((1, 2, 3)), absolute=np.zeros((1, 3)), skipped=0)
    with pytest.warns(geh.GEHWarning, match="draw_000003.npz is damaged"):
        same(first, geh.GEHExplainer(network()).explain(rows(), **options))
    same(first, geh.GEHExplainer(network()).explain(rows(), **options))


def test_a_digest_tells_contents_apart():
    net = network()
    assert digest(net) == digest(network()) != digest(network(seed=1))
    assert digest(network(drop=0.1)) != digest(network(drop=0.2))
    assert digest(ensemble()) == digest(ensemble())
    assert digest(lambda x: x) != digest(len)
    loop: list[object] = [1]
    loop.append(loop)
    assert digest(loop) == digest(loop)
    assert digest({"a": np.arange(3)}) != digest({"a": np.arange(3.0)})


# Ctrl-C


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


def test_ctrl_c_waits_until_a_step_is_whole():
    from geh_explain.run.interrupt import defer_interrupt

    done = []

    def step():
        with defer_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("the rest of the step")

    with pytest.raises(KeyboardInterrupt):
        step()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# Kills

RUN = """
import sys, torch
sys.path[:0] = {paths!r}
from test_checkpoint import network, rows
import geh_explain as geh
torch.set_num_threads(1)
print("started", flush=True)
result = geh.GEHExplainer(network()).explain(
    rows(4000), draws=40, groups="auto", batch_size=500, progress=False, checkpoint={folder!r}
)
result.save({saved!r})
"""


def killed(folder, saved, after):
    """Run in a process of its own, kill it after some draws, and return whether it was done before."""
    code = RUN.format(paths=[str(ROOT), str(ROOT / "tests/run")], folder=str(folder), saved=str(saved))
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    before = len(list(folder.glob("draw_*.npz")))
    while process.poll() is None:
        if len(list(folder.glob("draw_*.npz"))) >= before + after:
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


def test_a_killed_run_goes_on_and_ends_as_if_nothing_had_happened(tmp_path):
    (tmp_path / "run").mkdir()
    found = kill_until_done(tmp_path, kills=3, seed=0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        options = {"draws": 40, "groups": "auto", "batch_size": 500, "progress": False}
        same(found, geh.GEHExplainer(network()).explain(rows(4000), **options))
    finally:
        torch.set_num_threads(threads)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["seed"] == 0
