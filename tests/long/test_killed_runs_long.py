"""Twenty kills at random moments lose no draw, and the result is that of a run without any."""

import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from interrupted_runs import ROOT, RUN, assert_identical, network, rows

import geh_explain as geh


def kept(folder):
    return {path.name: path.read_bytes() for path in folder.glob("draw_*.npz")}


@pytest.mark.timeout(1800)
def test_twenty_kills_at_random_moments_lose_nothing(tmp_path):
    folder, saved = tmp_path / "run", tmp_path / "result.npz"
    folder.mkdir()
    code = RUN.format(paths=[str(ROOT), str(ROOT / "tests/support")], folder=str(folder), saved=str(saved))
    code = code.replace("draws=40", "draws=400").replace("batch_size=500", "batch_size=200")
    chance, kills, counts = np.random.default_rng(0), 0, [0]
    while not saved.exists():
        process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        before = kept(folder)
        if kills < 20:
            time.sleep(chance.uniform(0.5, 3.0))
            process.kill()
            kills += 1
        process.wait()
        process.stdout.close()
        after = kept(folder)
        assert before.items() <= after.items()
        assert sorted(after) == [f"draw_{number:06d}.npz" for number in range(len(after))]
        counts.append(len(after))
        assert process.returncode in (0, -9)
    assert kills == 20
    assert len(set(counts)) > 10, "the kills came at different stages of the work"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        options = {"draws": 400, "groups": "auto", "batch_size": 200, "progress": False}
        assert_identical(geh.Interactions.load(saved), geh.GEHExplainer(network()).explain(rows(4000), **options))
    finally:
        torch.set_num_threads(threads)
