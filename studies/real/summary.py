"""Results of the study of real data as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from geh_explain.inference import PermutationTest, bayesian_p_value
from geh_explain.inference.jsonl import Record
from geh_explain.results.interactions import Interactions
from geh_explain.statistics.p_values import discoveries
from studies.real.experiment import ADDITIVE, CONCRETE, LEVEL, MEAN_FIELD, DataSetTests

#: Number of strongest pairs on the page.
TOP = 3
#: Kinds of targets without interactions.
PERMUTED = "permuted"
#: Orders of the strongest pairs: by GEH, by GEH times the features' standard deviations, and by its supported part.
AS_THEY_ARE, SCALED, SUPPORTED = "as they are", "scaled", "scaled, supported"


@dataclass(frozen=True)
class Findings:
    """Contents of the page.

    Attributes
    ----------
    false_positives
        False positive rates on targets without interactions: one row per data set, kind of target, posterior, measure
        and rule.
    ranks
        Ranks of the injected pairs: one row per data set, form, share and method.
    strongest
        For each data set and order, all pairs.
    explained
        For each data set, the share of the held-out variance that the network explains.
    held_out, unseen
        For each data set, the number of rows whose labels test the pairs, and of all rows that training did not use.
    """

    false_positives: pd.DataFrame
    ranks: pd.DataFrame
    strongest: dict[str, dict[str, pd.DataFrame]]
    explained: dict[str, float]
    held_out: dict[str, int]
    unseen: dict[str, int]

    @classmethod
    def collect(cls, tests: Mapping[str, DataSetTests], records: Sequence[Record]) -> Findings:
        """Return the findings from the tests of each data set and the records of injected interactions."""
        return cls(
            pd.concat(
                [
                    _false_positive_rates(name, target, posterior, refits)
                    for name, test in tests.items()
                    for target, posterior, refits in (
                        (PERMUTED, MEAN_FIELD, test.raw),
                        (PERMUTED, CONCRETE, test.concrete),
                        (ADDITIVE, MEAN_FIELD, test.additive),
                    )
                ]
            ),
            rank_table(records),
            {name: _pair_tables(test) for name, test in tests.items()},
            {name: test.explained for name, test in tests.items()},
            {name: test.result.evidence.n_rows for name, test in tests.items() if test.result.evidence},
            {name: test.unseen for name, test in tests.items()},
        )

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the tables that are written to files, by the suffix of the file name."""
        pairs = [
            tables[order].assign(data=name, scaled=order == SCALED)
            for name, tables in self.strongest.items()
            for order in (AS_THEY_ARE, SCALED)
        ]
        return {"false_positives": self.false_positives, "ranks": self.ranks, "pairs": pd.concat(pairs)}


def _false_positive_rates(name: str, target: str, posterior: str, test: PermutationTest) -> pd.DataFrame:
    """Return the share of pairs that are significant on targets without interactions, and its error over targets."""
    rows = []
    key = {"data": name, "target": target, "posterior": posterior, "refits": len(test.kept)}
    rates = pd.DataFrame(test.kept).drop(columns="scaled")
    for column in rates:
        measure, rule = str(column).split(maxsplit=1)
        mean, error = float(rates[column].mean()), float(rates[column].std() / np.sqrt(len(rates)))
        rows.append({**key, "measure": measure, "rule": rule, "rate": mean, "error": error})
    return pd.DataFrame(rows)


def rank_table(records: Sequence[Record]) -> pd.DataFrame:
    """Return the rank of the injected pair: one row per data set, form, share and method."""
    return pd.DataFrame(
        [
            {"method": method, "rank": rank, **{key: record[key] for key in ("data", "form", "share", "pairs")}}
            for record in records
            for method, rank in record["ranks"].items()
        ]
    )


def mean_ranks(table: pd.DataFrame) -> pd.DataFrame:
    """Return the mean rank over forms and shares: methods in rows, data sets in columns."""
    wide = table.pivot_table(index="method", columns="data", values="rank", aggfunc="mean")
    return wide.reindex(index=table["method"].unique(), columns=table["data"].unique())


def _pair_tables(tests: DataSetTests) -> dict[str, pd.DataFrame]:
    """Return the pairs of a data set in each order."""
    scaled = pair_table(tests.result, tests.scaled)
    return {
        AS_THEY_ARE: pair_table(tests.result, tests.raw),
        SCALED: scaled,
        SUPPORTED: scaled.sort_values("supported", ascending=False, kind="stable", ignore_index=True),
    }


def pair_table(result: Interactions, test: PermutationTest) -> pd.DataFrame:
    """Return all pairs, strongest first: score and interval on the scale of ``test``, p-values, and the held-out test.

    ``test`` may be of scaled scores; intervals are multiplied by the same factors.
    """
    low, high = result.geh.pair_interval(LEVEL)
    evidence = result.evidence
    assert evidence is not None
    factor = test.observed.scores / np.maximum(result.geh.pair_mean, 1e-300)
    i, j = np.triu_indices(len(result.names), 1)
    table = pd.DataFrame(
        {
            "unit_i": [result.names[unit] for unit in i],
            "unit_j": [result.names[unit] for unit in j],
            "score": test.observed.scores,
            "low": low * factor,
            "high": high * factor,
            "p_bayes": bayesian_p_value(result.geh.pair_mean, result.geh.pair_std),
            "p_sign": result.sign_p_values(),
            "p_permutation": test.p_values,
            "supported": test.observed.scores * evidence.shrinkage,
            "slope": evidence.slope,
            "slope_se": evidence.slope_se,
            "p_value": evidence.p_value,
            "significant": discoveries(evidence.p_value, 1 - LEVEL),
        }
    )
    return table.sort_values("score", ascending=False, kind="stable", ignore_index=True)
