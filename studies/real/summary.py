"""Results of the study of real data as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from geh_explain.inference import PermutationTest, bayesian_p_value
from geh_explain.inference.jsonl import Record
from geh_explain.results.interactions import Interactions
from studies.real.experiment import CONCRETE, MEAN_FIELD, DataSetTests

#: Number of strongest pairs on the page.
TOP = 3


@dataclass(frozen=True)
class Findings:
    """Contents of the page.

    Attributes
    ----------
    false_positives
        False positive rates on permuted targets: one row per data set, posterior, measure and rule.
    ranks
        Ranks of the injected pairs: one row per data set, form, share and method.
    strongest
        For each data set, all pairs ordered by their scores, and by their scaled scores.
    explained
        For each data set, the share of the held-out variance that the network explains.
    """

    false_positives: pd.DataFrame
    ranks: pd.DataFrame
    strongest: dict[str, tuple[pd.DataFrame, pd.DataFrame]]
    explained: dict[str, float]

    @classmethod
    def collect(cls, tests: Mapping[str, DataSetTests], records: Sequence[Record]) -> Findings:
        """Return the findings from the tests of each data set and the records of injected interactions."""
        return cls(
            pd.concat(
                [
                    _false_positive_rates(name, posterior, permutations)
                    for name, test in tests.items()
                    for posterior, permutations in ((MEAN_FIELD, test.raw), (CONCRETE, test.concrete))
                ]
            ),
            rank_table(records),
            {
                name: (pair_table(test.result, test.raw), pair_table(test.result, test.scaled))
                for name, test in tests.items()
            },
            {name: test.explained for name, test in tests.items()},
        )

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the tables that are written to files, by the suffix of the file name."""
        pairs = [
            table.assign(data=name, scaled=scaled)
            for name, both in self.strongest.items()
            for scaled, table in zip((False, True), both, strict=True)
        ]
        return {"false_positives": self.false_positives, "ranks": self.ranks, "pairs": pd.concat(pairs)}


def _false_positive_rates(name: str, posterior: str, test: PermutationTest) -> pd.DataFrame:
    """Return the share of pairs that are significant on permuted targets, and its standard error over permutations."""
    rows = []
    key = {"data": name, "posterior": posterior, "permutations": len(test.kept)}
    rates = pd.DataFrame(test.kept).drop(columns="scaled")
    for column in rates:
        measure, rule = str(column).split()
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


def pair_table(result: Interactions, test: PermutationTest) -> pd.DataFrame:
    """Return all pairs, strongest first: score and interval on the scale of ``test``, and three p-values.

    ``test`` may be of scaled scores; intervals are multiplied by the same factors.
    """
    low, high = result.geh.pair_interval(0.95)
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
        }
    )
    return table.sort_values("score", ascending=False, kind="stable", ignore_index=True)
