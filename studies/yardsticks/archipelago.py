"""The functions of Archipelago: 40 binary features; which pairs interact between one row and one baseline?"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain import posterior
from geh_explain._types import Bools, Floats, Ints
from geh_explain.errors import GEHWarning
from geh_explain.explainer import GEHExplainer
from geh_explain.inference import auc
from geh_explain.local.explanation import LocalExplanation

#: Number of features.
FEATURES = 40
#: Values of all features in the row that is explained, and in the baseline.
ROW, BASELINE = 1.0, -1.0
#: Rows of the regression with all products.
_REGRESSION_ROWS, _QUICK_ROWS = 20_000, 2_000
#: Evaluations of shapiq.
_BUDGET = 20_000
#: AUC of ArchDetect in the paper (Tsang, Rambhatla and Liu, 2020), on every function; quoted.
QUOTED = 1.0

#: What a conjunction asks of features: feature and value.
_Conditions = tuple[tuple[int, float], ...]
_SECOND: _Conditions = tuple((i, ROW) for i in range(10, 30))
_CONJUNCTIONS: dict[str, tuple[_Conditions, ...]] = {
    "F2": (tuple((i, ROW) for i in range(20)), _SECOND),
    "F3": (tuple((i, BASELINE) for i in range(20)), _SECOND),
    "F4": (((0, ROW), (1, ROW), (2, BASELINE)), _SECOND),
}
#: The functions in words; and(S) is 1 where all of S hold and -1 elsewhere.
DEFINITIONS = {
    "F1": "sum over i, j <= 10 of x_i x_j, plus sum over 10 < i <= 20 < j <= 30 of x_i x_j",
    "F2": "and(x_i = 1, i <= 20) + and(x_i = 1, 10 < i <= 30)",
    "F3": "and(x_i = -1, i <= 20) + and(x_i = 1, 10 < i <= 30)",
    "F4": "and(x_1 = 1, x_2 = 1, x_3 = -1) + and(x_i = 1, 10 < i <= 30)",
}


def evaluate(name: str, x: Tensor) -> Tensor:
    """Return the values (n,) of a function at rows (n, 40) of +-1; the sum of all features is a part of each."""
    total = x.sum(dim=1)
    if name == "F1":
        return total + x[:, :10].sum(dim=1) ** 2 + x[:, 10:20].sum(dim=1) * x[:, 20:30].sum(dim=1)
    for conditions in _CONJUNCTIONS[name]:
        features, values = zip(*conditions, strict=True)
        holds = (x[:, list(features)] == torch.tensor(values, dtype=x.dtype)).all(dim=1)
        total = total + torch.where(holds, 1.0, -1.0)
    return total


def true_pairs(name: str) -> Bools:
    """Return which pairs (780,) interact."""
    first, second = np.triu_indices(FEATURES, 1)
    if name == "F1":
        return np.asarray((second < 10) | ((first // 10 == 1) & (second // 10 == 2)))
    sets = [{feature for feature, _ in conditions} for conditions in _CONJUNCTIONS[name]]
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return np.array([any({i, j} <= features for features in sets) for i, j in pairs])


def cases(quick: bool) -> list[str]:
    """Return the names of the functions."""
    return list(DEFINITIONS)


def run(seed: int, quick: bool) -> list[dict[str, Any]]:
    """Return one row per function and method: the area under the ROC curve over 780 pairs, evaluations, seconds."""
    return [row for case in cases(quick) for row in run_case(case, seed, quick)]


def run_case(case: str, seed: int, quick: bool) -> list[dict[str, Any]]:
    """Score all pairs of a function, whose features are in an order that depends on the seed."""
    order = np.random.default_rng([seed, list(DEFINITIONS).index(case), 2]).permutation(FEATURES)
    sizes: list[int] = []

    def counted(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return evaluate(case, x[:, order])

    truth = _in_order(true_pairs(case), order)
    row, baseline = (torch.full((FEATURES,), value, dtype=torch.float64) for value in (ROW, BASELINE))

    def scored(method: str, scores: Callable[[], Floats]) -> dict[str, Any]:
        sizes.clear()
        start = process_time()
        area = float(auc(scores(), truth))
        seconds = process_time() - start
        return {
            "function": case,
            "seed": seed,
            "method": method,
            "auc": area,
            "evaluations": sum(sizes),
            "seconds": seconds,
        }

    def both() -> Floats:
        return switched(counted, row, baseline) + switched(counted, baseline, row)

    table = [
        scored("both directions", both),
        scored("from the baseline", lambda: switched(counted, row, baseline)),
        scored("from the row", lambda: switched(counted, baseline, row)),
        scored(
            "regression with products", lambda: _regression(counted, seed, _QUICK_ROWS if quick else _REGRESSION_ROWS)
        ),
    ]
    if not quick:
        table.append(scored("shapiq", lambda: _shapiq(counted, seed)))
    return table


def switched(function: Callable[[Tensor], Tensor], row: Tensor, baseline: Tensor) -> Floats:
    """Return the absolute contributions (P,) of all pairs to the output of a row, by switching units on."""
    explainer = GEHExplainer(function, engine="difference", posterior=posterior.PointEstimate())
    with warnings.catch_warnings():
        # Three and more features act together in these functions: the account has a remainder.
        warnings.simplefilter("ignore", GEHWarning)
        account = explainer.explain_row(row, baseline=baseline, progress=False)
    assert isinstance(account, LocalExplanation)
    pairs = account.pairs
    names = {f"x{unit}": unit for unit in range(len(row))}
    scores = np.zeros((len(row), len(row)))
    scores[pairs["unit_i"].map(names), pairs["unit_j"].map(names)] = pairs["mean"].abs()
    return np.asarray((scores + scores.T)[np.triu_indices(len(row), 1)])


def _regression(function: Callable[[Tensor], Tensor], seed: int, n_rows: int) -> Floats:
    """Return the absolute coefficients (P,) of all products, by least squares on random rows of +-1."""
    rows = np.random.default_rng(seed).choice([ROW, BASELINE], (n_rows, FEATURES))
    y = function(torch.as_tensor(rows)).numpy()
    first, second = np.triu_indices(FEATURES, 1)
    design = np.hstack([np.ones((len(rows), 1)), rows, rows[:, first] * rows[:, second]])
    coefficients = np.linalg.solve(design.T @ design, design.T @ y)
    return np.asarray(np.abs(coefficients[1 + FEATURES :]))


def _shapiq(function: Callable[[Tensor], Tensor], seed: int) -> Floats:
    """Return the absolute Shapley interaction indices (P,) of the row towards the baseline, by sampling."""
    from studies.yardsticks.peers import import_package

    shapiq = import_package("shapiq")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        def value(coalitions: Bools) -> Floats:
            rows = torch.where(torch.as_tensor(coalitions), ROW, BASELINE).double()
            return np.asarray(function(rows).numpy())

        approximator = shapiq.approximator.SHAPIQ(n=FEATURES, max_order=2, index="SII", random_state=seed)
        found = approximator.approximate(_BUDGET, value)
    first, second = np.triu_indices(FEATURES, 1)
    return np.array([abs(float(found[pair])) for pair in zip(first.tolist(), second.tolist(), strict=True)])


def _in_order(flags: Bools, order: Ints) -> Bools:
    """Return flags of pairs (P,) for columns of which column order[k] is feature k."""
    matrix = np.zeros((FEATURES, FEATURES), dtype=bool)
    first, second = np.triu_indices(FEATURES, 1)
    matrix[order[first], order[second]] = flags
    return np.asarray((matrix | matrix.T)[first, second])
