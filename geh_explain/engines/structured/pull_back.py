"""Pull-back of Hessians at a narrow layer to the units: W^T H W for z = W t."""

from __future__ import annotations

import torch
from torch import Tensor

#: Hessians per call of :func:`add_pulled_back`, see :func:`add_absolute`.
_MAX_HESSIANS = 64
#: Rows of the Hessian at the units per block.
_BLOCK_ROWS = 256
#: Numbers of all Hessians at the units that are computed at a time.
_MAX_NUMBERS = 2**20


def add_absolute(pairs: Tensor, linear_map: Tensor, hessians: Tensor) -> None:
    """Add the sum over ``hessians`` (n, d, d) of ``|W^T H W|`` to ``pairs`` (P,), a few Hessians at a time."""
    for chunk in torch.split(hessians, _MAX_HESSIANS):
        add_pulled_back(pairs, linear_map, chunk, absolute=True)


def add_pulled_back(pairs: Tensor, linear_map: Tensor, hessians: Tensor, absolute: bool = False) -> None:
    """Add the sum over Hessians of W^T H W, or of its absolute values, to the pairs of units.

    Works on blocks of rows of the (D, D) result and on their upper triangle only, so that no array of n (D, D) is held.

    Parameters
    ----------
    pairs
        Sums (P,) over pairs i < j in row-major order, changed in place.
    linear_map
        The map W (d, D) from the units to the narrow layer.
    hessians
        Hessians (n, d, d) at the narrow layer.
    absolute
        Whether absolute values are added; then each point needs a product of its own.
    """
    n_units = linear_map.shape[1]
    halves = linear_map.T @ hessians
    start = 0
    for first in range(0, n_units - 1, _BLOCK_ROWS):
        block = linear_map.new_zeros(min(_BLOCK_ROWS, n_units - first), n_units - first)
        for chunk in torch.split(halves[:, first : first + _BLOCK_ROWS], max(1, _MAX_NUMBERS // block.numel())):
            part = chunk @ linear_map[:, first:]
            part = part.abs_() if absolute else part
            block += part[0] if part.shape[0] == 1 else part.sum(dim=0)
        # Row i of the upper triangle holds the pairs (i, i + 1), (i, i + 2), ...
        block = block.double().cpu()
        for row in range(len(block)):
            stop = start + n_units - first - row - 1
            pairs[start:stop] += block[row, row + 1 :]
            start = stop
