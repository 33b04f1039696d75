"""The pairs of a search against the scores of all pairs in plain torch: ``python -m benchmarks.all_pairs [units]``.

The scores of all pairs are computed block by block in double precision, 2,000 rows of the Hessian at a time, and the
largest 100 are kept. Takes minutes and 6 GB for 100,000 units.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

import geh_explain as geh
from benchmarks.wide_runs import Run, inputs, network

#: Rows of the Hessian that are computed at a time.
_BLOCK = 2000
_TOP = 100


@dataclass(frozen=True)
class Comparison:
    """How many of the strongest pairs the search missed, the largest relative error of a score, and CPU seconds."""

    missed: int
    error: float
    search_seconds: float
    seconds: float


def compare(run: Run) -> Comparison:
    """Compare the pairs of ``run``, with the rows in its groups in turn, with those of all scores."""
    x, net, labels = inputs(run), network(run), np.arange(run.points) % run.groups
    start = time.process_time()
    explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
    result = explainer.search(x, top=_TOP, groups=labels, progress=False)
    searched = time.process_time()
    places, scores = strongest_pairs(net.double(), x, labels)
    found = dict(zip(result.pairs.positions.tolist(), result.geh.pair_mean.tolist(), strict=True))
    expected = dict(zip(places.tolist(), scores.tolist(), strict=True))
    errors = [abs(found[place] / score - 1) for place, score in expected.items() if place in found]
    missed = len(expected.keys() - found.keys())
    return Comparison(missed, max(errors, default=0.0), searched - start, time.process_time() - searched)


def strongest_pairs(net: nn.Sequential, x: Tensor, labels: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[Tensor]:
    """Return the places of the strongest pairs of a tanh network among all, in row-major order, and their scores."""
    first_layer, last_layer = net[0], net[3]
    assert isinstance(first_layer, nn.Linear)
    assert isinstance(last_layer, nn.Linear)
    weight, bias, slope = first_layer.weight, first_layer.bias, last_layer.weight
    groups = torch.as_tensor(labels)
    hessians = []
    for group in range(int(groups.max()) + 1):
        activation = torch.tanh(x[groups == group].double() @ weight.T + bias)
        hessians.append(((-2 * activation * (1 - activation**2) * slope).sum(0) / len(x)).diag())
    n_units = x.shape[1]
    best = [torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.double)]
    for start in range(0, n_units, _BLOCK):
        left, right = weight[:, start : start + _BLOCK].T, weight[:, start:]
        scores = torch.zeros(len(left), right.shape[1], dtype=torch.double)
        for hessian in hessians:
            scores += ((left @ hessian) @ right).abs_()
        scores[:, : len(left)].triu_(1)
        values, places = scores.flatten().topk(min(_TOP, scores.numel()))
        first, second = start + places // right.shape[1], start + places % right.shape[1]
        chosen = [first * n_units - first * (first + 1) // 2 + second - first - 1, values]
        best = [torch.cat(parts) for parts in zip(best, chosen, strict=True)]
        kept = best[1].topk(min(_TOP, len(best[1]))).indices
        best = [part[kept] for part in best]
    return best


def main() -> None:
    """Compare for the number of units on the command line."""
    units = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    found = compare(Run("search", units, points=2000))
    print(
        f"{units:,} units: {found.missed} of {_TOP} pairs missed, largest relative error of a score {found.error:.1e}; "
        f"search {found.search_seconds:.0f} s, all pairs {found.seconds:.0f} s of CPU time"
    )


if __name__ == "__main__":
    main()
