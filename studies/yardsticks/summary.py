"""Records of the study of yardsticks as tables, one per part, and their means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from geh_explain.inference.jsonl import Record
from studies.yardsticks.nid import ON_NETWORK, ON_ROWS
from studies.yardsticks.ours import SCORES
from studies.yardsticks.parts import NAMES

#: Lists of numbers in the records, which are no columns of the tables.
_NOT_SHOWN = ("scores", "p_value")
#: Methods of the suite of NID in the order of the tables.
METHODS = (*SCORES, *ON_NETWORK, *ON_ROWS)


class Mean(NamedTuple):
    """Mean over seeds and its standard error, NaN for one seed."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: pd.Series) -> Mean:
        """Return the mean of values, one per seed."""
        known = values.dropna().to_numpy(float)
        error = known.std(ddof=1) / np.sqrt(len(known)) if len(known) > 1 else np.nan
        return cls(float(known.mean()) if len(known) else np.nan, float(error))

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if np.isnan(self.error) else f"{self.mean:.3f} ± {self.error:.3f}"


def tabulate(records: Iterable[Record]) -> dict[str, pd.DataFrame]:
    """Return the table of each part that has records; rows are ordered by seed, then as they were run."""
    rows: dict[str, list[Record]] = {name: [] for name in NAMES}
    for record in records:
        rows[record["task"][0]] += [
            {key: value for key, value in row.items() if key not in _NOT_SHOWN} for row in record["rows"]
        ]
    return {name: pd.DataFrame(found).sort_values("seed", kind="stable") for name, found in rows.items() if found}


class Setting(NamedTuple):
    """Number of rows and relative noise of the suite of NID."""

    rows: int
    noise: float

    @classmethod
    def of(cls, case: str) -> Setting:
        """Return the setting of a case, "function rows noise"."""
        _, rows, noise = case.split()
        return cls(int(rows), float(noise))

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {f'noise {self.noise:g}' if self.noise else 'no noise'}"


def settings(nid: pd.DataFrame) -> list[Setting]:
    """Return the settings of a table of the suite of NID, in order."""
    found = nid[["rows", "noise"]].drop_duplicates().sort_values(["rows", "noise"])
    return [Setting(int(rows), float(noise)) for rows, noise in found.itertuples(index=False)]


def in_setting(nid: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """Return the rows of one setting."""
    return nid[(nid["rows"] == setting.rows) & (nid["noise"] == setting.noise)]


def areas(nid: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """Return the mean area under the curve over seeds, one row per method, one column per function."""
    part = in_setting(nid, setting)
    table = part.pivot_table(index="method", columns="function", values="auc", aggfunc="mean")
    functions = sorted(table.columns, key=lambda name: int(str(name)[1:]))
    return table.reindex(index=[method for method in METHODS if method in table.index], columns=functions)


def suite_means(nid: pd.DataFrame, setting: Setting) -> dict[str, Mean]:
    """Return for each method the mean over functions: its mean over seeds, and standard error."""
    known = set(in_setting(nid, setting)["method"])
    return {method: Mean.of(seed_means(nid, setting, method)) for method in METHODS if method in known}


def seed_means(nid: pd.DataFrame, setting: Setting, method: str) -> pd.Series:
    """Return the mean area of a method over the functions, one entry per seed."""
    part = in_setting(nid, setting)
    return part[part["method"] == method].groupby("seed")["auc"].mean()
