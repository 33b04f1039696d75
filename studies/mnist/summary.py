"""What the networks of the MNIST study read, as tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from geh_explain.datasets import TASKS
from geh_explain.inference.jsonl import Record
from studies.mnist.experiment import expected


def tidy(records: Sequence[Record]) -> pd.DataFrame:
    """Return a row for each network and pair."""
    rows = []
    for record in records:
        for rank, pair in enumerate(record["pairs"], start=1):
            (first, second), signs = pair["readings"], pair["signs"]
            rows.append(
                {
                    "recipe": record["recipe"],
                    "task": record["digits"],
                    "seed": record["seed"],
                    "accuracy": record["accuracy"],
                    "groups": record["groups"],
                    "pair": rank,
                    "reads_i": first[0],
                    "count_i": first[1],
                    "sign_i": signs[0],
                    "reads_j": second[0],
                    "count_j": second[1],
                    "sign_j": signs[1],
                    "of": first[2],
                    "mean": pair["mean"],
                    "low": pair["low"],
                    "high": pair["high"],
                    "as_expected": {first[0], second[0]} == set(expected(record["digits"])),
                    "digits_of_the_task": all(int(each[0][0]) in TASKS[record["digits"]] for each in (first, second)),
                }
            )
    return pd.DataFrame(rows)


def counts(table: pd.DataFrame) -> pd.DataFrame:
    """Return, for each recipe and task, how many networks read as expected, and with digits of the task only."""
    first = table[table["pair"] == 1].set_index(["recipe", "task", "seed"])
    related = table.groupby(["recipe", "task", "seed"])["digits_of_the_task"].all()
    found = pd.DataFrame(
        {
            "networks": 1,
            "as_expected": first["as_expected"].astype(int),
            "related": related.astype(int),
            "accurate": (first["accuracy"] >= 0.99).astype(int),
            "accuracy": first["accuracy"],
        }
    )
    found["both"] = found["as_expected"] * found["accurate"]
    how = dict.fromkeys(["networks", "as_expected", "related", "accurate", "both"], "sum") | {"accuracy": "mean"}
    return found.groupby(["recipe", "task"], sort=False).agg(how)
