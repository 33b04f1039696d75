"""Hessians of common architectures equal those of a plain double backward, and kinked functions are smoothed.

``make test`` runs five architectures, ``make test-zoo`` all of them, and writes ``docs/architectures.md``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from zoo import ENTRIES, Entry
from zoo_check import Row, check

PAGE = Path(__file__).parents[1] / "docs" / "architectures.md"
#: Whether all architectures are tested, or only those in ``SHORT``.
TEST_ALL = os.environ.get("GEH_EXPLAIN_ZOO") == "1"
SHORT = ("resnet18", "mobilenet_v3_small", "vit (small)", "hf/gpt2 (tiny)", "lstm")
#: Largest relative difference from the reference.
TOLERANCE = 1e-3
#: Text of the page above the table.
INTRODUCTION = """# Architectures

Every model has random weights and small inputs. The interactions of the channels {units} of one
hidden layer are explained.

- **error**: largest difference of the AEH of a class probability, without smoothing, from that of a plain double
  backward in float64, divided by the largest entry.
- **smoothed**: kinked functions above the layer that were smoothed (`smooth="auto"`) to explain a logit.
- **change**: mean change of the logit by smoothing, in units of its standard deviation over 8 rows.
- **seconds**: time of that explanation on one thread.

Written by `make test-zoo`, with torch {torch}.

"""


@pytest.fixture(scope="module")
def rows() -> Iterator[list[Row]]:
    """Collect the results of the tests, and write the page if all architectures passed."""
    results: list[Row] = []
    yield results
    if [row.entry for row in results] == ENTRIES:
        PAGE.write_text(build_page(results), encoding="utf-8")


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if TEST_ALL or entry.name in SHORT], ids=lambda e: e.name)
def test_agrees_with_double_backward_and_has_curvature_once_smoothed(entry: Entry, rows: list[Row]) -> None:
    if entry.missing:
        pytest.skip(f"{entry.needs} is not installed; pip install {entry.needs} to check {entry.name}")
    row = check(entry)
    assert row.largest > 1e-6, "the reference is almost 0, so the comparison is meaningless"
    assert row.error <= TOLERANCE
    assert row.single_error <= TOLERANCE
    assert np.isfinite(row.scores).all()
    assert row.scores.max() > 0
    assert set(entry.kinks) <= set(row.functions)
    assert row.change is None or np.isfinite(row.change)
    rows.append(row)


def build_page(rows: list[Row]) -> str:
    """Return ``docs/architectures.md``."""
    return INTRODUCTION.format(units=_list_units(rows), torch=torch.__version__) + _table(rows)


def _table(rows: list[Row]) -> str:
    """Return the table of the page in Markdown."""
    lines = [
        "| architecture | family | layer | engine | smoothed | error | change | seconds |",
        "|---|---|---|---|---|--:|--:|--:|",
        *map(_line, rows),
    ]
    return "\n".join(lines) + "\n"


def _list_units(rows: list[Row]) -> str:
    """Return the indices of the units, which are the same for all architectures, as text."""
    (units,) = {row.entry.units for row in rows}
    return f"{', '.join(map(str, units[:-1]))} and {units[-1]}"


def _line(row: Row) -> str:
    """Return one row of the table in Markdown."""
    cells = [
        row.entry.name,
        row.entry.family,
        f"`{row.entry.layer}`",
        row.engine,
        ", ".join(f"{count} {name}" for name, count in row.functions.items()) or "nothing to smooth",
        f"{row.error:.0e}",
        "" if row.change is None else f"{row.change:.1%}",
        f"{row.seconds:.1f}",
    ]
    return f"| {' | '.join(cells)} |"
