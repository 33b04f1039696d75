"""Interactions of other kinds, timed for their cost: none of them is a second derivative at a point."""

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

from benchmarks.timing import Method, count_noun

#: Model evaluations per point of shapiq.
BUDGET = 256
#: Nodes of the path integral: 16 are exact to single precision.
NODES = 16
#: Maximal number of units for SHAP, which evaluates all coalitions.
MAX_EXACT_UNITS = 10

#: Rows (n, D) of SHAP and shapiq.
Batch = NDArray[np.float32]


def make_methods(
    function: Callable[[Tensor], Tensor], x: Tensor, baseline: Tensor, points: tuple[int, int, int]
) -> dict[str, Method]:
    """Return SHAP, shapiq and integrated Hessians as methods without answers.

    Parameters
    ----------
    function
        Maps units (n, D) to outputs (n,).
    x
        The points (N, D).
    baseline
        Values (1, D) of units that are switched off.
    points
        Number of points on which SHAP, shapiq and integrated Hessians are timed, in this order; costs are scaled to N.
        SHAP is left out above ``MAX_EXACT_UNITS`` units.
    """
    methods = {
        f"integrated Hessians, {NODES} nodes": _scaled_method(
            lambda rows: integrated_hessians(function, rows, baseline), x, points[2]
        )
    }
    shapiq, shap = import_optional("shapiq"), import_optional("shap")
    if shapiq is not None:
        methods[f"shapiq k-SII, budget {BUDGET}"] = _scaled_method(_shapiq(shapiq, function, baseline), x, points[1])
    if shap is not None and x.shape[1] <= MAX_EXACT_UNITS:
        methods["SHAP, exact interactions"] = _scaled_method(_shap(shap, function, baseline), x, points[0])
    return methods


def missing_notes() -> list[str]:
    """Return one note per package that is not installed."""
    missing = [name for name in ("shapiq", "shap") if import_optional(name) is None]
    return [f"{name} is not installed and was left out; pip install 'geh-explain[bench]'" for name in missing]


def import_optional(name: str) -> ModuleType | None:
    """Return an optional package, None if it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ImportError:
        return None


def integrated_hessians(function: Callable[[Tensor], Tensor], x: Tensor, baseline: Tensor) -> Tensor:
    """Return the path-integrated interactions (n, D, D) of Janizek, Sturmfels and Lee (2021), pairs only.

    They are (x - b)_i (x - b)_j times the double integral of a c H_ij(b + a c (x - b)) over a and c in (0, 1). The
    Hessian depends on u = a c alone, so this is the single integral of -u log(u) H_ij(b + u (x - b)) over u in (0, 1),
    which needs far fewer Hessians. Gauss-Legendre quadrature with ``NODES`` nodes computes it.
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
    """Return a function that computes shapiq's k-SII of order 2 for rows (n, D).

    The Monte Carlo estimator is the fastest one that estimates every pair.
    """

    def explain(x: Tensor) -> list[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            explainer = shapiq.TabularExplainer(
                _numpy_function(function),
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
    """Return a function that computes SHAP's interaction values over all coalitions for rows (n, D)."""

    def explain(x: Tensor) -> Any:
        masker = shap.maskers.Independent(baseline.numpy(), max_samples=1)
        return shap.explainers.Exact(_numpy_function(function), masker)(x.numpy(), interactions=True, silent=True)

    return explain


def _numpy_function(function: Callable[[Tensor], Tensor]) -> Callable[[Batch], Batch]:
    """Return ``function`` from arrays to arrays, without gradients."""

    @torch.no_grad()
    def call(x: Batch) -> Batch:
        values: Batch = function(torch.from_numpy(np.asarray(x, dtype=np.float32))).numpy()
        return values

    return call


def _scaled_method(explain: Callable[[Tensor], Any], x: Tensor, points: int) -> Method:
    """Return a method that is timed on the first ``points`` rows of ``x`` and scaled to all of them."""
    return Method(lambda: explain(x[:points]), None, len(x) / points, count_noun(points, "point"))
