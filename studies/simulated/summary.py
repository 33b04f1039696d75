"""From the records of all data sets to tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from geh_explain import inference
from geh_explain._types import Floats
from geh_explain.datasets import simulation as data
from geh_explain.inference.jsonl import Record
from geh_explain.scores.ranking import PairRanking
from studies.simulated.experiment import MEASURES

Flags = NDArray[np.bool_]

#: Which of the seven pairs cancel in the mean over all points.
CANCELLING = {(1, 2): "h2", (5, 6): "h6"}
_LEVEL = 0.95


def tidy(records: Iterable[Record]) -> pd.DataFrame:
    """Return one row per data set and method: ranks, error rates, coverage."""
    return pd.DataFrame([row for record in records for row in _rows(record)])


def _rows(record: Record) -> Iterable[dict[str, Any]]:
    base = {"sn": record["sn"], "seed": record["seed"]}
    # In a target of noise alone no pair interacts.
    truth = data.TRUTH if record["sn"] > 0 else np.zeros_like(data.TRUTH)
    for posterior, scores in record["scores"].items():
        about = {"seconds": record["seconds"].get(f"fit {posterior}"), "error": record["errors"].get(posterior)}
        for measure in MEASURES:
            mean, std = (np.asarray(scores[measure][part]) for part in ("mean", "std"))
            own = {"method": measure.upper(), "posterior": posterior, **_ranked(mean, truth)}
            own |= _intervals(mean, std, np.asarray(record["truth"][measure]), truth)
            if measure == "geh":
                rates = inference.error_rates(np.asarray(record["sign"][posterior]) < 1 - _LEVEL, truth)
                own |= dict(zip(("sign_fpr", "sign_fnr"), rates, strict=True))
            yield {**base, **own, **about}
    for method, values in record["ranked"].items():
        about = {"seconds": record["seconds"].get(method)}
        yield {**base, "method": method, "posterior": "", **_ranked(np.asarray(values), truth), **about}


def _ranked(scores: Floats, truth: Flags) -> dict[str, float]:
    """Return the mean rank of the seven pairs (chance in noise alone), and the area under the ROC curve."""
    ranks = PairRanking("", scores, data.NAMES).ranks
    area = inference.auc(scores, truth) if truth.any() else float("nan")
    return {"mean_rank": float(ranks[data.TRUTH].mean()), "auc": area}


def _intervals(mean: Floats, std: Floats, true_scores: Floats, truth: Flags) -> dict[str, float]:
    """Return what the paper's rule decides, and how often intervals hold the truth."""
    low, high = inference.gaussian_interval(mean, std, _LEVEL)
    significant = low > 0
    false_positives, misses = inference.error_rates(significant, truth)
    return {
        "fpr": false_positives,
        "fnr": misses,
        "coverage": inference.coverage(low[truth], high[truth], true_scores[truth]),
        **{
            f"misses_{name}": float(not significant[position(pair)]) if truth.any() else float("nan")
            for pair, name in CANCELLING.items()
        },
    }


def position(pair: tuple[int, int]) -> int:
    """Return where a pair stands among all."""
    return list(zip(data.FIRST.tolist(), data.SECOND.tolist(), strict=True)).index(pair)


def averaged(table: pd.DataFrame, column: str, *by: str) -> pd.DataFrame:
    """Return mean, standard error and count of a column, over the rows that have it."""
    grouped = table.dropna(subset=[column]).groupby(list(by), sort=False)[column]
    return grouped.agg(["mean", "sem", "count"])
