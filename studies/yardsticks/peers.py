"""Other methods that score pairs, on the same rows or the same network: what their authors' defaults give."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geh_explain import baselines
from geh_explain._types import Floats
from geh_explain.errors import GEHRuntimeError

#: A function of rows (n, D) that returns outputs (n,).
Predict = Callable[[Floats], Floats]
#: Points of which SHAP, shapiq and the H-statistic average, and background rows for each.
POINTS, BACKGROUND = 60, 20
#: Rows of the partial dependence functions of the H-statistic.
_H_ROWS = 100
#: Rows that pass through a network at once.
_CHUNK = 50_000
#: Hidden layers, penalty, learning rate, batch, epochs and patience of the authors of NID.
_NID_HIDDEN = (140, 100, 60, 20)
_NID_PENALTY = 5e-5
_NID_RATE = 1e-2
_NID_BATCH = 100
_NID_EPOCHS, _NID_PATIENCE = 100, 5
#: Hidden layers of the network of each feature, where NID has main effects.
_MAIN_HIDDEN = (10, 10, 10)


def predict_with(net: nn.Module) -> Predict:
    """Return a network of one output, at its mean weights, as a function of arrays."""

    @torch.no_grad()
    def predict(x: Floats) -> Floats:
        rows = torch.as_tensor(np.asarray(x, dtype=np.float32))
        return np.concatenate([net(part).reshape(-1).double().numpy() for part in torch.split(rows, _CHUNK)])

    return predict


def shap_exact(predict: Predict, x: Floats, seed: int) -> Floats:
    """Return the mean absolute SHAP interaction values (P,) over points, from all coalitions of the features."""
    shap = import_package("shap")
    points, background = _sample(x, seed)
    masker = shap.maskers.Independent(background, max_samples=BACKGROUND)
    values = shap.explainers.Exact(predict, masker)(points, interactions=True, silent=True).values
    first, second = np.triu_indices(x.shape[1], 1)
    return np.asarray(np.abs(values[:, first, second]).mean(axis=0))


def shapiq_exact(predict: Predict, x: Floats, seed: int) -> Floats:
    """Return the mean absolute faithful Shapley interactions (P,) of order 2 over points, by shapiq."""
    shapiq = import_package("shapiq")
    points, background = _sample(x, seed)
    n_features = x.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explainer = shapiq.TabularExplainer(
            predict,
            background,
            imputer="marginal",
            sample_size=BACKGROUND,
            index="FSII",
            max_order=2,
            random_state=seed,
        )
        found = [explainer.explain(point, budget=2**n_features) for point in points]
    first, second = np.triu_indices(n_features, 1)
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    return np.asarray(np.mean([[abs(float(each[pair])) for pair in pairs] for each in found], axis=0))


def h_statistic(predict: Predict, x: Floats, seed: int) -> Floats:
    """Return Friedman's H-statistic (P,), not normalised: the spread of F_ij - F_i - F_j over rows.

    F_ij, F_i and F_j are centred partial dependence functions.
    """
    rows = x[np.random.default_rng(seed).choice(len(x), min(_H_ROWS, len(x)), replace=False)]

    def dependence(*features: int) -> Floats:
        grid = np.repeat(rows[None], len(rows), axis=0)
        grid[:, :, features] = rows[:, None, features]
        values = predict(grid.reshape(-1, rows.shape[1])).reshape(len(rows), -1).mean(axis=1)
        return np.asarray(values - values.mean())

    single = [dependence(feature) for feature in range(rows.shape[1])]
    first, second = np.triu_indices(rows.shape[1], 1)
    return np.array(
        [np.std(dependence(i, j) - single[i] - single[j]) for i, j in zip(first.tolist(), second.tolist(), strict=True)]
    )


def fast(x: Floats, y: Floats, seed: int) -> Floats:
    """Return the strengths (P,) that FAST of ``interpret`` finds in what main effects of an EBM leave."""
    import_package("interpret")
    from interpret.glassbox import ExplainableBoostingRegressor
    from interpret.utils import measure_interactions

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mains = ExplainableBoostingRegressor(interactions=0, n_jobs=1, random_state=seed).fit(x, y)
        found = dict(measure_interactions(x, y, init_score=mains))
    first, second = np.triu_indices(x.shape[1], 1)
    return np.array([float(found[pair]) for pair in zip(first.tolist(), second.tolist(), strict=True)])


def lasso(x: Floats, y: Floats, seed: int) -> Floats:
    """Return the absolute coefficients (P,) of all products in a Lasso regression."""
    return np.asarray(baselines.lasso(x, y).scores)


def shap_trees(x: Floats, y: Floats, seed: int) -> Floats:
    """Return the mean absolute SHAP interaction values (P,) of boosted trees."""
    return np.asarray(baselines.shap_trees(x, y, seed=seed, learning_rate=0.05).scores)


def nid(x: Floats, y: Floats, seed: int) -> Floats:
    """Return the strengths (P,) of NID: an MLP with an L1 penalty, as its authors train it."""
    return _nid(x, y, seed, main=False)


def nid_main(x: Floats, y: Floats, seed: int) -> Floats:
    """Return the strengths (P,) of NID with a small network per feature for main effects."""
    return _nid(x, y, seed, main=True)


class _MainEffects(nn.Module):
    """Sum of one small ReLU network per feature, computed together."""

    def __init__(self, features: int) -> None:
        super().__init__()
        widths = (1, *_MAIN_HIDDEN, 1)
        # The uniform distributions of nn.Linear, for each feature.
        self.weights = nn.ParameterList(
            nn.Parameter((2 * torch.rand(features, below, above) - 1) / below**0.5) for below, above in pairwise(widths)
        )
        self.biases = nn.ParameterList(
            nn.Parameter((2 * torch.rand(features, 1, above) - 1) / below**0.5)
            for below, above in pairwise(widths[:-1])
        )

    def forward(self, x: Tensor) -> Tensor:
        hidden = x.T[:, :, None]
        for weight, bias in zip(self.weights, self.biases, strict=False):
            hidden = torch.relu(torch.baddbmm(bias, hidden, weight))
        return torch.bmm(hidden, self.weights[-1]).sum(dim=0)


def _nid(x: Floats, y: Floats, seed: int, *, main: bool) -> Floats:
    """Train the networks of NID on standardised rows, a third of them for early stopping, and read their weights."""
    scaled = [(values - values.mean(axis=0)) / values.std(axis=0) for values in (x, y[:, None])]
    inputs, labels = (torch.as_tensor(values, dtype=torch.float32) for values in scaled)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        widths = (x.shape[1], *_NID_HIDDEN)
        layers: list[nn.Module] = []
        for below, above in pairwise(widths):
            layers += [nn.Linear(below, above), nn.ReLU()]
        mlp = nn.Sequential(*layers, nn.Linear(_NID_HIDDEN[-1], 1))
        effects = _MainEffects(x.shape[1]) if main else None
        held, train = torch.tensor_split(torch.randperm(len(inputs)), [len(inputs) // 3])
        _train_nid(mlp, effects, (inputs[train], labels[train]), (inputs[held], labels[held]))
    return np.asarray(baselines.nid(mlp).scores)


def _train_nid(
    mlp: nn.Sequential, effects: nn.Module | None, train: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor]
) -> None:
    """Train until the error of the held-out rows has not fallen for some epochs; ``mlp`` gets its best weights."""
    parameters = [*mlp.parameters(), *(effects.parameters() if effects else ())]
    weights = [parameter for parameter in mlp.parameters() if parameter.ndim == 2]
    optimizer = torch.optim.Adam(parameters, lr=_NID_RATE)
    best, waited, state = float("inf"), 0, mlp.state_dict()

    def error(x: Tensor, y: Tensor) -> Tensor:
        out: Tensor = mlp(x) + (effects(x) if effects else 0)
        return (out - y).square().mean()

    for _ in range(_NID_EPOCHS):
        for batch in torch.split(torch.randperm(len(train[0])), _NID_BATCH):
            optimizer.zero_grad()
            penalty = sum((weight.abs().sum() for weight in weights), torch.zeros(()))
            (error(train[0][batch], train[1][batch]) + _NID_PENALTY * penalty).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            now = float(error(*held))
        if now < best:
            best, waited = now, 0
            state = {name: value.clone() for name, value in mlp.state_dict().items()}
        elif (waited := waited + 1) > _NID_PATIENCE:
            break
    mlp.load_state_dict(state)


def _sample(x: Floats, seed: int) -> tuple[Floats, Floats]:
    """Return points (k, D) and other rows (b, D) as their background."""
    chosen = np.random.default_rng(seed).choice(len(x), POINTS + BACKGROUND, replace=False)
    return x[chosen[:POINTS]], x[chosen[POINTS:]]


def import_package(name: str) -> Any:
    """Return a package of a peer, or raise GEHRuntimeError that says how to install it."""
    import importlib

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError as error:
        raise GEHRuntimeError(
            f"the study of yardsticks needs {name} ({error}); pip install 'geh-explain[study-yardsticks]'."
        ) from error
