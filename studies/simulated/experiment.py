"""One simulated data set: fit the networks, explain and test them, and rank all pairs by every method."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from time import process_time
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

#: Smaller seeds were used to choose the networks, their training and the held-out test.
FIRST_SEED = 400
#: Seeds of the held-out rows are those of the data sets plus this.
HELD_OUT_SEED = 10_000
MEASURES = ("aeh", "geh", "eah")
#: Level of the intervals; tests reject at one minus this level.
LEVEL = 0.95
#: Posteriors that are compared: two kinds of draws around one solution, and several solutions.
POSTERIORS = ("concrete dropout", "mean field", "bootstrap ensemble")
#: Concrete dropout with a small network per feature for the main effects, instead of a linear term.
MAIN_NETWORKS = "concrete dropout, main effects by networks"


@dataclass(frozen=True)
class Size:
    """Extent of a study.

    Parameters
    ----------
    signal_to_noise
        Ratios of variances; 0 is a target of noise alone.
    repetitions
        Data sets per ratio.
    rows, test_rows, held_out
        Rows for training, points that are explained, and rows whose labels the test uses.
    epochs
        Maximal number of epochs of each fit.
    members
        Networks of the bootstrap ensemble.
    draws, groups
        Posterior draws and groups of points.
    trees
        Boosted trees for SHAP.
    """

    signal_to_noise: tuple[float, ...]
    repetitions: int
    rows: int
    test_rows: int
    held_out: int
    epochs: int
    members: int
    draws: int
    groups: int
    trees: int


FULL = Size(
    signal_to_noise=(0.0, 0.1, 0.3, 1.0, 3.0, 10.0),
    repetitions=7,
    rows=25_000,
    test_rows=2_000,
    held_out=3_000,
    epochs=50,
    members=8,
    draws=100,
    groups=11,
    trees=1000,
)
QUICK = Size(
    signal_to_noise=(0.0, 1.0, 10.0),
    repetitions=1,
    rows=5_000,
    test_rows=1_000,
    held_out=3_000,
    epochs=30,
    members=5,
    draws=40,
    groups=11,
    trees=200,
)


def tasks(size: Size) -> list[tuple[Any, ...]]:
    """Return one task per data set: the fields of ``size`` that affect it, then signal to noise and seed."""
    settings = tuple(value for name, value in asdict(size).items() if name not in ("signal_to_noise", "repetitions"))
    return [(*settings, sn, FIRST_SEED + number) for number in range(size.repetitions) for sn in size.signal_to_noise]


def run(task: tuple[Any, ...]) -> Record:
    """Analyse one data set and return its record: true and estimated scores, p-values, rankings, errors, seconds."""
    *settings, sn, seed = task
    size = Size((sn,), 1, *settings)
    drawn = data.simulate(sn, size.rows, size.test_rows, seed)
    held_out = data.simulate(sn, size.held_out, 1, HELD_OUT_SEED + seed)
    rows = _Rows.of(drawn, held_out)
    points = rows.points
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GEHWarning)
        results, nets, seconds = _fit_and_explain(rows, size, sn, seed)
        rankings, seconds["SHAP"] = _rank_by_baselines(drawn, held_out, nets["concrete dropout"], size, seed)
        labels = results["concrete dropout"].labels
        curve = GEHExplainer(nets["concrete dropout"]).choose_groups(points, progress=False)
    return {
        "sn": sn,
        "seed": seed,
        "truth": {name: values.tolist() for name, values in data.true_scores(drawn.x_test, labels).items()},
        "scores": {name: _score_moments(result) for name, result in results.items()},
        "sign": {name: result.sign_p_values().tolist() for name, result in results.items()},
        "evidence": {name: _evidence(result) for name, result in results.items()},
        "ranked": {ranking.method: ranking.scores.tolist() for ranking in rankings},
        "errors": {name: _relative_error(net, points, drawn.x_test) for name, net in nets.items()},
        "delta": {"counts": np.asarray(curve.counts).tolist(), "delta": np.asarray(curve.delta).tolist()},
        "seconds": seconds,
    }


@dataclass(frozen=True)
class _Rows:
    """One data set as tensors: training rows, points to explain, and held-out rows."""

    x: torch.Tensor
    y: torch.Tensor
    points: torch.Tensor
    x_held: torch.Tensor
    y_held: torch.Tensor

    @classmethod
    def of(cls, drawn: data.Data, held_out: data.Data) -> _Rows:
        """Return the rows of a data set, and of a second one whose rows are held out."""
        arrays = (drawn.x, drawn.y, drawn.x_test, held_out.x, held_out.y)
        return cls(*(torch.as_tensor(array, dtype=torch.float32) for array in arrays))


def _fit_and_explain(
    rows: _Rows, size: Size, sn: float, seed: int
) -> tuple[dict[str, Interactions], dict[str, nn.Module], dict[str, float]]:
    """Return results and networks by posterior, and the seconds of each step.

    All networks are explained on the groups of the first one, so that their scores are comparable.
    """
    results: dict[str, Interactions] = {}
    nets: dict[str, nn.Module] = {}
    seconds: dict[str, float] = {}
    fitting: dict[str, Any] = {"epochs": size.epochs, "seed": seed, "progress": False}
    explaining: dict[str, Any] = {"groups": size.groups, "draws": size.draws, "seed": seed, "progress": False}

    def explain_and_test(name: str, explainer: GEHExplainer) -> None:
        start = process_time()
        result = explainer.explain(rows.points, **explaining)
        seconds[f"explain {name}"] = process_time() - start
        start = process_time()
        results[name] = explainer.test(result, rows.x_held, rows.y_held, explained=rows.points, progress=False)
        seconds[f"test {name}"] = process_time() - start

    for name, weights, main in (
        ("concrete dropout", "dropout", "linear"),
        ("mean field", "gaussian", "linear"),
        (MAIN_NETWORKS, "dropout", "network"),
    ):
        if name == MAIN_NETWORKS and sn != 1:  # one ratio is enough for this comparison
            continue
        start = process_time()
        nets[name] = bnn.HybridNet(data.FEATURES, weights=weights, main=main, pairs=0, seed=seed)
        bnn.fit(nets[name], rows.x, rows.y, **fitting)
        seconds[f"fit {name}"] = process_time() - start
        explain_and_test(name, GEHExplainer(nets[name]))
        explaining["groups"] = results[name].labels
    start = process_time()
    members = bnn.fit_ensemble(_ensemble_member, rows.x, rows.y, size.members, **fitting)
    seconds["fit bootstrap ensemble"] = process_time() - start
    explain_and_test("bootstrap ensemble", GEHExplainer(members[0], posterior=posterior.Ensemble(members)))
    return results, nets, seconds


def _ensemble_member(seed: int) -> nn.Module:
    """Return an untrained network without a weight posterior."""
    return bnn.HybridNet(data.FEATURES, weights="point", pairs=0, seed=seed)


def _rank_by_baselines(
    drawn: data.Data, held_out: data.Data, net: nn.Module, size: Size, seed: int
) -> tuple[list[baselines.PairRanking], float]:
    """Return the rankings by NID, SHAP, Lasso and Oracle, and the seconds that SHAP took.

    They are fitted to training and held-out rows, as the supported score uses the labels of both.
    """
    x, y = np.concatenate([drawn.x, held_out.x]), np.concatenate([drawn.y, held_out.y])
    start = process_time()
    trees = baselines.shap_trees(x, y, trees=size.trees, seed=seed, names=data.NAMES)
    shap_seconds = process_time() - start
    rankings = [
        baselines.nid(net, names=data.NAMES),
        trees,
        baselines.lasso(x, y, names=data.NAMES),
        baselines.oracle(x, y, data.effects(x), names=data.NAMES),
    ]
    return rankings, shap_seconds


def _score_moments(result: Interactions) -> dict[str, Any]:
    """Return mean and standard deviation (P,) of each measure over the draws."""
    return {
        name: {
            "mean": getattr(result, name).pair_mean.tolist(),
            "std": getattr(result, name).pair_std.tolist(),
        }
        for name in MEASURES
    }


def _evidence(result: Interactions) -> dict[str, list[float]]:
    """Return the outcome of the held-out test (P,): p-values, slopes, and intervals of the true GEH."""
    evidence = result.evidence
    assert evidence is not None
    assert evidence.true_scores is not None
    low, high = evidence.true_scores.interval(LEVEL)
    arrays = {
        "p_value": evidence.p_value,
        "slope": evidence.slope,
        "slope_se": evidence.slope_se,
        "true_low": low,
        "true_high": high,
    }
    return {name: values.tolist() for name, values in arrays.items()}


@torch.no_grad()
def _relative_error(net: nn.Module, points: torch.Tensor, x: Floats) -> float:
    """Return the root mean squared error to the noiseless target, in standard deviations of that target."""
    signal = np.sum(list(data.effects(x).values()), axis=0)
    return float(np.sqrt(np.mean((net(points)[:, 0].numpy() - signal) ** 2)) / signal.std())
