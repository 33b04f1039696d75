"""Interactions of other kinds, for what they cost: none of them is a second derivative at a point."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.timing import Contestant, counted

BUDGET = 256
#: Nodes of the path integral: 16 give it to all digits of single precision.
NODES = 16
#: Up to this many units all coalitions can be asked.
MOST_EXACT = 10

Batch = NDArray[np.float32]


def others(
    function: Callable[[Tensor], Tensor], x: Tensor, baseline: Tensor, few: tuple[int, int, int]
) -> dict[str, Contestant]:
    """Return SHAP, shapiq and integrated Hessians of ``function`` (n, D) -> (n,), each on a few of the points ``x``.

    ``baseline`` (1, D) is what units are when they are off, ``few`` are the points of each; SHAP takes part where all
    coalitions of units can be asked.
    """
    found = {
        f"integrated Hessians, {NODES} nodes": _few(
            lambda some: integrated_hessians(function, some, baseline), x, few[2]
        )
    }
    shapiq, shap = installed("shapiq"), installed("shap")
    if shapiq is not None:
        found[f"shapiq k-SII, budget {BUDGET}"] = _few(_shapiq(shapiq, function, baseline), x, few[1])
    if shap is not None and x.shape[1] <= MOST_EXACT:
        found["SHAP, exact interactions"] = _few(_shap(shap, function, baseline), x, few[0])
    return found


def skipped() -> list[str]:
    """Say which of the packages are not there."""
    missing = [name for name in ("shapiq", "shap") if installed(name) is None]
    return [f"{name} is not installed, and was left out; pip install 'geh-explain[bench]'" for name in missing]


def installed(name: str) -> ModuleType | None:
    """Return an optional package, None if it is not there."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError:
        return None


def integrated_hessians(function: Callable[[Tensor], Tensor], x: Tensor, baseline: Tensor) -> Tensor:
    """Return the path-integrated interactions (n, D, D) of Janizek, Sturmfels and Lee (2021), pairs only.

    These are (x - b)_i (x - b)_j times the double integral of a c H_ij(b + a c (x - b)) over a and c in (0, 1). The
    Hessian depends on u = a c alone, so it is one of -u log(u) H_ij(b + u (x - b)) over u: far fewer Hessians.
    """
    nodes, lengths = (torch.from_numpy(numbers) for numbers in np.polynomial.legendre.leggauss(NODES))
    u = (nodes + 1) / 2
    weights = (-u * u.log() * lengths / 2).to(x)
    difference = x - baseline
    path = (baseline[None] + u.to(x)[:, None, None] * difference[None]).flatten(0, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(function(path).sum(), path, create_graph=True)
    rows = []
    for unit in torch.eye(x.shape[1]):
        (row,) = torch.autograd.grad(gradient, path, unit.expand_as(path), retain_graph=True)
        rows.append(torch.einsum("u,und->nd", weights, row.reshape(NODES, *x.shape)))
    return torch.stack(rows, dim=1) * difference[:, :, None] * difference[:, None, :]


def _shapiq(
    shapiq: ModuleType, function: Callable[[Tensor], Tensor], baseline: Tensor
) -> Callable[[Tensor], list[Any]]:
    """Return shapiq's k-SII of order 2; its Monte Carlo estimator is the quickest that estimates every pair."""

    def explain(x: Tensor) -> list[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            explainer = shapiq.TabularExplainer(
                _of_arrays(function),
                baseline.numpy(),
                imputer="baseline",
                approximator="montecarlo",
                index="k-SII",
                max_order=2,
                random_state=0,
            )
            return [explainer.explain(point, budget=BUDGET) for point in x.numpy()]

    return explain


def _shap(shap: ModuleType, function: Callable[[Tensor], Tensor], baseline: Tensor) -> Callable[[Tensor], Any]:
    """Return SHAP's interaction values over all coalitions."""

    def explain(x: Tensor) -> Any:
        masker = shap.maskers.Independent(baseline.numpy(), max_samples=1)
        return shap.explainers.Exact(_of_arrays(function), masker)(x.numpy(), interactions=True, silent=True)

    return explain


def _of_arrays(function: Callable[[Tensor], Tensor]) -> Callable[[Batch], Batch]:
    @torch.no_grad()
    def call(x: Batch) -> Batch:
        values: Batch = function(torch.from_numpy(np.asarray(x, dtype=np.float32))).numpy()
        return values

    return call


def _few(explain: Callable[[Tensor], Any], x: Tensor, count: int) -> Contestant:
    return Contestant(lambda: explain(x[:count]), None, len(x) / count, counted(count, "point"))
