"""A Dask scheduler that is killed: permutations that were finished are in the checkpoint, and the call resumes."""

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress

import joblib
import numpy as np
import pytest

import geh_explain as geh

distributed = pytest.importorskip("distributed")


def products(X, y, seed=0):
    import time

    time.sleep(0.2)
    pairs = [X[:, 0] * X[:, 1], X[:, 0] * X[:, 2], X[:, 1] * X[:, 2]]
    return np.abs([np.mean(pair * y) for pair in pairs])


def start(kind, file, *options):
    command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--scheduler-file", str(file), "--no-dashboard"]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL, env=paths)


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_no_finished_permutation_is_lost_when_the_scheduler_is_killed(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    y, folder, file = X[:, 0] * X[:, 1], tmp_path / "run", tmp_path / "scheduler.json"
    options = {"permutations": 40, "null": "y", "progress": False}
    scheduler = start("scheduler", file, "--port", "0", "--host", "127.0.0.1")
    while not file.exists():
        time.sleep(0.1)
    workers = [start("worker", file, "--nthreads", "1", "--no-nanny") for _ in range(2)]

    def kept():
        path = folder / "permutations.jsonl"
        return path.read_text().count('"strongest"') if path.exists() else 0

    def kill():
        while kept() < 3:
            time.sleep(0.01)
        scheduler.kill()

    try:
        client = distributed.Client(scheduler_file=str(file))
        client.wait_for_workers(2, timeout=120)
        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        with joblib.parallel_config(backend="dask"), pytest.raises(geh.GEHError, match="scheduler of the Dask cluster"):
            geh.inference.permutation_test(products, X, y, checkpoint=folder, **options)
        killer.join()
        with suppress(Exception):
            client.close(timeout=1)
    finally:
        for process in (scheduler, *workers):
            process.kill()
            process.wait()
    assert 3 <= kept() < 40, "not a block of them is lost, as it would be if results came in blocks of 8"
    resumed = geh.inference.permutation_test(products, X, y, checkpoint=folder, **options)
    assert np.array_equal(resumed.null, geh.inference.permutation_test(products, X, y, **options).null)
