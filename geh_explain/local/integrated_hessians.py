"""Integrated Hessians: an account of one prediction by second derivatives along the path from the baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats
from geh_explain.engines.exact import ExactRun
from geh_explain.engines.selection import slopes_of
from geh_explain.engines.smoothing.view import Smoothing
from geh_explain.errors import GEHRuntimeError
from geh_explain.local.quadrature import log_rule
from geh_explain.local.unit_path import UnitPath

#: Nodes of the first rule that is tried, and of the last.
MIN_STEPS = 8
MAX_STEPS = 2048
#: Difference of two rules, as a part of the largest contribution, at which the finer one is taken: by precision, and
#: for smoothed networks, whose second derivatives depend on the sharpness by far more.
_TOLERANCE = {torch.float64: 1e-7}
_SINGLE_TOLERANCE = 1e-4
_SMOOTHED_TOLERANCE = 1e-2
#: Panels on which gradients that jump are integrated: the fewest, and the most. They are doubled until the integral
#: misses the difference of the outputs by less than this part of it.
_MIN_PANELS = 8
_MAX_PANELS = 512
_MAX_ERROR = 0.003
#: Rows per call for gradients.
_GRADIENT_ROWS = 1024
#: Nodes in one chunk, and numbers in the rows of their Hessians that are held at once, at most.
_MAX_CHUNK = 512
_CHUNK_NUMBERS = 2**23


@dataclass(frozen=True)
class PathAccount:
    """Contributions to F_r(1) - F_r(0) on each of R paths.

    Attributes
    ----------
    main
        Main effects (R, D).
    pairs
        Effects (R, P) of pairs i < j, in row-major order.
    steps
        Nodes of the rule on the path; 0 for an account by differences.
    error
        Estimated error of a contribution by integration; 0 for an account by differences.
    """

    main: Floats
    pairs: Floats
    steps: int = 0
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


def integrate_path(path: UnitPath, steps: int | None, engine: ExactRun) -> list[PathAccount]:
    """Return the account of each row by integrated Hessians, see :class:`~geh_explain.local.LocalExplanation`.

    In the positions u of the units, which are s at all units along the path, F_ij its second and F_i its first
    derivatives, and the Gauss rule (s_k, w_k) of the weight -ln s ::

        Gamma_ij = sum_k w_k s_k F_ij(s_k),    Gamma_ii = sum_k w_k (F_i(s_k) + s_k F_ii(s_k)).

    Main effects are Gamma_ii, effects of pairs 2 Gamma_ij.

    Parameters
    ----------
    path
        The output as a function of the units' positions, with the view under which it is differentiated.
    steps
        Nodes of the rule; None doubles them from 8 on until two rules agree for the row, or there are 2,048.
    engine
        That of the path.
    """
    smoothed = isinstance(path.cut.view, Smoothing)
    if steps is not None:
        rules = (integrate_rows(path, count, engine) for count in (steps, max(1, steps // 2)))
        return [_compared(fine, coarse, smoothed) for fine, coarse in zip(*rules, strict=True)]
    tolerance = _SMOOTHED_TOLERANCE if smoothed else _TOLERANCE.get(path.cut.dtype, _SINGLE_TOLERANCE)
    accounts = integrate_rows(path, MIN_STEPS, engine)
    unfinished = list(range(path.n_rows))
    steps = MIN_STEPS
    while steps < MAX_STEPS and unfinished:
        steps *= 2
        for row, fine in zip(unfinished, integrate_rows(path.part(unfinished), steps, engine), strict=True):
            accounts[row] = _compared(fine, accounts[row], smoothed)
        unfinished = [row for row in unfinished if accounts[row].error > tolerance * accounts[row].largest]
    return accounts


def integrate_rows(path: UnitPath, steps: int, engine: ExactRun) -> list[PathAccount]:
    """Return the account of each row by the rule with so many nodes."""
    main, pairs = _apply_rule(path, steps, engine)
    of_rows = map(path.of_row, range(path.n_rows))
    return [PathAccount(main[of_row], pairs[of_row], steps, np.inf) for of_row in of_rows]


def with_own_gradients(
    path: UnitPath, accounts: list[PathAccount], differences: Floats, max_rows: int
) -> list[PathAccount]:
    """Return the accounts with main effects by the gradients of the network itself, for networks with kinks.

    Row sums of Gamma are integrated gradients, int F_i(s) ds, so that Gamma_ii is these minus Gamma_ij of all j. Pairs
    stay those of the smoothed network. The contributions then sum to F(1) - F(0) of the network itself, up to the
    integration of gradients that jump. ``differences`` (N,) are these, the means over baselines; ``max_rows`` is the
    number of rows whose graph fits into memory.
    """
    found: list[Floats] = [np.zeros(0)] * path.n_rows
    unfinished, panels = list(range(path.n_rows)), _MIN_PANELS
    while unfinished:
        part = path.part(unfinished)
        gradients = _integrated_gradients(part, panels, max_rows)
        for number, row in enumerate(unfinished):
            found[row] = gradients[part.of_row(number)]
        # Integrated gradients sum to the difference of the outputs, so that their error is known.
        unfinished = [row for row in unfinished if _error_share(found[row], differences[row]) > _MAX_ERROR]
        panels *= 2
        if panels > _MAX_PANELS:
            break
    return [
        replace(account, main=gradients - _sums_of_pairs(account.pairs / 2, path.members.n_units))
        for account, gradients in zip(accounts, found, strict=True)
    ]


def _sums_of_pairs(pairs: Floats, n_units: int) -> Floats:
    """Return for each unit the sum (R, D) over the pairs (R, P) that it is in."""
    ends = np.concatenate(np.triu_indices(n_units, 1))
    return np.stack([np.bincount(ends, np.concatenate([row, row]), n_units) for row in pairs])


def _error_share(gradients: Floats, difference: float) -> float:
    """Return how far integrated gradients (R, D) miss the difference of the outputs, of the larger of both sizes."""
    of_units = gradients.mean(axis=0)
    scale = max(abs(difference), float(np.abs(of_units).max(initial=0.0)))
    return abs(difference - float(of_units.sum())) / scale if scale > 0 else 0.0


def _integrated_gradients(path: UnitPath, panels: int, max_rows: int) -> Floats:
    """Return int F_i(s) ds (R, D) by a rule on so many panels."""
    n_baselines = len(path.baselines)
    nodes, weights = _panel_rule(panels)
    places, weight = nodes.repeat(n_baselines), weights.repeat(n_baselines)
    baseline = torch.arange(n_baselines).repeat_interleave(len(nodes))
    gradients = torch.zeros(n_baselines, path.members.n_units, dtype=torch.double)
    size = min(path.call_rows, max_rows, _GRADIENT_ROWS)
    for some, s, w in zip(*(torch.split(part, size) for part in (baseline, places, weight)), strict=True):
        slopes = torch.as_tensor(slopes_of(*path.at(some.to(path.cut.device), s[:, None])))
        gradients.index_add_(0, some, w[:, None] * slopes)
    return gradients.numpy()


def _panel_rule(panels: int) -> tuple[Tensor, Tensor]:
    """Return nodes and weights on (0, 1) of four-point Gauss rules on so many panels, for functions that jump."""
    nodes, weights = np.polynomial.legendre.leggauss(4)
    places = (np.arange(panels)[:, None] + (nodes + 1) / 2) / panels
    return torch.as_tensor(places.ravel()), torch.as_tensor(np.tile(weights / 2, panels) / panels)


def _compared(fine: PathAccount, coarse: PathAccount, smoothed: bool) -> PathAccount:
    """Return the account by the finer of two rules; its error is the largest difference of the two.

    Of smoothed networks only pairs count, as main effects follow from :func:`with_own_gradients`.
    """
    of_main, of_pairs = fine.main - coarse.main, fine.pairs - coarse.pairs
    errors = [float(np.abs(part.mean(axis=0)).max(initial=0.0)) for part in (of_main, of_pairs)]
    return replace(fine, error=errors[1] if smoothed else max(errors))


def _apply_rule(path: UnitPath, steps: int, engine: ExactRun) -> tuple[Floats, Floats]:
    """Return main effects (R, D) and effects of pairs (R, P) by the rule with so many nodes.

    ``engine`` is that of the path, or of another row or draw: it measures the memory of a row once.
    """
    nodes, weights = (torch.as_tensor(part.copy()) for part in log_rule(steps))
    n_baselines, n_units = len(path.baselines), path.members.n_units
    slopes = torch.zeros(n_baselines, n_units, dtype=torch.double)
    curvature = torch.zeros(n_baselines, n_units, n_units, dtype=torch.double)
    baseline = torch.arange(n_baselines).repeat_interleave(steps)
    place, weight = nodes.repeat(n_baselines), weights.repeat(n_baselines)
    directions = torch.eye(n_units, device=path.cut.device, dtype=path.cut.dtype)
    engine.cut, row = path.at(torch.zeros(1, dtype=torch.long), torch.ones(1, 1))
    size = min(engine.chunk_rows(row), _MAX_CHUNK)
    for some, s, w in zip(*(torch.split(part, size) for part in (baseline, place, weight)), strict=True):
        cut, rows = path.at(some.to(path.cut.device), s[:, None])
        # The same run for all chunks, as it has measured its memory.
        engine.cut = cut
        start = 0
        for block in torch.split(directions, max(1, _CHUNK_NUMBERS // (len(rows) * n_units))):
            gradients, products = engine.slopes_and_products(rows, block)
            if start == 0:
                slopes.index_add_(0, some, w[:, None] * gradients.double().cpu())
            weighted = (w * s)[:, None, None] * products.transpose(0, 1).double().cpu()
            curvature[:, start : start + len(block)].index_add_(0, some, weighted)
            start += len(block)
    if not bool(torch.isfinite(curvature).all() and torch.isfinite(slopes).all()):
        raise GEHRuntimeError(
            "baseline: derivatives along the path to the row are NaN or infinite; a function in the model has none "
            "there (square roots and norms at 0, for instance). Choose another baseline, or engine='difference'."
        )
    first, second = np.triu_indices(n_units, 1)
    matrix = curvature.numpy()
    main = slopes.numpy() + np.diagonal(matrix, axis1=1, axis2=2)
    return main, matrix[:, first, second] + matrix[:, second, first]
