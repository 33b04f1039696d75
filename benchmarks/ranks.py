"""Speed-up by several processes, measured for two and predicted for up to 1,000: ``python -m benchmarks.ranks``.

One process and two are timed in turns, each process with one thread. The prediction assumes a time per draw, a time per
message, and the rounds of :class:`geh_explain.run.distributed.RankGroup`.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from geh_explain.run.distributed import RankGroup

#: Rounds of the measurement; the best one counts.
ROUNDS = 3
#: The script that each process runs; it prints its seconds.
SCRIPT = """
import time, torch
from torch import nn
import geh_explain as geh
torch.set_num_threads(1)
torch.manual_seed(0)
layers = (nn.Linear(60, 400), nn.GELU(), nn.Dropout(0.1), nn.Linear(400, 400), nn.GELU(), nn.Dropout(0.1))
net, x = nn.Sequential(*layers, nn.Linear(400, 1)), torch.randn(2000, 60)
explainer = geh.GEHExplainer(net, posterior=geh.posterior.MCDropout())
explainer.explain(x[:50], draws=2, groups=4, progress=False)
start = time.perf_counter()
result = explainer.explain(x, draws=12, groups=4, progress=False)
print("seconds", time.perf_counter() - start)
"""


def measure_seconds(processes: int) -> float:
    """Return the seconds of the slowest of ``processes`` processes that share one call."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "work.py"
        script.write_text(SCRIPT)
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        done = subprocess.run(
            [sys.executable, *(launch if processes > 1 else []), str(script)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])},
            capture_output=True,
            text=True,
            check=True,
        )
    return max(float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("seconds"))


def predict_seconds(size: int, draws: int, draw: float, setup: float, megabytes: float, bandwidth: float) -> float:
    """Return the predicted seconds of a run by ``size`` ranks.

    Parameters
    ----------
    size
        Number of ranks.
    draws, draw
        Number of draws, and the seconds of one draw on one rank.
    setup
        Seconds before the first draw, which every rank spends.
    megabytes, bandwidth
        Size of the sums of a draw, and megabytes per second. They pass through a tree of ranks, with a millisecond per
        level: once per draw, and twice where several ranks share a draw.
    """
    total, remaining = setup, draws
    send = math.log2(size) * (1e-3 + megabytes / bandwidth) if size > 1 else 0.0
    while remaining > 0:
        teams = RankGroup(0, size).teams(remaining)
        total += draw * teams / size + teams * send * (1 if teams == size else 2)
        remaining -= teams
    return total


def main() -> None:
    """Print the measured speed-up and the table of predictions."""
    one, two = float("inf"), float("inf")
    for _ in range(ROUNDS):
        one, two = min(one, measure_seconds(1)), min(two, measure_seconds(2))
    print(f"one process {one:.2f} s, two {two:.2f} s: {one / two:.2f} times as fast\n")
    units, groups = 200, 10
    megabytes = 8 * ((groups + 1) * units * (units - 1) // 2 + groups * units) / 1e6
    print(f"{units} units in {groups} groups: {megabytes:.2f} MB are sent for each draw\n")
    print("| ranks | draw of 1 s | | draw of 60 s | |\n|---:|---:|---:|---:|---:|")
    for size in (1, 2, 8, 64, 100, 200, 400, 1000):
        cells = []
        for draw in (1.0, 60.0):
            alone, shared = (predict_seconds(ranks, 400, draw, 5.0, megabytes, 1000.0) for ranks in (1, size))
            cells += [f"{shared:,.0f} s", f"{alone / shared:,.1f}x"]
        print(f"| {size:,} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
