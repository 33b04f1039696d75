"""Random numbers of the samples, which depend on the seed and the index of a row, and not on its batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats
from geh_explain.data.points import Points
from geh_explain.model.cut import Cut
from geh_explain.posterior.protocols import seed_of_draw

#: Numbers are drawn for blocks of this many samples, and of rows such that a sample of a block has this many numbers.
_BLOCK_SAMPLES = 4
_BLOCK_NUMBERS = 2**12
_MAX_BLOCK_ROWS = 256
#: Noise must be as large as this number of roundings of the units' values.
_ROUNDINGS = 100


def normal_samples(seed: int, start: int, shape: tuple[int, int, int], first_sample: int = 0) -> Tensor:
    """Return standard normal numbers in single precision, whatever the chunks of rows and samples.

    Parameters
    ----------
    seed
        Seed of the draw.
    start
        Index of the first row.
    shape
        Number of samples, of rows and of units.
    first_sample
        Index of the first sample.

    Examples
    --------
    >>> all_rows = normal_samples(0, 0, (8, 600, 3))
    >>> bool((normal_samples(0, 100, (2, 300, 3), first_sample=5) == all_rows[5:7, 100:400]).all())
    True
    """
    samples, rows, units = shape
    block_rows = max(1, min(_MAX_BLOCK_ROWS, _BLOCK_NUMBERS // max(1, units)))
    found = torch.empty(shape, dtype=torch.float)
    for row_block in range(start // block_rows, -(-(start + rows) // block_rows)):
        of_rows, own_rows = _overlap(row_block * block_rows, block_rows, start, rows)
        row_seed = seed_of_draw(seed, row_block)
        last = -(-(first_sample + samples) // _BLOCK_SAMPLES)
        for sample_block in range(first_sample // _BLOCK_SAMPLES, last):
            of_samples, own_samples = _overlap(sample_block * _BLOCK_SAMPLES, _BLOCK_SAMPLES, first_sample, samples)
            generator = torch.Generator().manual_seed(seed_of_draw(row_seed, sample_block))
            block = torch.randn(_BLOCK_SAMPLES, block_rows, units, generator=generator, dtype=torch.float)
            found[of_samples, of_rows] = block[own_samples, own_rows]
    return found


def smallest_scale(cut: Cut, points: Points) -> Floats:
    """Return the scale (D,) below which noise is lost in the rounding of the largest values at some points."""
    with torch.no_grad():
        values = [cut.units.values(cut.activations(rows)) for rows in points.spread]
    largest = torch.cat(values).abs().amax(dim=0).double().cpu().numpy()
    return np.asarray(_ROUNDINGS * torch.finfo(cut.dtype).eps * largest)


def _overlap(block_start: int, block_size: int, start: int, size: int) -> tuple[slice, slice]:
    """Return the part that a block and a range have in common, as a slice of the range and as one of the block.

    >>> _overlap(4, 4, 5, 10)
    (slice(0, 3, None), slice(1, 4, None))
    """
    low, high = max(block_start, start), min(block_start + block_size, start + size)
    return slice(low - start, high - start), slice(low - block_start, high - block_start)
