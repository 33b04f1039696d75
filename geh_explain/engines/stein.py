"""Stein's identity: the Hessian of the smoothed network from gradients alone.

For Gaussian noise d of scale s, E[d (grad f(x+d) - grad f(x-d))^T] / (2 s^2) is the Hessian of f smoothed at scale
s. The network itself is not changed, kinks need no care, and the number of gradients does not grow with the
number of units. It is an estimate with noise of its own, whose variance is carried along.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from geh_explain._memory import chunk_bytes
from geh_explain._types import Floats, Ints
from geh_explain._validation import check_int
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Engine, EngineRun, Limits
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHRuntimeError, GEHValueError
from geh_explain.model.cut import Cut
from geh_explain.model.unit_values import UnitMoments
from geh_explain.posterior.protocols import seed_of_draw

#: Noise is drawn for this many rows at a time, so that it does not depend on the batch size.
_BLOCK = 256


@dataclass(frozen=True, repr=False)
class Stein(Engine):
    """Antithetic Gaussian noise; the gradient at the point itself cancels as a control variate.

    Parameters
    ----------
    noise
        Scale of the noise, in standard deviations of the units: the bandwidth of the smoothing.
    samples
        Antithetic pairs per point and draw, at least 2.
    """

    name = "stein"
    differentiates = False

    noise: float = 0.25
    samples: int = 8

    def __post_init__(self) -> None:
        noise = self.noise
        if isinstance(noise, bool) or not isinstance(noise, (int, float)) or not 0 < noise < float("inf"):
            raise GEHValueError(f"Stein: noise={noise!r} must be a positive number of standard deviations.")
        check_int("samples", self.samples, 2)

    def start(self, cut: Cut, limits: Limits) -> SteinRun:
        """Return the object that computes the estimates of one run."""
        return SteinRun(self, cut, limits)

    def __repr__(self) -> str:
        return f"Stein(noise={self.noise}, samples={self.samples})"


class SteinRun(EngineRun):
    """Estimates of one run: the scale of the noise, from the units' moments, and the seed of the draw."""

    engine: Stein
    needs_values = True

    def __init__(self, engine: Stein, cut: Cut, limits: Limits) -> None:
        super().__init__(engine, cut, limits)
        self._moments = UnitMoments(cut.n_units)
        self._seed = 0

    def observe(self, values: Tensor) -> None:
        """Take the values (n, D) of some rows."""
        self._moments.add(values)

    @cached_property
    def _scale(self) -> Floats:
        """Scale of the noise of each unit (D,); a constant unit counts as one of standard deviation 1."""
        std = self._moments.std
        return np.where(std > 0, std, 1.0) * self.engine.noise

    def begin_draw(self, seed: int) -> None:
        """Take other noise for each draw, so that the spread over draws includes it."""
        self._seed = seed

    def chunk_rows(self, rows: Rows) -> int:
        """Return the batch size asked for, else what the memory allows."""
        n_pairs = self.cut.n_units * (self.cut.n_units - 1) // 2
        memory = chunk_bytes(self.cut.device, self.limits.memory)
        return self.limits.batch_size or max(1, min(1024, memory // (64 * n_pairs)))

    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Add the estimates of a chunk of rows to ``sums``."""
        cut, samples = self.cut, self.engine.samples
        pairs = torch.triu_indices(cut.n_units, cut.n_units, 1, device=cut.device)
        scale = torch.as_tensor(self._scale, device=cut.device)
        total = torch.zeros(len(rows), pairs.shape[1], dtype=torch.double, device=cut.device)
        squares = torch.zeros_like(total)
        slopes = torch.zeros(len(rows), cut.n_units, dtype=torch.double, device=cut.device)
        for z in self._noise(rows):
            shift = (z * scale).to(cut.dtype)
            there, opposite = (_gradient(cut, rows, each).double() for each in (shift, -shift))
            slope = (there - opposite) / 2
            slopes += (there + opposite) / (2 * samples)
            # E[z_i slope_j] / scale_i, and the same with i and j exchanged: their mean has less noise.
            z = z / scale
            local = (z[:, pairs[0]] * slope[:, pairs[1]] + z[:, pairs[1]] * slope[:, pairs[0]]) / 2
            total += local
            squares += local**2
        mean = total / samples
        # The variance of a point's mean, from its own samples.
        variance = (squares / samples - mean**2).clamp_min(0) / (samples - 1)
        members = sums.one_hot(labels, cut.device)
        sums.add_slopes(slopes, members)
        sums.signed += (members @ mean).cpu()
        # |noise| must not pass for interaction: E[mean^2] exceeds the square of the truth by the variance.
        sums.absolute += (mean**2 - variance).clamp_min(0).sqrt().sum(dim=0).cpu()
        noise = (members @ variance).cpu()[None]
        sums.variance = noise if sums.variance is None else sums.variance + noise

    def _noise(self, rows: Rows) -> Tensor:
        """Return standard normal numbers (samples, n, D) that depend on the seed and the rows' numbers only."""
        start, stop = rows.start, rows.start + len(rows)
        blocks = []
        for block in range(start // _BLOCK, -(-stop // _BLOCK)):
            generator = torch.Generator().manual_seed(seed_of_draw(self._seed, block))
            blocks.append(
                torch.randn(self.engine.samples, _BLOCK, self.cut.n_units, generator=generator, dtype=torch.double)
            )
        offset = start % _BLOCK
        return torch.cat(blocks, dim=1)[:, offset : offset + len(rows)].to(self.cut.device)


def _gradient(cut: Cut, rows: Rows, shift: Tensor) -> Tensor:
    t = shift.requires_grad_()
    value = cut.outputs(rows, t)
    if not value.requires_grad:
        raise GEHRuntimeError(
            "engine='stein' needs gradients, and the model's output has none; use engine='difference' for black boxes."
        )
    (gradient,) = torch.autograd.grad(value.sum(), t, allow_unused=True)
    return torch.zeros_like(t) if gradient is None else gradient
