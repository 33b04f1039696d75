"""Records of the MNIST study as tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from geh_explain.datasets import TASKS
from geh_explain.inference.jsonl import Record
from studies.mnist.experiment import expected_readings


def tabulate(records: Sequence[Record]) -> pd.DataFrame:
    """Return one row per network and pair: readings, signs of the output weights, score and interval.

    ``as_expected`` says whether the two nodes read as the task predicts, ``digits_of_the_task`` whether both read one
    of its digits.
    """
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
                    "as_expected": {first[0], second[0]} == set(expected_readings(record["digits"])),
                    "digits_of_the_task": all(
                        int(reading[0][0]) in TASKS[record["digits"]] for reading in (first, second)
                    ),
                }
            )
    return pd.DataFrame(rows)


def count_networks(table: pd.DataFrame) -> pd.DataFrame:
    """Return numbers of networks per recipe and task, and their mean accuracy.

    ``as_expected``: the strongest pair reads as the task predicts. ``related``: all pairs read digits of the task only.
    ``accurate``: at least 99 % of held-out pairs are right. ``both``: as expected and accurate.
    """
    first = table[table["pair"] == 1].set_index(["recipe", "task", "seed"])
    related = table.groupby(["recipe", "task", "seed"])["digits_of_the_task"].all()
    outcomes = pd.DataFrame(
        {
            "networks": 1,
            "as_expected": first["as_expected"].astype(int),
            "related": related.astype(int),
            "accurate": (first["accuracy"] >= 0.99).astype(int),
            "accuracy": first["accuracy"],
        }
    )
    outcomes["both"] = outcomes["as_expected"] * outcomes["accurate"]
    aggregations = dict.fromkeys(["networks", "as_expected", "related", "accurate", "both"], "sum") | {
        "accuracy": "mean"
    }
    return outcomes.groupby(["recipe", "task"], sort=False).agg(aggregations)
