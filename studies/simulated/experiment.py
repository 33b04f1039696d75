"""One simulated data set: networks fitted, explained, and ranked by every method."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import nn

from geh_explain import baselines, bnn, posterior
from geh_explain._types import Floats
from geh_explain.datasets import simulation as data
from geh_explain.errors import GEHWarning
from geh_explain.explainer import GEHExplainer
from geh_explain.inference.jsonl import Record
from geh_explain.results.interactions import Interactions

#: Seeds below this one served to choose the networks and how they are trained.
FIRST_SEED = 100
MEASURES = ("aeh", "geh", "eah")
#: The posteriors that are compared: draws around one solution of two kinds, and several solutions.
POSTERIORS = ("concrete dropout", "mean field", "bootstrap ensemble")
MAIN_NETWORKS = "concrete dropout, main effects by networks"


@dataclass(frozen=True)
class Size:
    """How large a study is."""

    signal_to_noise: tuple[float, ...]
    repetitions: int
    rows: int
    test_rows: int
    epochs: int
    members: int
    draws: int
    groups: int
    trees: int


FULL = Size((0.0, 0.1, 0.3, 1.0, 3.0, 10.0), 5, 25_000, 2_000, 50, 8, 100, 11, 1000)
QUICK = Size((0.0, 1.0, 10.0), 1, 5_000, 1_000, 30, 5, 40, 11, 200)


def tasks(size: Size) -> list[tuple[Any, ...]]:
    """Return the data sets of a study: the size's own numbers, signal to noise, seed."""
    settings = tuple(value for name, value in asdict(size).items() if name not in ("signal_to_noise", "repetitions"))
    return [(*settings, sn, FIRST_SEED + number) for number in range(size.repetitions) for sn in size.signal_to_noise]


def run(task: tuple[Any, ...]) -> Record:
    """Do all there is to do with one data set."""
    *settings, sn, seed = task
    size = Size((sn,), 1, *settings)
    drawn = data.simulate(sn, size.rows, size.test_rows, seed)
    x, y, points = (torch.as_tensor(a, dtype=torch.float32) for a in (drawn.x, drawn.y, drawn.x_test))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GEHWarning)
        results, found, seconds = _explained(x, y, points, size, sn, seed)
        ranked = _ranked(drawn, found["concrete dropout"], size, seed, seconds)
        labels = results["concrete dropout"].labels
        curve = GEHExplainer(found["concrete dropout"]).choose_groups(points, progress=False)
    return {
        "sn": sn,
        "seed": seed,
        "truth": {name: values.tolist() for name, values in data.true_scores(drawn.x_test, labels).items()},
        "scores": {name: _scores(result) for name, result in results.items()},
        "sign": {name: result.sign_p_values().tolist() for name, result in results.items()},
        "ranked": {ranking.method: ranking.scores.tolist() for ranking in ranked},
        "errors": {name: _error(net, points, drawn.x_test) for name, net in found.items()},
        "delta": {"counts": np.asarray(curve.counts).tolist(), "delta": np.asarray(curve.delta).tolist()},
        "seconds": seconds,
    }


def _explained(
    x: torch.Tensor, y: torch.Tensor, points: torch.Tensor, size: Size, sn: float, seed: int
) -> tuple[dict[str, Interactions], dict[str, nn.Module], dict[str, float]]:
    """Fit the networks, and explain them on the same groups."""
    results: dict[str, Interactions] = {}
    found: dict[str, nn.Module] = {}
    seconds: dict[str, float] = {}
    fitting: dict[str, Any] = {"epochs": size.epochs, "seed": seed, "progress": False}
    groups: Any = size.groups
    for name, weights, main in (
        ("concrete dropout", "dropout", "linear"),
        ("mean field", "gaussian", "linear"),
        (MAIN_NETWORKS, "dropout", "network"),
    ):
        if name == MAIN_NETWORKS and sn != 1:  # one setting is enough for the comparison
            continue
        start = perf_counter()
        net = bnn.HybridNet(data.FEATURES, weights=weights, main=main, seed=seed)
        bnn.fit(net, x, y, **fitting)
        seconds[f"fit {name}"] = perf_counter() - start
        start = perf_counter()
        results[name] = GEHExplainer(net).explain(points, groups=groups, draws=size.draws, seed=seed, progress=False)
        seconds[f"explain {name}"] = perf_counter() - start
        found[name], groups = net, results[name].labels
    start = perf_counter()
    nets = bnn.fit_ensemble(_member, x, y, size.members, **fitting)
    seconds["fit bootstrap ensemble"] = perf_counter() - start
    explainer = GEHExplainer(nets[0], posterior=posterior.Ensemble(nets))
    results["bootstrap ensemble"] = explainer.explain(points, groups=groups, progress=False)
    return results, found, seconds


def _member(seed: int) -> nn.Module:
    return bnn.HybridNet(data.FEATURES, weights="point", seed=seed)


def _ranked(
    drawn: data.Data, net: nn.Module, size: Size, seed: int, seconds: dict[str, float]
) -> list[baselines.PairRanking]:
    """Rank pairs by the other methods; all see the same rows."""
    start = perf_counter()
    trees = baselines.shap_trees(drawn.x, drawn.y, trees=size.trees, seed=seed, names=data.NAMES)
    seconds["SHAP"] = perf_counter() - start
    return [
        baselines.nid(net, names=data.NAMES),
        trees,
        baselines.lasso(drawn.x, drawn.y, names=data.NAMES),
        baselines.oracle(drawn.x, drawn.y, data.effects(drawn.x), names=data.NAMES),
    ]


def _scores(result: Interactions) -> dict[str, Any]:
    return {
        name: {
            "mean": getattr(result, name).pair_mean.tolist(),
            "std": getattr(result, name).pair_std.tolist(),
        }
        for name in MEASURES
    }


@torch.no_grad()
def _error(net: nn.Module, points: torch.Tensor, x: Floats) -> float:
    """Return how far the mean network is from the noiseless target, relative to the target's spread."""
    signal = np.sum(list(data.effects(x).values()), axis=0)
    return float(np.sqrt(np.mean((net(points)[:, 0].numpy() - signal) ** 2)) / signal.std())
