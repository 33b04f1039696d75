"""How much faster are several processes, and what would a thousand do? ``python -m benchmarks.ranks``.

One process and two are timed in turns, each process with one thread. The rest is arithmetic: rounds are those that
:class:`geh_explain.ranks.Ranks` makes, a draw takes what it takes, and its sums are sent from rank to rank.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from geh_explain.run.distributed import RankGroup

ROUNDS = 3
WORK = """
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


def seconds(processes: int) -> float:
    """Return how long the slowest process took."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "work.py"
        script.write_text(WORK)
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        done = subprocess.run(
            [sys.executable, *(launch if processes > 1 else []), str(script)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])},
            capture_output=True,
            text=True,
            check=True,
        )
    return max(float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("seconds"))


def predicted(size: int, draws: int, draw: float, once: float, megabytes: float, bandwidth: float) -> float:
    """Return the seconds of a run by ``size`` ranks: ``draw`` seconds a draw, ``once`` seconds of first looks.

    Sums of ``megabytes`` go through a tree of ranks at ``bandwidth`` megabytes a second, with a millisecond at each
    level, once for each draw, and twice where several ranks share it.
    """
    total, left = once, draws
    send = math.log2(size) * (1e-3 + megabytes / bandwidth) if size > 1 else 0.0
    while left > 0:
        teams = RankGroup(0, size).teams(left)
        total += draw * teams / size + teams * send * (1 if teams == size else 2)
        left -= teams
    return total


def main() -> None:
    """Print both tables."""
    one, two = float("inf"), float("inf")
    for _ in range(ROUNDS):
        one, two = min(one, seconds(1)), min(two, seconds(2))
    print(f"one process {one:.2f} s, two {two:.2f} s: {one / two:.2f} times as fast\n")
    units, groups = 200, 10
    megabytes = 8 * ((groups + 1) * units * (units - 1) // 2 + groups * units) / 1e6
    print(f"{units} units in {groups} groups: {megabytes:.2f} MB are sent for each draw\n")
    print("| ranks | draw of 1 s | | draw of 60 s | |\n|---:|---:|---:|---:|---:|")
    for size in (1, 2, 8, 64, 100, 200, 400, 1000):
        cells = []
        for draw in (1.0, 60.0):
            alone, shared = (predicted(each, 400, draw, 5.0, megabytes, 1000.0) for each in (1, size))
            cells += [f"{shared:,.0f} s", f"{alone / shared:,.1f}x"]
        print(f"| {size:,} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
