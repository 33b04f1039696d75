"""The check of double backward by differences of gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from geh_explain.data.rows import Rows
from geh_explain.engines.probes import random_directions
from geh_explain.errors import GEHRuntimeError
from geh_explain.model.autograd_graph import coarsest_dtype
from geh_explain.model.cut import Cut

#: First step of the differences, as a part of the spread of the units; each further one is a quarter of it.
_STEP = {torch.float32: 0.05, torch.float64: 1e-3}
_N_STEPS = 3
#: An entry is settled if its differences change by at most this part of themselves from step to step.
_CHANGE = 0.1
#: Double backward contradicts a settled entry if it differs by this part of the larger one ...
_DISAGREEMENT = 0.02
#: ... plus this many times the largest change of the row from step to step, or from side to side ...
_CHANGES = 5
#: ... plus the rounding of gradients, this many eps of the largest entry of the row ...
_GRADIENT_EPS = 100
#: ... plus the rounding of saturated rows in double precision, relative to the mean over all compared rows.
_SATURATED = 1e-9
#: An output that changes by at most this many eps of the largest one, where a unit changes by its spread, is flat.
_FLAT_EPS = 1000
#: It is also flat below this part of the largest one: double backward of a softmax is not exact there.
_FLAT = 1e-9

#: Returns the products H v (n, D) by double backward for n rows and directions v (n, D); None without gradients.
Product = Callable[[Rows, Tensor], Tensor | None]


@dataclass(frozen=True)
class Line:
    """A line through each row: shifts s v of the units for the steps s = e, e/4, e/16, their negatives, and 0.

    Attributes
    ----------
    directions
        Directions v (n, D), random and as long as the units' spread.
    steps
        The positive steps (3,).
    """

    directions: Tensor
    steps: Tensor

    @classmethod
    def of(cls, cut: Cut, rows: Rows, seed: int, scale: Tensor) -> Line:
        """Return lines for ``rows``; ``scale`` (D,) is the spread of the units."""
        steps = [_STEP.get(cut.dtype, 0.05) / 4**k for k in range(_N_STEPS)]
        directions = random_directions(cut, rows, seed) * scale
        return cls(directions, torch.tensor(steps).to(directions))

    @property
    def shifts(self) -> Tensor:
        """The shifts (7, n, D), the last of them 0."""
        factors = torch.cat([self.steps, -self.steps, self.steps.new_zeros(1)])
        return factors[:, None, None] * self.directions

    def contradicted(self, values: Tensor, expected: Tensor, size: Tensor, eps: float) -> Tensor:
        """Return in which rows (n,) differences contradict an expected derivative.

        Differences have errors of their own: curvature for large steps, rounding for small ones, both where functions
        are kinked. So an entry counts only if the differences of all steps agree with each other, and much better than
        with what is expected. Errors are those of the whole row: next to a sharp bend single entries seem to agree.

        Parameters
        ----------
        values
            Values (7, n, d) at the shifts.
        expected
            Their derivative (n, d) along the lines, by autograd.
        size
            Size (n,) of the numbers that are rounded in each row.
        eps
            Relative size of rounding.
        """
        steps = self.steps[:, None, None]
        above, below = values[:_N_STEPS], values[_N_STEPS:-1]
        differences = (above - below) / (2 * steps)
        sizes = differences.abs()
        gaps = (differences - expected).abs()
        changes = (differences[1:] - differences[:-1]).abs().amax(dim=0)
        # Second derivatives may jump, as that of ELU at 0: then the differences to both sides are not equal.
        jumps = (above[-1] - 2 * values[-1] + below[-1]).abs() / (2 * steps[-1])
        rounding = _GRADIENT_EPS * eps * size[:, None] / steps
        settled = (changes <= _CHANGE * sizes) & (sizes > rounding)
        noise = rounding + _CHANGES * torch.maximum(changes, jumps).amax(dim=1, keepdim=True)
        noise = noise + _SATURATED * expected.abs().mean()
        contradicts = gaps > _DISAGREEMENT * torch.maximum(sizes, expected.abs()) + noise
        return (settled & contradicts).all(dim=0).any(dim=1)


def contradicts_differences(cut: Cut, rows: Rows, seed: int, product: Product) -> bool:
    """Return whether double backward contradicts central differences of gradients in a row.

    With g the gradient and v a direction, H v is compared with (g(e v) - g(-e v)) / 2e for three steps e.

    Parameters
    ----------
    cut, rows
        The model as a function of the units' shifts, and a few rows.
    seed
        Seed of the directions.
    product
        Returns the products H v by double backward.
    """
    scale = unit_scale(cut, rows)
    line = Line.of(cut, rows, seed, scale)
    shifts = line.shifts
    try:
        outputs, gradients, eps = _gradients(cut, rows.repeat(len(shifts)), shifts.flatten(0, 1))
    except GEHRuntimeError:
        # The model is not defined at the shifted units.
        return False
    products = product(rows, line.directions)
    if products is None:
        return False
    gradients = gradients.reshape(shifts.shape) * scale
    slopes = gradients.abs().amax(dim=(0, 2))
    curved = slopes > max(_FLAT_EPS * eps, _FLAT) * outputs.abs().max()
    return bool((line.contradicted(gradients, products * scale, slopes, eps) & curved).any())


def unit_scale(cut: Cut, rows: Rows) -> Tensor:
    """Return the standard deviation (D,) of the units over rows; their size where they are constant, 1 where 0."""
    values = cut.units.values(cut.activations(rows)).to(cut.dtype)
    spread = values.std(dim=0, correction=0)
    size = values.abs().amax(dim=0)
    spread = torch.where(spread > 1e-6 * size, spread, size)
    return torch.where(spread > 0, spread, torch.ones_like(spread))


def coarsest_eps(t: Tensor, value: Tensor) -> float:
    """Return the eps of the coarsest precision in which ``value`` is computed from ``t``."""
    return max(torch.finfo(dtype).eps for dtype in (t.dtype, coarsest_dtype(value)))


def _gradients(cut: Cut, rows: Rows, t: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return the outputs (n,) at shifts ``t`` (n, D), their gradients (n, D), and the eps of the coarsest precision."""
    value = cut.outputs(rows, t.requires_grad_())
    gradient = torch.autograd.grad(value.sum(), t, allow_unused=True)[0] if value.requires_grad else None
    return value.detach(), torch.zeros_like(t) if gradient is None else gradient, coarsest_eps(t, value)
