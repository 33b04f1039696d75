"""Permutation tests as runs: seeds and workers, failures, checkpoints, interruption, a cluster."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from permutation_cases import ROWS, features, products, quiet, response
from sklearn.linear_model import LinearRegression

import geh_explain as geh
from geh_explain.inference import permutation_test


def noisy(X, y, seed):
    """Depends on its seed, and on the generators of the process."""
    return products(X, y) + np.random.default_rng(seed).random() + torch.rand(()).item() + np.random.random()


def slow(X, y, seed):
    time.sleep(0.2)
    return noisy(X, y, seed)


def failing(X, y):
    if not np.array_equal(y, response()) and y[0] < np.median(response()):
        raise ArithmeticError("no fit")
    return products(X, y)


def test_the_same_null_whatever_the_workers_and_another_for_another_seed():
    one, two = quiet(noisy, workers=1), quiet(noisy, workers=2)
    assert np.array_equal(one.null, two.null)
    assert np.array_equal(one.observed.scores, two.observed.scores)
    assert not np.array_equal(one.null, quiet(noisy, seed=1).null)


def test_more_permutations_begin_with_the_same_ones():
    assert np.array_equal(quiet(noisy, 30).null[:19], quiet(noisy, 19).null)


def test_global_generators_come_back():
    torch.manual_seed(7)
    np.random.seed(7)
    expected = torch.rand(3), np.random.random(3)
    torch.manual_seed(7)
    np.random.seed(7)
    quiet(noisy, 3)
    assert torch.equal(torch.rand(3), expected[0])
    assert np.array_equal(np.random.random(3), expected[1])


def test_another_observed_result_is_not_mixed_with_a_checkpoint(tmp_path):
    quiet(observed=np.array([0.9, 0.8, 0.0]), checkpoint=tmp_path, permutations=2)
    again = quiet(observed=np.array([0.9, 0.8, 0.0]), checkpoint=tmp_path, permutations=4)
    assert np.array_equal(again.null, quiet(permutations=4).null)
    assert quiet(checkpoint=tmp_path, permutations=4).observed.scores.tolist() == [0.9, 0.8, 0.0]
    with pytest.raises(geh.GEHError, match="observed: the checkpoint was made with other scores"):
        quiet(observed=np.array([0.9, 0.7, 0.0]), checkpoint=tmp_path, permutations=4)
    with pytest.raises(geh.GEHError, match="observed: the checkpoint was made with other scores"):
        quiet(observed=np.ones(6), checkpoint=tmp_path, permutations=4)


def test_small_observed_scores_are_compared_too(tmp_path):
    quiet(observed=np.array([9e-12, 8e-12, 0.0]), checkpoint=tmp_path, permutations=2)
    with pytest.raises(geh.GEHError, match="observed: the checkpoint was made with other scores"):
        quiet(observed=np.array([9e-12, 7e-12, 0.0]), checkpoint=tmp_path, permutations=2)


def test_values_to_keep_that_json_cannot_hold_are_an_error_in_words(tmp_path):
    with pytest.raises(geh.GEHError, match=r"record 1 cannot be stored .* keep= must return a dict of plain values"):
        quiet(keep=lambda scores: {"scores": scores}, checkpoint=tmp_path, permutations=2)


def test_a_fit_that_fails_is_reported_by_its_number_and_the_others_are_used():
    with pytest.warns(geh.GEHWarning, match="failed twice and is left out .ArithmeticError: no fit"):
        test = quiet(failing, 12, null="y")
    wanted = {
        number
        for number in range(1, 13)
        if response()[np.random.default_rng([0, number]).permutation(ROWS)][0] < np.median(response())
    }
    assert set(test.failures) == wanted
    assert len(test.null) == 12 - len(wanted)


def test_a_killed_test_resumes(tmp_path):
    """The first run is a process of its own, killed in the middle."""
    script = tmp_path / "run.py"
    root = Path(geh.__file__).parents[1]
    folders = [str(Path(__file__).parent), str(root / "tests" / "support"), str(root)]
    script.write_text(
        f"import sys; sys.path[:0] = {folders!r}\n"
        "from test_permutation_runs import *\n"
        f"permutation_test(slow, features(), response(), 19, checkpoint={str(tmp_path / 'run')!r}, progress=False)\n"
    )
    records = tmp_path / "run" / "permutations.jsonl"
    process = subprocess.Popen([sys.executable, str(script)], cwd=root)
    try:
        deadline = time.time() + 120
        while (len(records.read_text().splitlines()) if records.exists() else 0) < 7 and time.time() < deadline:
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = records.read_text().splitlines()
    assert 7 <= len(kept) < 21
    started = time.time()
    test = quiet(slow, checkpoint=tmp_path / "run")
    assert time.time() - started < 0.2 * 19
    assert records.read_text().startswith("\n".join(kept[:7]))
    assert np.array_equal(test.null, quiet(noisy).null)
    assert np.array_equal(test.pair_null, quiet(noisy).pair_null)


def test_the_keyboard_stops_it_and_what_is_finished_is_used(monkeypatch):
    calls = []

    def stopped(X, y):
        calls.append(y)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return products(X, y)

    with pytest.warns(geh.GEHWarning, match="interrupted; the permutations that were finished are used"):
        test = quiet(stopped)
    assert np.array_equal(test.null, quiet(permutations=3).null)


def test_a_checkpoint_of_another_test_is_refused(tmp_path):
    quiet(checkpoint=tmp_path / "run", permutations=2)
    with pytest.raises(geh.GEHError, match=r"belongs to another test: seed \(0 there, 1 here\)"):
        quiet(checkpoint=tmp_path / "run", seed=1)
    with pytest.raises(geh.GEHError, match=r"another test: null \(main there, y here\)"):
        quiet(checkpoint=tmp_path / "run", null="y")
    with pytest.raises(geh.GEHError, match=r"another test: main \( there, LinearRegression \w+ here\)"):
        quiet(checkpoint=tmp_path / "run", main=LinearRegression())
    with pytest.raises(geh.GEHError, match="another test: y "):
        permutation_test(products, features(), response() + 1, 2, checkpoint=tmp_path / "run", progress=False)
    with pytest.raises(geh.GEHError, match=r"fit \(products there, noisy here\)"):
        quiet(noisy, checkpoint=tmp_path / "run")
    (tmp_path / "file").touch()
    with pytest.raises(geh.GEHError, match="is a file; give a folder"):
        quiet(checkpoint=tmp_path / "file")


def test_a_cluster_loses_a_worker_and_no_permutation():
    distributed = pytest.importorskip("distributed")
    expected = quiet(noisy, 30)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs="CRITICAL"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        before = client.run(os.getpid)
        victim = sorted(before.values())[0]
        killer = threading.Timer(1.5, os.kill, (victim, signal.SIGKILL))
        killer.start()
        with joblib.parallel_config(backend="dask"):
            test = quiet(slow, 30)
        killer.join()
        assert victim not in client.run(os.getpid).values()
    assert np.array_equal(test.null, expected.null)
    assert not test.failures
