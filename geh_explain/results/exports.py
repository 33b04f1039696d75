"""Conversion of a result to networkx graphs, xarray data sets and CSV files."""

from __future__ import annotations

import csv
import importlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain._validation import check_output_file
from geh_explain.errors import GEHRuntimeError
from geh_explain.scores.decisions import Decisions
from geh_explain.scores.pair_names import join_names
from geh_explain.scores.protocol import PairResult
from geh_explain.storage.whole import write_whole

if TYPE_CHECKING:
    import pandas as pd

#: Text that spreadsheets take for a formula; page.js has the same expression.
_FORMULA = re.compile(r"[\s\uFEFF]*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]|[\t\r\n]")


def to_networkx(result: PairResult, decisions: Decisions) -> Any:
    """Return a ``networkx.Graph`` with units as nodes and all computed pairs as edges.

    Edges have the columns of the table as attributes, the score that orders the pairs as ``weight``, and ``sign``: 1,
    -1 or 0, the sign of the effect in most of the data. Attributes of the graph are measure, level, rule and fdr.
    """
    networkx = _import("networkx")
    measure, level, fdr, rule = decisions.measure, decisions.level, decisions.fdr, decisions.rule
    graph = networkx.Graph(measure=measure, level=level, rule=rule, fdr=fdr)
    graph.add_nodes_from(result.names)
    signs, weights = (
        dict(zip(_pairs(result), values.tolist(), strict=True))
        for values in (result.majority_signs(), decisions.strength)
    )
    for row in result.table(measure, level, fdr, rule=rule).to_dict("records"):
        attributes = {str(key): value for key, value in row.items()}
        pair = attributes.pop("unit_i"), attributes.pop("unit_j")
        graph.add_edge(*pair, weight=weights[pair], sign=signs[pair], **attributes)
    return graph


def to_xarray(result: PairResult, decisions: Decisions) -> Any:
    """Return an ``xarray.Dataset`` with the draws of all measures, dimensions (chain, draw, pair).

    There is one chain, so that ArviZ accepts the data set. Names of the units and decisions are coordinates of the
    pairs. Its attributes are the scalar settings of the run.
    """
    xarray = _import("xarray")
    pairs = _pairs(result)
    coordinates = {
        "chain": [0],
        "draw": np.arange(result.scores("geh").n_draws),
        "pair": [join_names(i, j) for i, j in pairs],
        "unit_i": ("pair", [i for i, _ in pairs]),
        "unit_j": ("pair", [j for _, j in pairs]),
    }
    coordinates |= {name: ("pair", values) for name, values in _decided(result, decisions).items()}
    draws = {name: (("chain", "draw", "pair"), result.scores(name).draws[None]) for name in result.measures}
    # Nested values are left out, as attributes of netCDF files cannot hold them.
    scalars = {key: value for key, value in result.settings.items() if isinstance(value, (str, int, float))}
    return xarray.Dataset(draws, coordinates, attrs=scalars)


def write_csv(table: pd.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Write the table of a result to a CSV file, whole or not at all, and return its path.

    Text is quoted, and names that a spreadsheet would take for a formula get an apostrophe.
    """
    file_path = check_output_file("path", path, ".csv")
    neutral = table.assign(**{name: table[name].map(neutralise) for name in ("unit_i", "unit_j")})
    with write_whole(file_path) as file:
        neutral.to_csv(file, index=False, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n", mode="wb")
    return file_path


def neutralise(text: str) -> str:
    """Return text that no spreadsheet takes for a formula: an apostrophe before it keeps it text.

    >>> neutralise("=SUM(A1)"), neutralise("age")
    ("'=SUM(A1)", 'age')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def _decided(result: PairResult, decisions: Decisions) -> dict[str, Any]:
    """Return the columns (P,) of the table after its intervals, in row-major order; no column of missing decisions."""
    columns: dict[str, Any] = {} if decisions.accepted is None else {decisions.column: decisions.accepted}
    if decisions.rule != "sign":
        columns["p_value"] = decisions.p_value
    if decisions.rule == "evidence" and result.evidence is not None:
        evidence = result.evidence
        columns |= {"supported": decisions.supported, "slope": evidence.slope, "slope_se": evidence.slope_se}
    return columns


def _pairs(result: PairResult) -> list[tuple[str, str]]:
    """Return the names of the pairs, in row-major order i < j."""
    i, j = result.pairs.ends
    return [(result.names[a], result.names[b]) for a, b in zip(i, j, strict=True)]


def _import(package: str) -> Any:
    """Return an optional package, or raise how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise GEHRuntimeError(f"{package} is not installed; `pip install {package}` adds it.") from error
