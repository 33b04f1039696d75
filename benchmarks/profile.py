"""Prints where the time of the engine goes: ``python -m benchmarks.profile INPUTS POINTS``."""

from __future__ import annotations

import sys

import torch
from tqdm.auto import tqdm

import geh_explain as geh
from benchmarks.networks import mlp, table
from geh_explain.memory import keep_freed
from geh_explain.run import _sums

PASSES = 20


def main() -> None:
    """Profile the sums over all points of one draw, hidden 100-100-100."""
    inputs, points = map(int, sys.argv[1:])
    explainer = geh.GEHExplainer(mlp(inputs), posterior=geh.posterior.PointEstimate())
    job = explainer._prepare(table(points, inputs), None, None, groups=1, batch_size=None, seed=0)
    keep_freed()
    for _ in range(PASSES):
        _sums(job, tqdm(disable=True))
    with torch.profiler.profile() as profile:
        for _ in range(PASSES):
            _sums(job, tqdm(disable=True))
    print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=40))


if __name__ == "__main__":
    main()
