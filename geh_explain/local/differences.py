"""An account of one prediction by switching units between baseline and row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats, Ints
from geh_explain.local.integrated_hessians import PathAccount
from geh_explain.local.unit_path import UnitPath

#: Numbers in the positions of one block of moves, at most.
_BLOCK_NUMBERS = 2**22


def switch_units(path: UnitPath) -> PathAccount:
    """Return the account by differences.

    With e_i the positions that are 1 at unit i and 0 elsewhere ::

        main_i = F(e_i) - F(0),    pair_ij = F(e_i + e_j) - F(e_i) - F(e_j) + F(0).

    A unit takes the values of the row or of the baseline, never values between them. What three and more units do
    together is left over.
    """
    n_units = path.members.n_units
    units = np.arange(n_units)
    first, second = np.triu_indices(n_units, 1)
    main, pairs = [], []
    for baseline in range(len(path.baselines)):
        off = path.outputs(torch.tensor([baseline]), torch.zeros(1, 1)).numpy()
        single = _after_switching(path, baseline, units, units)
        both = _after_switching(path, baseline, first, second)
        main.append(single - off)
        pairs.append(both - single[first] - single[second] + off)
    return PathAccount(np.stack(main), np.stack(pairs))


def _after_switching(path: UnitPath, baseline: int, first: Ints, second: Ints) -> Floats:
    """Return the outputs (k,) with the units ``first`` and ``second`` (k,) of each move at the row's values."""
    parts = [
        path.outputs(torch.full((len(positions),), baseline), positions)
        for positions in _positions(path.members.n_units, first, second)
    ]
    return np.asarray(torch.cat(parts).numpy() if parts else np.zeros(0))


def _positions(n_units: int, first: Ints, second: Ints) -> Iterator[Tensor]:
    """Yield positions (k, D) of blocks of moves: 1 at the two units of a move, 0 elsewhere."""
    size = max(1, _BLOCK_NUMBERS // n_units)
    for start in range(0, len(first), size):
        i, j = (torch.as_tensor(ends[start : start + size]) for ends in (first, second))
        positions = torch.zeros(len(i), n_units)
        positions[torch.arange(len(i)), i] = 1
        positions[torch.arange(len(j)), j] = 1
        yield positions
