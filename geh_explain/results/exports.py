"""Conversion of a result to networkx graphs and xarray data sets."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from geh_explain.errors import GEHRuntimeError
from geh_explain.scores.draws import MEASURES
from geh_explain.scores.protocol import PairResult


def to_networkx(result: PairResult, measure: str, level: float) -> Any:
    """Return a ``networkx.Graph`` with units as nodes and all pairs as edges.

    Edges have the columns of the table at ``level`` as attributes, the mean also as ``weight``, and ``sign``: 1, -1 or
    0, the sign of the effect in most of the data.
    """
    networkx = _import("networkx")
    graph = networkx.Graph(measure=measure, level=level)
    graph.add_nodes_from(result.names)
    signs = dict(zip(_pairs(result), result.majority_signs().tolist(), strict=True))
    for row in result.table(measure, level).to_dict("records"):
        attributes = {str(key): value for key, value in row.items()}
        pair = attributes.pop("unit_i"), attributes.pop("unit_j")
        graph.add_edge(*pair, weight=attributes["mean"], sign=signs[pair], **attributes)
    return graph


def to_xarray(result: PairResult) -> Any:
    """Return an ``xarray.Dataset`` with the draws of all measures, dimensions (chain, draw, pair).

    There is one chain, so that ArviZ accepts the data set. Its attributes are the scalar settings of the run.
    """
    xarray = _import("xarray")
    pairs = _pairs(result)
    coordinates = {
        "chain": [0],
        "draw": np.arange(result.scores("geh").n_draws),
        "pair": [f"{i} × {j}" for i, j in pairs],
        "unit_i": ("pair", [i for i, _ in pairs]),
        "unit_j": ("pair", [j for _, j in pairs]),
    }
    draws = {name: (("chain", "draw", "pair"), result.scores(name).draws[None]) for name in MEASURES}
    # Nested values are left out, as attributes of netCDF files cannot hold them.
    scalars = {key: value for key, value in result.settings.items() if isinstance(value, (str, int, float))}
    return xarray.Dataset(draws, coordinates, attrs=scalars)


def _pairs(result: PairResult) -> list[tuple[str, str]]:
    """Return the names of all pairs, in row-major order i < j."""
    i, j = np.triu_indices(len(result.names), 1)
    return [(result.names[a], result.names[b]) for a, b in zip(i, j, strict=True)]


def _import(package: str) -> Any:
    """Return an optional package, or raise how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise GEHRuntimeError(f"{package} is not installed; `pip install {package}` adds it.") from error
