"""A result in the forms of other packages: graphs and labelled arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain.errors import GEHRuntimeError
from geh_explain.scores.draws import MEASURES

if TYPE_CHECKING:
    from geh_explain.results.interactions import Interactions


def to_networkx(result: Interactions, measure: str, level: float) -> Any:
    """Return a graph: units as nodes, pairs as edges, with what the table says of them."""
    networkx = _needed("networkx")
    graph = networkx.Graph(measure=measure, level=level)
    graph.add_nodes_from(result.names)
    signs = dict(zip(_pairs(result), result.majority_signs().tolist(), strict=True))
    for row in result.table(measure, level).to_dict("records"):
        about = {str(key): value for key, value in row.items()}
        pair = about.pop("unit_i"), about.pop("unit_j")
        graph.add_edge(*pair, weight=about["mean"], sign=signs[pair], **about)
    return graph


def to_xarray(result: Interactions) -> Any:
    """Return the draws as a data set (chain, draw, pair)."""
    xarray = _needed("xarray")
    pairs = _pairs(result)
    coordinates = {
        "chain": [0],
        "draw": np.arange(result.geh.count),
        "pair": [f"{i} × {j}" for i, j in pairs],
        "unit_i": ("pair", [i for i, _ in pairs]),
        "unit_j": ("pair", [j for _, j in pairs]),
    }
    draws = {name: (("chain", "draw", "pair"), result.scores(name).draws[None]) for name in MEASURES}
    plain = {key: value for key, value in result.settings.items() if isinstance(value, (str, int, float))}
    return xarray.Dataset(draws, coordinates, attrs=plain)


def _pairs(result: Interactions) -> list[tuple[str, str]]:
    i, j = np.triu_indices(len(result.names), 1)
    return [(result.names[a], result.names[b]) for a, b in zip(i, j, strict=True)]


def _needed(package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise GEHRuntimeError(f"{package} is not installed; `pip install {package}` adds it.") from error
