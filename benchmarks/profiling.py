"""Time of the engine by operation: ``python -m benchmarks.profiling INPUTS POINTS``."""

from __future__ import annotations

import cProfile
import pstats
import sys
from collections.abc import Callable, Mapping
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


#: Parts of a call of explain(), by the file and the function that do them; no part holds another one.
PARTS_OF_CALL = {
    "local Hessians": ("structured/engine.py", "local_hessians"),
    "comparison with double backward": ("structured/engine.py", "compare"),
    "pull-back of points, for EAH and the errors over points": ("structured/pull_back.py", "add_points"),
    "pull-back of sums": ("structured/pull_back.py", "add"),
    "plan": ("run/plan.py", "make_plan"),
    "snapshots and restoring of networks": ("model/preserve.py", "_restored"),
    "warnings": ("run/warnings.py", "collect_warnings"),
    "record": ("run/record.py", "make_record"),
}


def describe_call(call: Callable[[], object], parts: Mapping[str, tuple[str, str]] = PARTS_OF_CALL) -> str:
    """Return the shares of the parts in the time of a call, in words."""
    call()
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(PASSES):
        call()
    profile.disable()
    timings = pstats.Stats(profile)
    # Of each function: calls, calls without recursion, own time, time with what it calls, callers.
    functions: dict[tuple[str, int, str], tuple[Any, ...]] = timings.stats  # type: ignore[attr-defined]
    shares = {
        label: sum(
            numbers[3] for (path, _, name), numbers in functions.items() if path.endswith(file) and name == function
        )
        / timings.total_tt  # type: ignore[attr-defined]
        for label, (file, function) in parts.items()
    }
    named = sorted(shares.items(), key=lambda entry: -entry[1])
    return "time of the call by Python's profiler: " + ", ".join(
        f"{label} {share:.0%}" for label, share in named if share >= 0.01
    )


def main() -> None:
    """Profile a network with hidden layers 100-100-100 and print the table."""
    inputs, points = map(int, sys.argv[1:])
    explainer = geh.GEHExplainer(mlp(inputs), posterior=geh.posterior.PointEstimate())
    averages = profile_sums(explainer, table(points, inputs))
    print(averages.table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=40))


if __name__ == "__main__":
    main()
