"""Twenty kills at random moments lose no draw, and the result is that of a run without any."""

import numpy as np
import pytest
import torch
from interrupted_runs import assert_identical, killed, network, rows

import geh_explain as geh


def draw_files(folder):
    return {path.name: path.read_bytes() for path in folder.glob("draw_*.npz")}


@pytest.mark.timeout(1800)
def test_twenty_kills_at_random_moments_lose_nothing(tmp_path):
    folder, saved, size = tmp_path / "run", tmp_path / "result.npz", {"draws": 400, "batch_size": 200}
    folder.mkdir()
    chance, counts = np.random.default_rng(0), [0]
    for _ in range(20):
        before = draw_files(folder)
        # At most 20 * 17 draws and those of the short waits: the run of 400 draws is never finished before a kill.
        assert not killed(folder, saved, chance.integers(0, 17), wait=chance.uniform(0, 0.02), **size)
        after = draw_files(folder)
        assert before.items() <= after.items()
        assert sorted(after) == [f"draw_{number:06d}.npz" for number in range(len(after))]
        counts.append(len(after))
    assert len(set(counts)) > 10, "the kills came at different stages of the work"
    assert killed(folder, saved, after=10**6, **size)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        options = {**size, "groups": "auto", "progress": False}
        assert_identical(geh.Interactions.load(saved), geh.GEHExplainer(network()).explain(rows(4000), **options))
    finally:
        torch.set_num_threads(threads)
