"""Records of the study of decisions as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geh_explain import inference
from geh_explain._types import Floats
from geh_explain.inference.jsonl import Record
from geh_explain.scores.evidence import Evidence
from geh_explain.scores.ranking import PairRanking
from geh_explain.statistics.p_values import discoveries

#: Level of single tests.
LEVEL = 0.05
#: False discovery rates.
RATES = (0.05, 0.2)
#: Shrinkage factors of the score that are compared: functions of slope, standard error and p-value.
SHRINKAGE: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "GEH alone": lambda slope, se, p: np.ones_like(slope),
    "clipped slope": lambda slope, se, p: np.clip(slope, 0, 1),
    "slope, prior N(0.5, 0.25)": lambda slope, se, p: np.clip((2 + slope / se**2) / (4 + 1 / se**2), 0, 1),
    "1 - p": lambda slope, se, p: 1 - p,
    "supported: expected slope": lambda slope, se, p: Evidence(slope, se, p, 1).shrinkage,
}


def tabulate(data_sets: Iterable[Record]) -> pd.DataFrame:
    """Return one row per data set: level, false discovery rates, power, and where measured ranks and coverage."""
    return pd.DataFrame([_row(data_set) for data_set in data_sets])


def _row(data_set: Record) -> dict[str, Any]:
    """Return the row of one data set; what it cannot measure is NaN."""
    p_values, interacts = np.array(data_set["p_value"]), np.array(data_set["interacts"])
    row: dict[str, Any] = {
        "scenario": data_set["scenario"],
        "seed": data_set["seed"],
        "level": _mean(p_values[~interacts] < LEVEL),
        "power": _mean(p_values[interacts] < LEVEL),
        "fit_seconds": data_set["fit_seconds"],
        "seconds": data_set["seconds"],
    }
    for rate in RATES:
        found = discoveries(p_values, rate)
        row[f"fdr {rate:g}"] = float((found & ~interacts).sum() / max(1, found.sum()))
        row[f"power at fdr {rate:g}"] = _mean(found[interacts])
    if "geh" in data_set:
        row |= _score_quality(data_set, p_values, interacts)
    return row


def _score_quality(data_set: Record, p_values: Floats, interacts: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the quality of scores, true intervals and the oracle's test."""
    names = ("geh", "slope", "slope_se", "true", "low", "high", "oracle")
    geh, slope, se, true, low, high, oracle = (np.array(data_set[name], dtype=float) for name in names)
    covered = (true >= low) & (true <= high)
    row = {
        "oracle power": _mean(oracle[interacts] < LEVEL),
        "coverage": _mean(covered[interacts]),
        "coverage, no interaction": _mean(covered[~interacts]),
        "width": float(np.median((high - low)[interacts] / true[interacts])) if interacts.any() else np.nan,
    }
    for name, factor in SHRINKAGE.items():
        scores = np.nan_to_num(factor(slope, se, p_values)) * geh
        if interacts.any():
            units = [str(number) for number in range(8)]
            row[f"rank, {name}"] = float(PairRanking("", scores, units).ranks[interacts].mean())
            row[f"auc, {name}"] = inference.auc(scores, interacts)
        row[f"error, {name}"] = float(np.sqrt(np.mean((scores - true) ** 2)))
    return row


def _mean(values: NDArray[np.bool_]) -> float:
    """Return the share of true values, NaN for none."""
    return float(values.mean()) if len(values) else float("nan")


class Average(NamedTuple):
    """Mean of a column over the data sets of one scenario, and its standard error."""

    mean: float
    error: float


def averages(table: pd.DataFrame, column: str) -> dict[str, Average]:
    """Return the average of a column for each scenario that has any, in the order of the table."""
    known = table.dropna(subset=[column])
    columns = {
        name: known.loc[known["scenario"] == name, column].to_numpy(float) for name in known["scenario"].unique()
    }
    return {
        str(name): Average(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))
        for name, values in columns.items()
    }
