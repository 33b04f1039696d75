"""Integrated Hessians: an account of one prediction by second derivatives along the path from the baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats
from geh_explain.engines.exact import ExactRun
from geh_explain.engines.selection import slopes_of
from geh_explain.errors import GEHRuntimeError
from geh_explain.local.quadrature import log_rule
from geh_explain.local.unit_path import UnitPath

#: Nodes of the first rule that is tried, and of the last.
MIN_POINTS = 8
MAX_POINTS = 2048
#: Difference of two rules, as a part of the largest contribution, at which the finer one is taken.
_TOLERANCE = {torch.float64: 1e-7}
_SINGLE_TOLERANCE = 1e-4
#: Panels on which gradients that jump are integrated, divided by the number of baselines, and the fewest.
_MAX_PANELS = 256
_MIN_PANELS = 16
#: Numbers in the Hessians of one chunk of nodes, at most.
_CHUNK_NUMBERS = 2**23


@dataclass(frozen=True)
class PathAccount:
    """Contributions to F_r(1) - F_r(0) for each of R baselines.

    Attributes
    ----------
    main
        Main effects (R, D).
    pairs
        Effects (R, P) of pairs i < j, in row-major order.
    points
        Nodes of the rule on the path; 0 for an account by differences.
    error
        Estimated error of a contribution by integration; 0 for an account by differences.
    """

    main: Floats
    pairs: Floats
    points: int = 0
    error: float = 0.0

    @property
    def sums(self) -> Floats:
        """Sums (R,) of all contributions."""
        return np.asarray(self.main.sum(axis=1) + self.pairs.sum(axis=1))

    @property
    def largest(self) -> float:
        """The largest absolute contribution, of the mean over baselines."""
        means = np.abs(np.concatenate([self.main.mean(axis=0), self.pairs.mean(axis=0)]))
        return float(means.max(initial=0.0))


def integrate_path(path: UnitPath, points: int | None) -> PathAccount:
    """Return the account by integrated Hessians, see :class:`~geh_explain.local.explanation.LocalExplanation`.

    In the positions u of the units, which are s at all units along the path, F_ij its second and F_i its first
    derivatives, and the Gauss rule (s_k, w_k) of the weight -ln s ::

        Gamma_ij = sum_k w_k s_k F_ij(s_k),    Gamma_ii = sum_k w_k (F_i(s_k) + s_k F_ii(s_k)).

    Main effects are Gamma_ii, effects of pairs 2 Gamma_ij.

    Parameters
    ----------
    path
        The output as a function of the units' positions, with the view under which it is differentiated.
    points
        Nodes of the rule; None doubles them from 8 on until two rules agree, or there are 2,048.
    """
    engine = path.engine()
    if points is not None:
        coarse = apply_rule(path, max(1, points // 2), engine)
        return _compared(apply_rule(path, points, engine), coarse, points)
    tolerance = _TOLERANCE.get(path.cut.dtype, _SINGLE_TOLERANCE)
    points = MIN_POINTS
    account = PathAccount(*apply_rule(path, points, engine), points, np.inf)
    while points < MAX_POINTS and account.error > tolerance * account.largest:
        points *= 2
        account = _compared(apply_rule(path, points, engine), (account.main, account.pairs), points)
    return account


def with_own_gradients(path: UnitPath, account: PathAccount) -> PathAccount:
    """Return the account with main effects by the gradients of the network itself, for networks with kinks.

    Row sums of Gamma are integrated gradients, int F_i(s) ds, so that Gamma_ii is these minus Gamma_ij of all j. Pairs
    stay those of the smoothed network. The contributions then sum to F(1) - F(0) of the network itself, up to the
    integration of gradients that jump.
    """
    n_baselines, n_units = account.main.shape
    nodes, weights = _panel_rule(max(_MIN_PANELS, _MAX_PANELS // n_baselines))
    places, weight = nodes.repeat(n_baselines), weights.repeat(n_baselines)
    baseline = torch.arange(n_baselines).repeat_interleave(len(nodes))
    gradients = torch.zeros(n_baselines, n_units, dtype=torch.double)
    for some, s, w in zip(*(torch.split(part, path.call_rows) for part in (baseline, places, weight)), strict=True):
        slopes = torch.as_tensor(slopes_of(*path.at(some.to(path.cut.device), s[:, None])))
        gradients.index_add_(0, some, w[:, None] * slopes)
    ends = np.concatenate(np.triu_indices(n_units, 1))
    halves = np.concatenate([account.pairs, account.pairs], axis=1) / 2
    of_pairs = np.stack([np.bincount(ends, row, n_units) for row in halves])
    return replace(account, main=gradients.numpy() - of_pairs)


def _panel_rule(panels: int) -> tuple[Tensor, Tensor]:
    """Return nodes and weights on (0, 1) of four-point Gauss rules on so many panels, for functions that jump."""
    nodes, weights = np.polynomial.legendre.leggauss(4)
    places = (np.arange(panels)[:, None] + (nodes + 1) / 2) / panels
    return torch.as_tensor(places.ravel()), torch.as_tensor(np.tile(weights / 2, panels) / panels)


def _compared(fine: tuple[Floats, Floats], coarse: tuple[Floats, Floats], points: int) -> PathAccount:
    """Return the account by the finer of two rules; its error is the largest difference of the two."""
    errors = [np.abs((a - b).mean(axis=0)).max(initial=0.0) for a, b in zip(fine, coarse, strict=True)]
    return PathAccount(*fine, points, float(max(errors)))


def apply_rule(path: UnitPath, points: int, engine: ExactRun) -> tuple[Floats, Floats]:
    """Return main effects (R, D) and effects of pairs (R, P) by the rule with so many nodes.

    ``engine`` is that of the path. It measures the memory of a row once.
    """
    nodes, weights = (torch.as_tensor(part.copy()) for part in log_rule(points))
    n_baselines, n_units = len(path.baselines), path.members.n_units
    slopes = torch.zeros(n_baselines, n_units, dtype=torch.double)
    curvature = torch.zeros(n_baselines, n_units, n_units, dtype=torch.double)
    baseline = torch.arange(n_baselines).repeat_interleave(points)
    place, weight = nodes.repeat(n_baselines), weights.repeat(n_baselines)
    directions = torch.eye(n_units, device=path.cut.device, dtype=path.cut.dtype)
    size = max(1, min(engine.chunk_rows(path.row), _CHUNK_NUMBERS // max(1, n_units**2)))
    for some, s, w in zip(*(torch.split(part, size) for part in (baseline, place, weight)), strict=True):
        cut, rows = path.at(some.to(path.cut.device), s[:, None])
        # The same run for all chunks, as it has measured its memory.
        engine.cut = cut
        hessians = engine.products(rows, directions).transpose(0, 1).double().cpu()
        slopes.index_add_(0, some, w[:, None] * torch.as_tensor(slopes_of(cut, rows)))
        curvature.index_add_(0, some, (w * s)[:, None, None] * hessians)
    if not bool(torch.isfinite(curvature).all() and torch.isfinite(slopes).all()):
        raise GEHRuntimeError(
            "baseline: derivatives along the path to the row are NaN or infinite; a function in the model has none "
            "there (square roots and norms at 0, for instance). Choose another baseline, or engine='difference'."
        )
    first, second = np.triu_indices(n_units, 1)
    matrix = curvature.numpy()
    main = slopes.numpy() + np.diagonal(matrix, axis1=1, axis2=2)
    return main, matrix[:, first, second] + matrix[:, second, first]
