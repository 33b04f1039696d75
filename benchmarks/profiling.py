"""Time of the engine by operation: ``python -m benchmarks.profiling INPUTS POINTS``."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

import geh_explain as geh
from benchmarks import package_methods as ours
from benchmarks.networks import mlp, table

#: Repetitions of the sums, to warm up and to profile.
PASSES = 20


def profile_sums(explainer: geh.GEHExplainer, x: Tensor) -> Any:
    """Return torch's averages by operation for the sums over all points, of one draw."""
    sums = ours.bare_sums(explainer, x)
    for _ in range(PASSES):
        sums()
    with torch.profiler.profile() as profile:
        for _ in range(PASSES):
            sums()
    return profile.key_averages()


def describe_operations(explainer: geh.GEHExplainer, x: Tensor, operations: int = 6) -> str:
    """Return the operations with the largest shares of the bare engine's time, in words."""
    averages = sorted(profile_sums(explainer, x), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in averages)
    parts = [
        f"{event.key.removeprefix('aten::')} {event.self_cpu_time_total / total:.0%}"
        for event in averages
        if event.key.startswith("aten::")
    ]
    return f"time of the bare engine by torch's profiler: {', '.join(parts[:operations])}; the rest in small parts"


def main() -> None:
    """Profile a network with hidden layers 100-100-100 and print the table."""
    inputs, points = map(int, sys.argv[1:])
    explainer = geh.GEHExplainer(mlp(inputs), posterior=geh.posterior.PointEstimate())
    averages = profile_sums(explainer, table(points, inputs))
    print(averages.table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=40))


if __name__ == "__main__":
    main()
