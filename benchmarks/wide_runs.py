"""One run over very many inputs or rows in a process of its own, and what it cost.

``python -m benchmarks.wide_runs '{"kind": "search", "units": 5000}'`` prints seconds of CPU time and megabytes as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import geh_explain as geh
from benchmarks.memory import peak_memory

#: Rows of a file that are written at a time.
_BLOCK = 2**16
#: Standard deviation of the logarithm of the inputs' strengths, where these differ.
_SPREAD = 1.0


@dataclass(frozen=True)
class Run:
    """What is run.

    Attributes
    ----------
    kind
        ``"search"`` for the 100 strongest pairs, ``"explain"`` for all pairs, ``"rows"`` for all pairs from a
        memory-mapped file.
    units, hidden, points, draws, groups
        Sizes D, h, N, K and M.
    unequal
        Whether inputs have different strengths, so that bounds leave out pairs.
    """

    kind: str
    units: int
    hidden: int = 100
    points: int = 500
    draws: int = 1
    groups: int = 4
    unequal: bool = False


@dataclass(frozen=True)
class Cost:
    """CPU time in seconds, peak memory of the process, and of it what a tiny run had not needed, in megabytes."""

    seconds: float
    peak: float
    above: float


@cache
def measure(run: Run) -> Cost:
    """Return the cost of a run in a fresh process, which is made once for all cases."""
    command = [sys.executable, "-m", "benchmarks.wide_runs", json.dumps(asdict(run))]
    return Cost(**json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def network(run: Run) -> nn.Sequential:
    """Return an untrained network of one hidden layer, with dropout where several draws are asked for."""
    torch.manual_seed(0)
    first = nn.Linear(run.units, run.hidden)
    if run.unequal:
        first.weight.data *= torch.exp(_SPREAD * torch.randn(run.units))
    dropout = 0.1 if run.draws > 1 else 0.0
    layers = [first, nn.Tanh(), nn.Dropout(dropout), nn.Linear(run.hidden, 1)]
    return nn.Sequential(*layers).eval().requires_grad_(False)


def inputs(run: Run) -> Tensor:
    """Return normal inputs (points, units)."""
    return torch.randn(run.points, run.units, generator=torch.Generator().manual_seed(1))


def explained(run: Run, points: Any) -> geh.Interactions:
    """Return the result of a run at some points."""
    posterior = geh.posterior.MCDropout() if run.draws > 1 else geh.posterior.PointEstimate()
    explainer = geh.GEHExplainer(network(run), posterior=posterior)
    options: dict[str, Any] = {"groups": run.groups, "draws": run.draws, "progress": False}
    return (
        explainer.search(points, top=100, **options) if run.kind == "search" else explainer.explain(points, **options)
    )


def _write_rows(run: Run, path: Path) -> None:
    """Write a file of rows without mapping it."""
    generator = np.random.default_rng(1)
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (run.points, run.units)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, run.points, _BLOCK):
            size = min(_BLOCK, run.points - start), run.units
            file.write(generator.standard_normal(size, dtype=np.float32).tobytes())


def _cost(run: Run) -> Cost:
    """Return the cost of a run in this process, after a tiny one that loads what every run needs."""
    tiny = Run(run.kind, 40, 8, 30, run.draws, run.groups)
    explained(tiny, inputs(tiny))
    with tempfile.TemporaryDirectory() as folder:
        points: Any
        if run.kind == "rows":
            path = Path(folder) / "rows.npy"
            _write_rows(run, path)
            points = np.load(path, mmap_mode="r")
        else:
            points = inputs(run)
        before = peak_memory()
        start = time.process_time()
        explained(run, points)
        seconds = time.process_time() - start
        del points
    peak = peak_memory()
    return Cost(seconds, peak, peak - before)


def main() -> None:
    """Run what the command line says, and print its cost."""
    warnings.simplefilter("ignore", geh.GEHWarning)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    print(json.dumps(asdict(_cost(Run(**json.loads(sys.argv[1]))))))


if __name__ == "__main__":
    main()
