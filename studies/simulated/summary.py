"""Records of the simulated study as tables."""

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
from geh_explain.scores.evidence import Evidence
from geh_explain.scores.ranking import PairRanking
from geh_explain.statistics.p_values import discoveries
from studies.simulated.experiment import LEVEL, MEASURES

#: One truth value per pair (P,).
Flags = NDArray[np.bool_]

#: True pairs whose interaction changes sign and cancels in the mean over all points, with their names.
CANCELLING = {(1, 2): "h2", (5, 6): "h6"}
#: Method of the table whose scores are GEH times the expected slope of the held-out test.
SUPPORTED = "supported"


def tabulate(records: Iterable[Record]) -> pd.DataFrame:
    """Return one row per data set and method: mean rank, AUC, error rates, coverage, seconds."""
    return pd.DataFrame([row for record in records for row in _table_rows(record)])


def _table_rows(record: Record) -> Iterable[dict[str, Any]]:
    """Yield the rows of one data set."""
    base = {"sn": record["sn"], "seed": record["seed"]}
    # No pair interacts where the target is noise alone.
    truth = data.TRUTH if record["sn"] > 0 else np.zeros_like(data.TRUTH)
    for posterior, scores in record["scores"].items():
        fit = {"seconds": record["seconds"].get(f"fit {posterior}"), "error": record["errors"].get(posterior)}
        for measure in MEASURES:
            mean, std = (np.asarray(scores[measure][part]) for part in ("mean", "std"))
            true_scores = np.where(truth, record["truth"][measure], 0.0)
            row = {"method": measure.upper(), "posterior": posterior, **_ranking_quality(mean, truth)}
            row |= _interval_quality(mean, std, true_scores, truth)
            if measure == "geh":
                rates = inference.error_rates(np.asarray(record["sign"][posterior]) < 1 - LEVEL, truth)
                row |= dict(zip(("sign_fpr", "sign_fnr"), rates, strict=True))
                row |= _evidence_quality(record["evidence"][posterior], true_scores, truth)
            yield {**base, **row, **fit}
        row = {"method": SUPPORTED, "posterior": posterior}
        yield {**base, **row, **_ranking_quality(supported_scores(record, posterior), truth), **fit}
    for method, values in record["ranked"].items():
        row = {"method": method, "posterior": "", **_ranking_quality(np.asarray(values), truth)}
        yield {**base, **row, "seconds": record["seconds"].get(method)}


def supported_scores(record: Record, posterior: str) -> Floats:
    """Return the supported scores (P,) of all pairs: GEH times the expected slope."""
    slope, se, p_value = (np.asarray(record["evidence"][posterior][name]) for name in ("slope", "slope_se", "p_value"))
    shrinkage = Evidence(slope, se, p_value, n_rows=0).shrinkage
    return np.asarray(shrinkage * np.asarray(record["scores"][posterior]["geh"]["mean"]))


def _ranking_quality(scores: Floats, truth: Flags) -> dict[str, float]:
    """Return the mean rank of the seven true pairs, and the area under the ROC curve (NaN without true pairs)."""
    ranks = PairRanking("", scores, data.NAMES).ranks
    area = inference.auc(scores, truth) if truth.any() else float("nan")
    return {"mean_rank": float(ranks[data.TRUTH].mean()), "auc": area}


def _interval_quality(mean: Floats, std: Floats, true_scores: Floats, truth: Flags) -> dict[str, float]:
    """Return the error rates of the paper's rule (the interval excludes 0), and the coverage of the intervals."""
    low, high = inference.gaussian_interval(mean, std, LEVEL)
    significant = low > 0
    false_positives, misses = inference.error_rates(significant, truth)
    return {
        "fpr": false_positives,
        "fnr": misses,
        **_coverages(low, high, true_scores, truth),
        **{
            f"misses_{name}": float(not significant[pair_index(pair)]) if truth.any() else float("nan")
            for pair, name in CANCELLING.items()
        },
    }


def _evidence_quality(evidence: Record, true_scores: Floats, truth: Flags) -> dict[str, float]:
    """Return the error rates of the held-out test, single and at a false discovery rate, and its intervals' coverage.

    The rule of single tests is p < 0.05. The realised false discovery rate is the share of null pairs among the
    discoveries, 0 if there are none.
    """
    p_values, low, high = (np.asarray(evidence[name]) for name in ("p_value", "true_low", "true_high"))
    false_positives, misses = inference.error_rates(p_values < 1 - LEVEL, truth)
    found = discoveries(p_values, 1 - LEVEL)
    return {
        "evidence_fpr": false_positives,
        "evidence_fnr": misses,
        "fdr": float((found & ~truth).sum() / max(1, found.sum())),
        "fdr_fnr": inference.error_rates(found, truth)[1],
        **{f"evidence_{name}": share for name, share in _coverages(low, high, true_scores, truth).items()},
    }


def _coverages(low: Floats, high: Floats, true_scores: Floats, truth: Flags) -> dict[str, float]:
    """Return the shares of the intervals of true pairs and of null pairs that contain the true score."""
    return {
        name: inference.coverage(low[chosen], high[chosen], true_scores[chosen])
        for name, chosen in (("coverage", truth), ("coverage_null", ~truth))
    }


def pair_index(pair: tuple[int, int]) -> int:
    """Return the index of a pair (i, j) among all pairs, in row-major order i < j."""
    return list(zip(data.FIRST.tolist(), data.SECOND.tolist(), strict=True)).index(pair)


def average(table: pd.DataFrame, column: str, *by: str) -> pd.DataFrame:
    """Return mean, standard error and count of a column for each value of ``by``, over the rows that are not NaN."""
    grouped = table.dropna(subset=[column]).groupby(list(by), sort=False)[column]
    return grouped.agg(["mean", "sem", "count"])
