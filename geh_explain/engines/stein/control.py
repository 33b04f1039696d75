"""The control variate of Stein's samples: the Hessian of the network with smoothed kinks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from geh_explain._types import Floats
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Limits
from geh_explain.engines.exact import NoSecondDerivative
from geh_explain.engines.probes import random_directions
from geh_explain.engines.smoothing.sharpness import Step
from geh_explain.engines.smoothing.survey import survey_kinks
from geh_explain.engines.structured.engine import PROBE_ROWS, Structured, StructuredRun
from geh_explain.engines.structured.program import LocalHessians, Program
from geh_explain.engines.structured.recorder import UnsupportedOp
from geh_explain.engines.twice_differentiable import DoubleBackwardView
from geh_explain.model.cut import Cut
from geh_explain.model.view import View

#: Rows at which a pilot tries the Hessians, at most.
_PILOT_ROWS = 32
#: By how much they make samples less noisy, at most.
_MAX_GAIN = 20


@dataclass(frozen=True)
class ControlHessians:
    """The matrices C of n points that are subtracted from their samples.

    Attributes
    ----------
    hessians
        The matrices (n, D, D), or H (n, d, d) at a narrow layer.
    linear_map
        The map W (d, D) of the narrow layer, for C = W^T H W; None where there is none.

    Examples
    --------
    >>> control = ControlHessians(torch.tensor([[[2.0]]]), linear_map=torch.tensor([[1.0, 3.0]]))
    >>> control.block(slice(None), slice(None))[0].tolist()
    [[2.0, 6.0], [6.0, 18.0]]
    >>> control.times(torch.tensor([[[1.0, 0.0]]]))[0].tolist()
    [[2.0, 6.0]]
    """

    hessians: Tensor
    linear_map: Tensor | None

    def times(self, shifts: Tensor) -> Tensor:
        """Return C d (k, n, D) of k shifts d (k, n, D) per point."""
        pushed = shifts if self.linear_map is None else shifts @ self.linear_map.T
        found = torch.bmm(pushed.transpose(0, 1), self.hessians).transpose(0, 1)
        return found if self.linear_map is None else found @ self.linear_map

    def of_points(self, points: slice | Tensor) -> ControlHessians:
        """Return those of some of the points."""
        return replace(self, hessians=self.hessians[points])

    def total(self) -> ControlHessians:
        """Return the sum over the points, as those of one point."""
        return replace(self, hessians=self.hessians.sum(dim=0, keepdim=True))

    def isometric(self, factors: Tensor) -> tuple[Tensor, Tensor]:
        """Return matrices (n, k, k) with the inner products of F C F, and the diagonals (n, D) of these.

        F = diag(``factors``) (D,). At a narrow layer the matrices are R^T H R with R R^T = W F^2 W^T, of size d.
        """
        scale = factors.to(self.hessians)
        if self.linear_map is None:
            scaled = self.hessians * scale * scale[:, None]
            return scaled, scaled.diagonal(dim1=1, dim2=2)
        scaled_map = self.linear_map * scale
        values, vectors = torch.linalg.eigh((scaled_map @ scaled_map.T).double())
        root = (vectors * values.clamp_min(0).sqrt()).to(self.hessians)
        diagonals = ((self.hessians @ scaled_map) * scaled_map).sum(dim=1)
        return root.T @ self.hessians @ root, diagonals

    def block(self, rows: slice | Tensor, columns: slice) -> Tensor:
        """Return some rows and columns of C (n, rows, columns)."""
        if self.linear_map is None:
            return self.hessians[:, rows, columns]
        return self.linear_map[:, rows].T @ self.hessians @ self.linear_map[:, columns]


class ControlVariate:
    """Local Hessians of the network whose kinks are smoothed as the noise of the samples smooths them.

    With bandwidth b of a kinked function at one entry z of a layer, and scales s of the noise of the units, ::

        b^2 = mean over points of sum over units i of (s_i dz / du_i)^2,

    the variance of z under the noise. The Hessians C are those of the structured engine, times a ``factor``.

    Parameters
    ----------
    run
        The structured engine.
    view
        The view that smooths.
    factor
        What the Hessians are multiplied by.
    """

    def __init__(self, run: _CostedRun, view: View, factor: float = 1.0) -> None:
        self._run = run
        self._view = view
        self._factor = factor

    def times(self, factor: float) -> ControlVariate:
        """Return the same with Hessians times ``factor``."""
        return ControlVariate(self._run, self._view, factor * self._factor)

    def work_per_sample(self, samples: int | None) -> float:
        """Return the multiplications per sample, with ``samples`` of a point that share its Hessian; None without it.

        The products of a sample without the Hessian are those of its mean and its variance.
        """
        squared = self._run.cut.n_units**2
        plain = self._run.gradient_work + 4 * squared
        return plain if samples is None else plain + squared + self._run.hessian_work / samples

    def affordable_rows(self, samples: int, n_points: int) -> int:
        """Return the number of rows at which a pilot may try the Hessians; 0 if they cannot pay.

        They take at most a quarter of the work of the run, and pay if they make samples less noisy by 20 times at most.
        """
        plain = self.work_per_sample(None)
        if self.work_per_sample(samples) > _MAX_GAIN * plain:
            return 0
        return int(min(_PILOT_ROWS, n_points * samples * plain / (4 * self._run.hessian_work + 1)))

    def chunk_rows(self, rows: Rows) -> int:
        """Return the number of rows whose Hessians fit into memory."""
        return self._run.chunk_rows(rows)

    def hessians(self, rows: Rows) -> ControlHessians | None:
        """Return the Hessians of ``rows``; None where they are 0, or the network has become one without them."""
        cut = self._run.cut
        try:
            with cut.viewed(self._view):
                ((local, _, _),) = self._run.local_hessians(rows, [rows.target])
        except UnsupportedOp:
            # A branch of the forward that only these rows take, or a member of an ensemble that differs.
            return None
        return None if local is None else self._finite(local)

    def _finite(self, local: LocalHessians) -> ControlHessians:
        """Return the Hessians times the factor, 0 for points where a second derivative is not finite."""
        finite = torch.isfinite(local.hessians).all(dim=2).all(dim=1)[:, None, None]
        return ControlHessians(torch.where(finite, self._factor * local.hessians, 0.0), local.linear_map)


class _CostedRun(StructuredRun):
    """The structured engine, with the cost of what it computes."""

    #: Multiplications of the Hessian of one point, and of the gradients of one sample, at x + d and x - d.
    hessian_work = 0.0
    gradient_work = 0.0

    def _check_cost(self, program: Program, work: int, narrow_width: int) -> None:
        super()._check_cost(program, work, narrow_width)
        n_directions = narrow_width or self.cut.n_units
        self.hessian_work = n_directions * (work + n_directions * program.n_curved / 2)
        # Two forward passes, and two backward passes of twice their cost.
        self.gradient_work = 6.0 * work


def find_control(cut: Cut, points: Points, scale: Floats, limits: Limits) -> ControlVariate | None:
    """Return the control variate for noise of one scale per unit.

    Parameters
    ----------
    cut
        The model as a function of the units' shifts, with the view of the unchanged network.
    points
        All points, some of which are shifted to measure how far the inputs of kinked functions move.
    scale
        Standard deviation (D,) of the noise of each unit.
    limits
        Resources of the run.

    Returns
    -------
    ControlVariate or None
        None if the structured engine does not take the model, or its output does not depend on the units.
    """
    survey = survey_kinks(cut, points.first)
    n_moving = int((scale > 0).sum())
    smoothing = None
    if survey is not None:
        # A step of this size moves z by the standard deviation that the noise has there.
        smoothing = survey.smoothing(Step(math.sqrt(n_moving / 2)), cut, points, scale)
    view = smoothing or DoubleBackwardView()
    run = _CostedRun(Structured(), cut, replace(limits, pairs=None))
    rows = points.first[:PROBE_ROWS]
    directions = random_directions(cut, rows, seed=0)
    with cut.viewed(view):
        try:
            products = run.exact.probe(rows, directions)
        except NoSecondDerivative:
            return None
        if products is None:
            return None
        run.check(rows, directions, products)
    return None if run.unsupported is not None else ControlVariate(run, view)
