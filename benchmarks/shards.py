"""Cost of a run whose ranks read rows of their own: ``python -m benchmarks.shards``.

The constants are measured with one and two processes of one thread each: CPU time per row and draw, per row of the
passes before the first draw, and per number that is added up over the ranks. The rows are random numbers that each
process makes, so that no disk is measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: Rows of each process, and columns.
ROWS, COLUMNS = 50_000, (20, 200)
#: The script that each process runs; it prints CPU seconds of runs with 2 and with 6 draws, and of the sum of a number.
SCRIPT = """
import os, time, torch
from torch import nn
import torch.distributed as dist
import geh_explain as geh
torch.set_num_threads(1)
rank, rows = int(os.environ.get("RANK", 0)), {rows}
for columns in {columns}:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(columns, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1))
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.MCDropout())
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rank))
    explainer.explain(x[:500], draws=2, groups=4, eah_points=500, progress=False, distributed="shards")
    seconds = []
    for draws in (2, 6):
        start = time.process_time()
        explainer.explain(x, draws=draws, groups=4, eah_points=500, progress=False, distributed="shards")
        seconds.append(time.process_time() - start)
    print("columns", columns, *seconds, flush=True)
if dist.is_initialized():
    numbers = torch.zeros(2**20, dtype=torch.double)
    dist.all_reduce(numbers)
    start = time.process_time()
    for _ in range(10):
        dist.all_reduce(numbers)
    print("reduce", (time.process_time() - start) / 10 / len(numbers), flush=True)
"""


def measure(processes: int) -> list[list[str]]:
    """Return the words of all lines that the processes print."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "work.py"
        script.write_text(SCRIPT.format(rows=ROWS, columns=COLUMNS))
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", *(launch if processes > 1 else []), str(script)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])},
            capture_output=True,
            text=True,
            check=True,
        )
    return [line.split() for line in done.stdout.splitlines()]


def main() -> None:
    """Print the constants for one and two processes."""
    for processes in (1, 2):
        lines = measure(processes)
        for columns in COLUMNS:
            found = [[float(word) for word in words[2:]] for words in lines if words[:2] == ["columns", str(columns)]]
            few, many = (max(seconds) for seconds in zip(*found, strict=True))
            draw = (many - few) / 4
            print(
                f"{processes} processes, {ROWS:,} rows each, {columns} columns: {1e6 * draw / ROWS:.2f} microseconds "
                f"of CPU per row and draw, {1e6 * (few - 2 * draw) / ROWS:.2f} per row before the first draw"
            )
        for words in lines:
            if words[0] == "reduce":
                print(f"{1e9 * float(words[1]):.2f} nanoseconds of CPU per number that is added up over the ranks")


if __name__ == "__main__":
    main()
