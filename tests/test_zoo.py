"""Architectures that people use give the Hessians that a plain double backward gives, and kinks are smoothed.

A few of them always; all of them with ``make test-zoo``, which also writes ``docs/architectures.md``.
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
WHOLE = os.environ.get("GEH_EXPLAIN_ZOO") == "1"
SHORT = ("resnet18", "mobilenet_v3_small", "vit (small)", "hf/gpt2 (tiny)", "lstm")


@pytest.fixture(scope="module")
def rows() -> Iterator[list[Row]]:
    """Collect what came out, and write the page if that is all there is to know."""
    found: list[Row] = []
    yield found
    if [row.entry for row in found] == ENTRIES:
        PAGE.write_text(page(found))


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if WHOLE or entry.name in SHORT], ids=lambda e: e.name)
def test_agrees_with_a_plain_double_backward_and_sees_curvature_once_smoothed(entry: Entry, rows: list[Row]) -> None:
    if entry.missing:
        pytest.skip(f"{entry.needs} is not installed; pip install {entry.needs} to check {entry.name}")
    row = check(entry)
    assert row.largest > 1e-6, "the reference is next to nothing, so the comparison says nothing"
    assert row.error <= 1e-3
    assert row.single_error <= 1e-3
    assert np.isfinite(row.scores).all()
    assert row.scores.max() > 0
    assert set(entry.kinks) <= set(row.functions)
    assert row.change is None or np.isfinite(row.change)
    rows.append(row)


def page(rows: list[Row]) -> str:
    """Return the table of architectures in Markdown."""
    lines = [
        "# Architectures",
        "",
        f"Every model here has random weights and small inputs, and was asked for the interactions of {_units(rows)} "
        "channels of one hidden layer: *error* compares the AEH of a class probability, kinks as they are, with a "
        "plain double backward in float64 (largest difference over largest entry). *Smoothed* says which kinks above "
        "the layer were smoothed (`smooth='auto'`) to explain a logit, *change* by how much that moved the logit "
        "relative to its spread over 8 rows, and *seconds* how long that explanation took on one thread.",
        "",
        f"Made by `make test-zoo`, with torch {torch.__version__}.",
        "",
        "| architecture | family | layer | units | engine | smoothed | error | change | seconds |",
        "|---|---|---|---|---|---|--:|--:|--:|",
        *map(_line, rows),
    ]
    return "\n".join(lines) + "\n"


def _units(rows: list[Row]) -> str:
    counts = sorted({len(row.entry.units) for row in rows})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _line(row: Row) -> str:
    cells = [
        row.entry.name,
        row.entry.family,
        f"`{row.entry.layer}`",
        ", ".join(map(str, row.entry.units)),
        row.engine,
        ", ".join(f"{count} {name}" for name, count in row.functions.items()) or "nothing to smooth",
        f"{row.error:.0e}",
        "" if row.change is None else f"{row.change:.1%}",
        f"{row.seconds:.1f}",
    ]
    return f"| {' | '.join(cells)} |"
