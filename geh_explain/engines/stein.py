"""Stein's identity: the Hessian of the smoothed network from gradients under Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geh_explain._process import cached_property
from geh_explain._types import Floats, Ints
from geh_explain._validation import check_int, check_positive
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Engine, EngineRun, Limits
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHRuntimeError
from geh_explain.model.cut import Cut
from geh_explain.model.unit_values import UnitMoments
from geh_explain.posterior.protocols import seed_of_draw

#: Noise is drawn for blocks of this many rows, so that it does not depend on the batch size.
_NOISE_ROWS = 256
#: Rows of a chunk at most.
_MAX_ROWS = 1024


@dataclass(frozen=True, repr=False)
class Stein(Engine):
    """Hessians of the smoothed network by Stein's identity, from first derivatives only.

    For Gaussian noise d of scale s, the Hessian of f convolved with that Gaussian is::

        H = E[d (grad f(x + d) - grad f(x - d))^T] / (2 s^2).

    Each unit has its own scale, s_i = ``noise`` times its standard deviation, and both orders of i and j are averaged::

        H_ij = E[z_i v_j / s_i + z_j v_i / s_j] / 2,    z = d / s standard normal,  v = (grad f(x+d) - grad f(x-d)) / 2.

    The pair d, -d is antithetic: grad f(x) itself, which would dominate the variance, cancels. The expectation is a
    mean over ``samples`` pairs per point.

    The estimate is noisy, and its variance is carried along in ``GroupSums.variance``, from the samples of each point.
    ``|noise|`` must not be taken for an interaction: E[mean^2] exceeds H^2 by the variance of the mean, so the absolute
    interaction of a point is estimated by sqrt(max(mean^2 - variance, 0)). The scores of groups are corrected likewise.

    *Cost*: 2 ``samples`` gradients per point and draw, whatever the number of units. *Right* for kinked networks, whose
    functions are not replaced, and for many units. *Not* for black boxes without gradients, nor where a few samples are
    too noisy: the standard error grows with the number of units that act on the output.

    Parameters
    ----------
    noise
        Scale of the noise, in standard deviations of the units: the bandwidth of the smoothing. At most twice that of
        most points counts, if a few are far from the others.
    samples
        Antithetic pairs per point and draw, at least 2.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> explainer = geh.GEHExplainer(
    ...     lambda x: (x[:, 0] + x[:, 1]).abs(),  # curved on the line x0 = -x1 only
    ...     engine=geh.engines.Stein(samples=20),
    ...     posterior=geh.posterior.PointEstimate(),
    ... )
    >>> x = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
    >>> result = explainer.explain(x, groups=1, progress=False)
    >>> bool(abs(result.geh.mean[0, 1] - 0.56) < 0.1)  # twice the density 1 / sqrt(4 pi) of x0 + x1 at 0
    True
    """

    name = "stein"
    differentiates = False

    noise: float = 0.25
    samples: int = 8

    def __post_init__(self) -> None:
        check_positive("Stein: noise", self.noise, "a positive number of standard deviations")
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
    takes_pairs = True

    def __init__(self, engine: Stein, cut: Cut, limits: Limits) -> None:
        super().__init__(engine, cut, limits)
        self._moments = UnitMoments(cut.n_units, limits.weights)
        self._seed = 0

    def observe(self, values: Tensor) -> None:
        """Take the values (n, D) of the next rows, for their standard deviations."""
        self._moments.add(values)

    @cached_property
    def _scale(self) -> Floats:
        """Scale (D,) of the noise of each unit; a constant unit is taken to have standard deviation 1."""
        std = self._moments.limited_std
        return np.where(std > 0, std, 1.0) * self.engine.noise

    def begin_draw(self, seed: int) -> None:
        """Start a draw with noise of its own, so that the spread over draws includes that of the noise."""
        self._seed = seed

    def chunk_rows(self, rows: Rows) -> int:
        """Return ``batch_size``, else the number of rows whose pairs the memory allows."""
        numbers = max(len(self.pairs), self.cut.n_units)
        return self.limits.batch_size or max(1, min(_MAX_ROWS, self.chunk_bytes // (64 * numbers)))

    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Add the estimates of a chunk of rows to ``sums``."""
        cut = self.cut
        samples = self.engine.samples
        i, j = (torch.as_tensor(ends, device=cut.device) for ends in self.pairs.ends)
        scale = torch.as_tensor(self._scale, device=cut.device)
        total = torch.zeros(len(rows), len(i), dtype=torch.double, device=cut.device)
        squares = torch.zeros_like(total)
        slopes = torch.zeros(len(rows), cut.n_units, dtype=torch.double, device=cut.device)
        for sample, z in enumerate(self._noise(rows)):
            shift = (z * scale).to(cut.dtype)
            plus = self._gradient(rows, shift, check=sample == 0).double()
            minus = self._gradient(rows, -shift).double()
            half_difference = (plus - minus) / 2
            slopes += (plus + minus) / (2 * samples)
            # E[z_i v_j] / s_i and the same with i and j exchanged have the same mean; their average is less noisy.
            z = z / scale
            local = (z[:, i] * half_difference[:, j] + z[:, j] * half_difference[:, i]) / 2
            total += local
            squares += local**2
        mean = total / samples
        # Variance of a point's mean, from its own samples.
        variance = (squares / samples - mean**2).clamp_min(0) / (samples - 1)
        members = sums.one_hot(labels, cut.device)
        sums.add_slopes(slopes, members)
        sums.signed += (members @ mean).cpu()
        # E[mean^2] exceeds the squared interaction by the variance of the mean.
        sums.absolute += (mean**2 - variance).clamp_min(0).sqrt().sum(dim=0).cpu()
        # Not corrected: the variance over points then contains that of the noise, as the error of a group's mean does.
        sums.add_squares(0, mean[None], members)
        signed_variance = (members @ variance).cpu()[None]
        sums.variance = signed_variance if sums.variance is None else sums.variance + signed_variance

    def _noise(self, rows: Rows) -> Tensor:
        """Return standard normal numbers (samples, n, D) that depend on the seed and the rows' indices only."""
        start, stop = rows.start, rows.start + len(rows)
        blocks = []
        for block in range(start // _NOISE_ROWS, -(-stop // _NOISE_ROWS)):
            generator = torch.Generator().manual_seed(seed_of_draw(self._seed, block))
            blocks.append(
                torch.randn(self.engine.samples, _NOISE_ROWS, self.cut.n_units, generator=generator, dtype=torch.double)
            )
        offset = start % _NOISE_ROWS
        return torch.cat(blocks, dim=1)[:, offset : offset + len(rows)].to(self.cut.device)

    def _gradient(self, rows: Rows, shift: Tensor, check: bool = False) -> Tensor:
        """Return the gradient (n, D) of the outputs at the shifts ``shift`` (n, D); ``check`` compares the outputs.

        Raises
        ------
        GEHRuntimeError
            If the outputs have no gradients.
        """
        t = shift.requires_grad_()
        value = self.cut.outputs(rows, t)
        if not value.requires_grad:
            raise GEHRuntimeError(
                "engine='stein' needs gradients, and the model's output has none; use engine='difference' for black "
                "boxes."
            )
        if check:
            self.check_outputs(rows, t, value)
        (gradient,) = torch.autograd.grad(value.sum(), t, allow_unused=True)
        return torch.zeros_like(t) if gradient is None else gradient
