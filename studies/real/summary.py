"""What the study of real data found, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from geh_explain.inference import PermutationTest, bayesian_p_value
from geh_explain.inference.jsonl import Record
from geh_explain.results.interactions import Interactions
from studies.real.experiment import CONCRETE, MEAN_FIELD, Tested

#: How many of the strongest pairs are told.
TOP = 3


@dataclass(frozen=True)
class Findings:
    """All that the page tells; ``strongest`` has for each data set its pairs by scores as they are, and scaled."""

    false_positives: pd.DataFrame
    ranks: pd.DataFrame
    strongest: dict[str, tuple[pd.DataFrame, pd.DataFrame]]
    explained: dict[str, float]

    @classmethod
    def of(cls, tested: Mapping[str, Tested], records: Sequence[Record]) -> Findings:
        """Gather it."""
        return cls(
            pd.concat(
                [
                    _rates(name, posterior, test)
                    for name, each in tested.items()
                    for posterior, test in ((MEAN_FIELD, each.raw), (CONCRETE, each.concrete))
                ]
            ),
            ranks(records),
            {name: (_pairs(each.result, each.raw), _pairs(each.result, each.scaled)) for name, each in tested.items()},
            {name: each.explained for name, each in tested.items()},
        )

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return what is written to files."""
        pairs = [
            each.assign(data=name, scaled=scaled)
            for name, both in self.strongest.items()
            for scaled, each in zip((False, True), both, strict=True)
        ]
        return {"false_positives": self.false_positives, "ranks": self.ranks, "pairs": pd.concat(pairs)}


def _rates(name: str, posterior: str, test: PermutationTest) -> pd.DataFrame:
    """Return the share of pairs called significant on permuted targets, and its standard error."""
    rows = []
    about = {"data": name, "posterior": posterior, "permutations": len(test.kept)}
    rates = pd.DataFrame(test.kept).drop(columns="scaled")
    for column in rates:
        measure, rule = str(column).split()
        mean, error = float(rates[column].mean()), float(rates[column].std() / np.sqrt(len(rates)))
        rows.append({**about, "measure": measure, "rule": rule, "rate": mean, "error": error})
    return pd.DataFrame(rows)


def ranks(records: Sequence[Record]) -> pd.DataFrame:
    """Return the rank of the injected pair, a row for each data set, form, share and method."""
    return pd.DataFrame(
        [
            {"method": method, "rank": rank, **{key: record[key] for key in ("data", "form", "share", "pairs")}}
            for record in records
            for method, rank in record["ranks"].items()
        ]
    )


def mean_ranks(table: pd.DataFrame) -> pd.DataFrame:
    """Return the mean rank over forms and shares, methods by data sets."""
    wide = table.pivot_table(index="method", columns="data", values="rank", aggfunc="mean")
    return wide.reindex(index=table["method"].unique(), columns=table["data"].unique())


def _pairs(result: Interactions, test: PermutationTest) -> pd.DataFrame:
    """Return all pairs, the strongest first: score and interval in the units of the test, and three p-values.

    ``test`` may be of scores that are multiplied by what makes pairs comparable; intervals are multiplied alike.
    """
    low, high = result.geh.pair_interval(0.95)
    factor = test.observed.scores / np.maximum(result.geh.pair_mean, 1e-300)
    i, j = np.triu_indices(len(result.names), 1)
    found = pd.DataFrame(
        {
            "unit_i": [result.names[each] for each in i],
            "unit_j": [result.names[each] for each in j],
            "score": test.observed.scores,
            "low": low * factor,
            "high": high * factor,
            "p_bayes": bayesian_p_value(result.geh.pair_mean, result.geh.pair_std),
            "p_sign": result.sign_p_values(),
            "p_permutation": test.p_values,
        }
    )
    return found.sort_values("score", ascending=False, kind="stable", ignore_index=True)
