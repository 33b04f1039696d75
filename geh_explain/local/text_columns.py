"""Columns of text in data frames: the row and its baseline are read apart, and must have the same codes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from geh_explain.data.rows import Rows


def with_levels_of(row: Rows, other: Rows) -> Rows:
    """Return ``row`` with a layout that has the values of its columns of text, followed by further ones of ``other``.

    Codes of the row stay as they are. Without a layout, or for another table, the row is returned unchanged.
    """
    mine, theirs = row.frame, other.frame
    if mine is None or theirs is None or len(mine.dtypes) != len(theirs.dtypes):
        return row
    levels: dict[int, Any] = dict(mine.levels)
    for place in mine.levels:
        if place in theirs.levels:
            further = theirs.levels[place]
            levels[place] = mine.levels[place].append(further[~further.isin(mine.levels[place])])
    return replace(row, frame=replace(mine, levels=levels))


def recoded(rows: Rows, row: Rows) -> Rows:
    """Return ``rows`` with the codes of ``row``, where its layout has all of their values; else unchanged."""
    theirs, mine = rows.frame, row.frame
    if mine is None or theirs is None or not theirs.levels or theirs.levels.keys() != mine.levels.keys():
        return rows
    values = rows.inputs[0].clone()
    for place, levels in theirs.levels.items():
        codes = np.asarray(mine.levels[place].get_indexer(levels))
        if (codes < 0).any():
            return rows
        values[:, place] = torch.as_tensor(codes).to(values)[values[:, place].round().long()]
    return replace(rows, inputs=(values,), frame=mine)
