"""Where the time of the engine goes: ``python -m benchmarks.profile INPUTS POINTS``."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

import geh_explain as geh
from benchmarks import own
from benchmarks.networks import mlp, table

PASSES = 20


def profiled(explainer: geh.GEHExplainer, x: Tensor) -> Any:
    """Return torch's profile of the sums over all points, of one draw."""
    sums = own.bare_sums(explainer, x)
    for _ in range(PASSES):
        sums()
    with torch.profiler.profile() as profile:
        for _ in range(PASSES):
            sums()
    return profile.key_averages()


def shares(explainer: geh.GEHExplainer, x: Tensor, most: int = 6) -> str:
    """Say which operations the bare engine's time goes to."""
    averages = sorted(profiled(explainer, x), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in averages)
    parts = [
        f"{event.key.removeprefix('aten::')} {event.self_cpu_time_total / total:.0%}"
        for event in averages
        if event.key.startswith("aten::")
    ]
    return f"where the bare engine's time goes, by torch's profiler: {', '.join(parts[:most])}; the rest in small parts"


def main() -> None:
    """Profile a network with hidden layers 100-100-100."""
    inputs, points = map(int, sys.argv[1:])
    explainer = geh.GEHExplainer(mlp(inputs), posterior=geh.posterior.PointEstimate())
    averages = profiled(explainer, table(points, inputs))
    print(averages.table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=40))


if __name__ == "__main__":
    main()
