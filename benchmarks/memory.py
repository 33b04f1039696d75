"""Peak memory of one run above that of a tiny run, in megabytes: ``python -m benchmarks.memory POINTS DRAWS``."""

from __future__ import annotations

import resource
import sys
import warnings

import geh_explain as geh
from benchmarks.networks import mlp, table


def peak_memory() -> float:
    """Return the peak resident memory of this process, in megabytes."""
    try:
        # Preferred on Linux, where getrusage() starts from the peak of the parent process.
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):
        pass
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def main() -> None:
    """Explain ten points, then all of them, and print the difference of the peaks."""
    warnings.simplefilter("ignore", geh.GEHWarning)
    points, draws = map(int, sys.argv[1:])
    explainer = geh.GEHExplainer(mlp(8, dropout=0.1), posterior=geh.posterior.MCDropout())
    x = table(points, 8)
    explainer.explain(x[:10], groups=1, draws=2, progress=False)
    before = peak_memory()
    explainer.explain(x, groups=1, draws=draws, progress=False)
    print(peak_memory() - before)


if __name__ == "__main__":
    main()
