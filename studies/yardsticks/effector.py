"""The closed-form cases of effector: are scores as large as they should be, and do groups separate the signs?"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain import posterior
from geh_explain._types import Bools, Floats
from geh_explain.errors import GEHWarning
from geh_explain.explainer import GEHExplainer
from geh_explain.inference import auc
from geh_explain.results.interactions import Interactions
from studies.yardsticks import ours
from studies.yardsticks.peers import import_package, predict_with

#: Rows, training and held-out ones together.
ROWS, _QUICK_ROWS = 10_000, 2_000
#: Points at which the functions themselves are explained.
POINTS = 2_000


@dataclass(frozen=True)
class Case:
    """A function whose interactions are known in closed form.

    Attributes
    ----------
    formula
        The function in words; [c] is 1 where c holds, else 0.
    compute
        Maps rows (n, D) to values (n,).
    eah
        Expected absolute derivative of each interacting pair (i, j), from 0. A jump counts by its size times the
        density at its place.
    sign
        Maps rows (n, D) to the side (n,) of the border where the strongest pair changes its sign; None if it does not.
    split
        Feature of interest, and the condition (feature, place) that removes its heterogeneity; None if none does.
    """

    formula: str
    compute: Callable[[Tensor], Tensor]
    eah: dict[tuple[int, int], float]
    sign: Callable[[Floats], Bools] | None = None
    split: tuple[int, tuple[int, float]] | None = None

    @property
    def strongest(self) -> tuple[int, int]:
        """The pair with the largest score."""
        return max(self.eah, key=lambda pair: self.eah[pair])


def _conditional(x: Tensor) -> Tensor:
    return torch.where(x[:, 1] < 0, -1.0, 1.0) * x[:, 0] ** 2 + x[:, 2].exp()


def _general(x: Tensor) -> Tensor:
    return x[:, 0] * x[:, 1] ** 2 + x[:, 2].exp()


def _four_regions(x: Tensor) -> Tensor:
    power = torch.where(x[:, 1] < 0, x[:, 0] ** 2, x[:, 0] ** 4)
    return torch.where(x[:, 2] < 0, -1.0, 1.0) * power + x[:, 3].exp()


def _correlated(x: Tensor) -> Tensor:
    wave = torch.sin(2 * torch.pi * x[:, 0])
    gate = torch.where(x[:, 0] < 0, 1.0, 0.0) - 2 * torch.where(x[:, 2] < 0, 1.0, 0.0)
    return wave * gate + x[:, 0] * x[:, 1] + x[:, 1]


CASES = {
    "conditional": Case(
        "x1^2 (1 - 2 [x2 < 0]) + exp(x3)",
        _conditional,
        {(0, 1): 1.0},
        sign=lambda x: x[:, 0] < 0,
        split=(0, (1, 0.0)),
    ),
    "general": Case("x1 x2^2 + exp(x3)", _general, {(0, 1): 1.0}, sign=lambda x: x[:, 1] < 0),
    "four regions": Case(
        "(x1^2 [x2 < 0] + x1^4 [x2 >= 0]) (1 - 2 [x3 < 0]) + exp(x4)",
        _four_regions,
        {(0, 2): 1.0, (0, 1): 0.25, (1, 2): 1 / 15},
        sign=lambda x: x[:, 0] < 0,
        split=(0, (2, 0.0)),
    ),
    "correlated": Case(
        "sin(2 pi x1) ([x1 < 0] - 2 [x3 < 0]) + x1 x2 + x2",
        _correlated,
        {(0, 2): 4 * math.pi * math.exp(-((0.02 * math.pi) ** 2) / 2), (0, 1): 1.0},
    ),
}


def draw(name: str, rows: int, generator: np.random.Generator) -> Floats:
    """Draw rows (n, D): uniform over (-1, 1); in the last case x3 is nearly x1, which is mostly below 0."""
    if name != "correlated":
        return generator.uniform(-1, 1, (rows, 4 if name == "four regions" else 3))
    below = generator.uniform(size=rows) < 5 / 6
    first = np.where(below, generator.uniform(-0.5, 0, rows), generator.uniform(0, 0.5, rows))
    return np.stack([first, generator.normal(0, 2, rows), first + generator.normal(0, 0.01, rows)], axis=1)


def cases(quick: bool) -> list[str]:
    """Return the names of the cases."""
    return ["general"] if quick else list(CASES)


def run(seed: int, quick: bool) -> list[dict[str, Any]]:
    """Return one row per case and way of explaining it."""
    return [row for case in cases(quick) for row in run_case(case, seed, quick)]


def run_case(case: str, seed: int, quick: bool) -> list[dict[str, Any]]:
    """Explain a function itself by differences, and a network that was fitted to its values."""
    known = CASES[case]
    generator = np.random.default_rng([seed, list(CASES).index(case), 3])
    x = draw(case, _QUICK_ROWS if quick else ROWS, generator)
    y = known.compute(torch.as_tensor(x)).numpy()
    points = x[-POINTS:]
    common = {"case": case, "seed": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GEHWarning)
        start = process_time()
        explainer = GEHExplainer(known.compute, engine="difference", posterior=posterior.PointEstimate())
        found = _measure(explainer, points, known)
        table = [{**common, "method": "function, differences", **found, "seconds": process_time() - start}]
        start = process_time()
        net = ours.fit_network(x, y, seed)
        found = _measure(GEHExplainer(net), points.astype(np.float32), known)
        table.append({**common, "method": "network", **found, "seconds": process_time() - start})
    if not quick and known.split is not None:
        exact = lambda rows: known.compute(torch.as_tensor(rows)).numpy()  # noqa: E731
        table.append({**common, "method": "effector, function", **_effector_split(exact, points, known)})
        table.append({**common, "method": "effector, network", **_effector_split(predict_with(net), points, known)})
    return table


def _measure(explainer: GEHExplainer, points: Floats, known: Case) -> dict[str, Any]:
    """Return how well pairs are ranked, sizes of the scores, and what default groups keep of the strongest pair."""
    result = explainer.explain(points, progress=False)
    i, j = known.strongest
    first, second = np.triu_indices(points.shape[1], 1)
    truth = np.array([pair in known.eah for pair in zip(first.tolist(), second.tolist(), strict=True)])
    record = {
        "auc": float(auc(result.eah.pair_mean, truth)),
        "auc_geh": float(auc(result.geh.pair_mean, truth)),
        "eah": _score(result, "eah", i, j),
        "aeh": _score(result, "aeh", i, j),
        "geh": _score(result, "geh", i, j),
        "true_eah": known.eah[i, j],
        "groups": len(result.sizes),
    }
    if known.sign is not None:
        sides = known.sign(points).astype(int)
        record["geh_true_groups"] = _score(explainer.explain(points, groups=sides, progress=False), "geh", i, j)
    return record


def _score(result: Interactions, measure: str, i: int, j: int) -> float:
    """Return one score of a pair."""
    return float(result.scores(measure).mean[i, j])


def _effector_split(predict: Callable[[Floats], Floats], points: Floats, known: Case) -> dict[str, Any]:
    """Return the first condition by which effector splits the rows, and whether it is the one that is known."""
    effector = import_package("effector")
    assert known.split is not None
    feature, (other, place) = known.split
    start = process_time()
    partition = effector.PDP(points, predict).find_regions(feature)
    regions = [region for region in partition.regions if region.level == 1]
    rule = regions[0].rule if regions else None
    found = rule is not None and other in rule.features
    record = {"rule": "no split" if rule is None else str(rule), "split_found": bool(found), "true_place": place}
    if found:
        record["place"] = _place(rule, other)
    return {**record, "seconds": process_time() - start}


def _place(rule: Any, feature: int) -> float:
    """Return the finite end of the condition of a feature in a rule of effector."""
    interval = rule.get(feature)
    return float(interval.hi if np.isfinite(interval.hi) else interval.lo)
