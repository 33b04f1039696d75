"""What plots have drawn: ends of lines, places of dots, order of rows."""

import numpy as np

import geh_explain as geh


def segments(collection: object) -> np.ndarray:
    return np.array(collection.get_segments())


def places(dots: object) -> np.ndarray:
    return np.asarray(dots.get_offsets())


#: For each rule the words for pairs that it accepts, and for others.
WORDS = {
    "evidence": ("significant, FDR 5 %", "not significant"),
    "sign": ("stable", "not stable"),
    "interval": ("interval excludes 0 (paper's rule)", "interval contains 0"),
}


def in_rows(result: geh.Interactions, rule: str | None = None) -> np.ndarray:
    """Return whether a rule accepts each pair, in row-major order."""
    table = result.table(rule=rule)
    accepted = np.zeros(len(table), dtype=bool)
    accepted[[result.pair(i, j) for i, j in zip(table["unit_i"], table["unit_j"], strict=True)]] = table.iloc[:, -1]
    return accepted
