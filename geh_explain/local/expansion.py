"""Second-order expansions of the output around single rows."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from geh_explain.data.rows import Rows
from geh_explain.data.targets import Target
from geh_explain.engines.base import EngineRun, check_finite
from geh_explain.engines.exact import ExactRun
from geh_explain.engines.smoothing.radius import RadiusSmoothing
from geh_explain.engines.structured.engine import StructuredRun
from geh_explain.engines.structured.recorder import UnsupportedOp
from geh_explain.errors import GEHValueError
from geh_explain.local.hessians import CHUNK_NUMBERS, RowHessians, read_rows
from geh_explain.model.cut import Cut
from geh_explain.model.preserve import preserved
from geh_explain.run.setup import ModelSetup

#: Rows at which double backward is compared with differences of gradients, at most.
_MAX_CHECKED = 16


@dataclass(frozen=True)
class Expansion:
    """Second-order expansions of the output around N rows, in the shifts d of D units.

    ::

        f(x + d) ~ value + gradient d + d' hessian d / 2.

    Attributes
    ----------
    value
        Outputs (N,) of the model itself.
    gradient
        Gradients (N, D) of the smoothed network; those of the model where nothing is smoothed.
    hessian
        Hessians (N, D, D), diagonal included.
    radius
        Radius (N,) of the ball in which the expansion is made, for smoothing by
        :class:`~geh_explain.engines.Radius`; NaN for other smoothing, and without any.

    Examples
    --------
    >>> import torch
    >>> from geh_explain.captum import InputHessian
    >>> found = InputHessian(lambda x: x[:, 0] * x[:, 1] ** 2).expand(torch.tensor([[1.0, 2.0]]))
    >>> found.value.tolist(), found.gradient.tolist(), found.hessian.tolist()
    ([4.0], [[4.0, 4.0]], [[[0.0, 4.0], [4.0, 2.0]]])
    >>> found.predict(torch.tensor([[0.5, 0.0]])).tolist()
    [6.0]
    """

    value: Tensor
    gradient: Tensor
    hessian: Tensor
    radius: Tensor

    def predict(self, shifts: Tensor) -> Tensor:
        """Return the expansions at ``shifts`` (N, D) of the units, (N,), or (N, k) at k shifts (N, k, D) of each row.

        Raises
        ------
        GEHValueError
            If the shifts are not those of N rows and D units.
        """
        n_rows, n_units = self.gradient.shape
        if shifts.ndim not in (2, 3) or shifts.shape[0] != n_rows or shifts.shape[-1] != n_units:
            raise GEHValueError(
                f"shifts has shape {tuple(shifts.shape)}; give ({n_rows}, {n_units}), or ({n_rows}, k, {n_units}) for "
                "k shifts of each row."
            )
        d = shifts.to(self.gradient).reshape(n_rows, -1, n_units)
        linear = d @ self.gradient[:, :, None]
        curved = (d @ self.hessian * d).sum(dim=2) / 2
        return (self.value[:, None] + linear[:, :, 0] + curved).reshape(shifts.shape[:-1])


def expand_rows(
    setup: ModelSetup, inputs: Any, target: Target, additional_forward_args: Any, reference: Any
) -> Expansion:
    """Return the expansions around all rows, in the dtype of the units.

    With :class:`~geh_explain.engines.Radius` the expansion is the quadratic function through f(x) that is closest to f
    in mean square for normal shifts d of standard deviation sigma. Among functions through f(x) that is not the Hessian
    of the smoothed network S alone: a multiple of the identity accounts for the mean change of the output ::

        H = H_S + lambda I,    lambda = (S(x) - f(x) - sigma^2 tr(H_K) / 2) / (sigma^2 (1 + D / 2)),

    with H_K the part of H_S that the kinks cause. sigma^2 tr(H_K) is the derivative of S(x) in a common factor of all
    bandwidths, as the Gaussian forms satisfy the heat equation.

    Parameters
    ----------
    setup
        The arguments of an explainer.
    inputs, target, additional_forward_args, reference
        As in :func:`~geh_explain.local.hessians.row_hessians`.
    """
    with preserved(setup.model):
        points, cut, rows_of = read_rows(setup, inputs, target, additional_forward_args, reference)
        parts = [_expand(rows_of, cut, rows) for rows in rows_of.parts(points)]
        rows_of.warn()
    return _joined(parts)


def _expand(rows_of: RowHessians, cut: Cut, rows: Rows) -> Expansion:
    """Return the expansions around rows that share a view."""
    found = []
    with rows_of.started(rows) as run:
        if not isinstance(run, (StructuredRun, ExactRun)):
            raise GEHValueError(
                f"engine={run.name!r} has no derivatives, of which an expansion is made; use engine='auto' with a "
                "model that torch can differentiate."
            )
        size = max(1, min(run.chunk_rows(rows), CHUNK_NUMBERS // cut.n_units**2))
        for chunk in rows.split(size):
            hessian = _hessians(run, chunk)
            found.append(_complete(cut, chunk, hessian))
            check_finite(hessian.sum(dim=2), chunk)
        exact = run.exact if isinstance(run, StructuredRun) else run
        if exact is run or exact.name == run.name or (isinstance(run, StructuredRun) and run.detaches):
            exact.check_double_backward(rows[:_MAX_CHECKED], rows_of.has_custom_functions(rows))
    return _joined(found)


def _joined(parts: list[Expansion]) -> Expansion:
    """Return the expansions of all parts, in their order."""
    if len(parts) == 1:
        return parts[0]
    names = [field.name for field in fields(Expansion)]
    return Expansion(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


def _hessians(run: EngineRun, rows: Rows) -> Tensor:
    """Return the Hessians (n, D, D) of the network under the view of the cut."""
    if isinstance(run, StructuredRun) and run.unsupported is None:
        # A branch of the forward pass that only these rows take may not be supported.
        with suppress(UnsupportedOp):
            ((local, slopes, _),) = run.local_hessians(rows, [rows.target])
            if local is None:
                return slopes.new_zeros(*slopes.shape, slopes.shape[1])
            w = local.linear_map
            return local.hessians if w is None else w.mT @ local.hessians @ w
    exact = run.exact if isinstance(run, StructuredRun) else run
    assert isinstance(exact, ExactRun)
    products = exact.products(rows, torch.eye(exact.cut.n_units, dtype=exact.cut.dtype, device=exact.cut.device))
    h = products.transpose(0, 1)
    return (h + h.mT) / 2


def _complete(cut: Cut, rows: Rows, hessian: Tensor) -> Expansion:
    """Return the expansions of rows with outputs, gradients, and the mean change of the output by the kinks.

    The network is evaluated once more, with the bandwidths that were measured last, those of these rows: its gradients
    in the units and in a common factor of all bandwidths of a row come from the same backward pass.
    """
    with torch.no_grad():
        value = cut.outputs(rows)
    view = cut.view
    t = cut.zeros(rows).requires_grad_()
    if not isinstance(view, RadiusSmoothing):
        outputs = cut.outputs(rows, t)
        return Expansion(value, _gradient(outputs, t)[0], hessian, torch.full_like(value, torch.nan))
    factors = torch.ones_like(t[:, 0], requires_grad=True)
    with view.stretched(factors):
        outputs = cut.outputs(rows, t)
    gradient, growth = _gradient(outputs, t, factors)
    change = outputs.detach() - value - growth / 2
    variance = view.sigmas.to(change).square()
    # Rows that nothing is smoothed in have no change.
    shift = torch.where(variance > 0, change / variance.clamp_min(torch.finfo(variance.dtype).tiny), 0.0)
    hessian.diagonal(dim1=1, dim2=2).add_(shift[:, None] / (1 + cut.n_units / 2))
    return Expansion(value, gradient, hessian, view.sigmas * math.sqrt(cut.n_units + 2))


def _gradient(outputs: Tensor, *variables: Tensor) -> list[Tensor]:
    """Return the gradients of the sum of outputs (n,), 0 where there is no dependence."""
    if not outputs.requires_grad:
        return [torch.zeros_like(variable) for variable in variables]
    found = torch.autograd.grad(outputs.sum(), variables, allow_unused=True)
    pairs = zip(found, variables, strict=True)
    return [torch.zeros_like(variable) if gradient is None else gradient for gradient, variable in pairs]
