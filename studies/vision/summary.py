"""Records of the study of vision as a table."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from geh_explain.inference.jsonl import Record

#: Entries of a record that are no columns of the table.
_NOT_SHOWN = ("task", "picture", "pair", "score")


def tabulate(records: Iterable[Record]) -> pd.DataFrame:
    """Return one row per sample of a layer."""
    return pd.DataFrame(
        [{name: value for name, value in record.items() if name not in _NOT_SHOWN} for record in records]
    )


def layer_means(table: pd.DataFrame) -> pd.DataFrame:
    """Return the means over samples of all numbers, one row per layer, in the order of the table."""
    keys = ["network", "layer"]
    return table.groupby(keys, sort=False).mean(numeric_only=True).drop(columns="seed").reset_index()


def layer_worst(table: pd.DataFrame, step: float) -> pd.DataFrame:
    """Return the smallest correlation, and smallest and largest relative size, of each layer at one step."""
    groups = table.groupby(["network", "layer"], sort=False)
    return pd.DataFrame(
        {
            "r": groups[f"r {step:g}"].min(),
            "low": groups[f"scale {step:g}"].min(),
            "high": groups[f"scale {step:g}"].max(),
        }
    ).reset_index()
