"""Records of the study of coverage as a table."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from geh_explain.inference.jsonl import Record

#: What was compared: intervals of GEH, those of EAH, and those of GEH as if all points were independent.
PARTS = ("geh", "eah", "clusters ignored")
#: Coverage that is wanted of pairs with an interaction, and at least of those without.
TARGET = (0.93, 0.97)
NULL_TARGET = 0.95


def tabulate(samples: Iterable[Record]) -> pd.DataFrame:
    """Return one row per scenario, part and kind of pair.

    Columns: coverage with its standard error, the shares of intervals above and below the true score, their
    mean width, and the mean of the true score.
    """
    values: dict[tuple[str, str, str], list[list[float]]] = {}
    for sample in samples:
        for part in PARTS:
            for kind, numbers in sample.get(part, {}).items():
                values.setdefault((sample["scenario"], part, kind), []).append(numbers)
    rows = []
    for (scenario, part, kind), numbers in values.items():
        above, below, width, true = np.array(numbers).T
        covered = 1 - above - below
        rows.append(
            {
                "scenario": scenario,
                "part": part,
                "kind": kind,
                "samples": len(covered),
                "coverage": covered.mean(),
                "error": covered.std(ddof=1) / np.sqrt(len(covered)),
                "above": above.mean(),
                "below": below.mean(),
                "width": width.mean(),
                "true": true.mean(),
            }
        )
    return pd.DataFrame(rows)


def misses(coverage: float, true: float) -> bool:
    """Return whether a coverage lies outside of its target, for a pair with the score ``true`` in the population.

    >>> misses(0.92, 1.0), misses(0.98, 1.0), misses(0.98, 0.0)
    (True, True, False)
    """
    low, high = TARGET if true > 0 else (NULL_TARGET, 1.0)
    return not low <= coverage <= high
