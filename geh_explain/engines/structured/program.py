"""Local Hessians from a recorded forward pass.

For a network of linear maps and elementwise functions s_l with inputs z_l the Hessian in the units' shifts is::

    H = sum over curved steps l of J_l^T diag(g_l * s_l''(z_l)) J_l,

with J_l the Jacobian of z_l and g_l the gradient of the output at s_l(z_l). One backward pass gives all g_l, one
forward pass of D directions all J_l. Products, softmax and pooling contribute similar terms, see
:mod:`geh_explain.engines.structured.rules`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from geh_explain.engines.structured.jacobians import (
    DeferredProduct,
    DiagonalJacobian,
    Jacobian,
    UniformJacobian,
    is_shared,
    to_tensor,
)
from geh_explain.engines.structured.recorder import HessianTerm, Recorder, Step, UnsupportedOp

#: Products of two shared directions are tabulated up to this many numbers.
_MAX_TABLE = 2**22
#: Entries with a weight of 0 are left out of a product if at most this part of the others remains in each row.
_MAX_SHARE = 0.5
#: Rows whose entries are counted before those of all rows.
_FIRST_ROWS = 16
#: A layer is narrow if there are at least this many times as many units as entries.
_NARROW_RATIO = 2


@dataclass(frozen=True)
class LocalHessians:
    """Local Hessians of n rows at the units, or at a narrow layer that is a linear map of them.

    Attributes
    ----------
    hessians
        Hessians (n, D, D) at the units, or (n, d, d) at d entries z = W t of a narrow layer.
    linear_map
        The map W (d, D), for the pull-back W^T H W; None where the Hessians are at the units.
    """

    hessians: Tensor
    linear_map: Tensor | None


class Program:
    """The recorded steps that lead to curvature, through which directions are pushed.

    Parameters
    ----------
    recorder
        Record of one forward pass.
    values
        The outputs (n,) of that pass to explain, one or several: they share the directions.
    t
        The units' shifts (n, D) of that pass.

    Attributes
    ----------
    slopes
        For each of ``values`` its gradient (n, D) at ``t``.

    Raises
    ------
    UnsupportedOp
        If the forward pass crossed the cut several times, or not at all.
    """

    def __init__(self, recorder: Recorder, values: Sequence[Tensor], t: Tensor) -> None:
        if len(recorder.entries) != 1:
            raise UnsupportedOp("a layer that is called several times")
        self._entry = recorder.entries[0]
        self._n_rows = values[0].shape[0]
        curved = [step for step in recorder.steps if step.hessian_terms is not None]
        edges = [step.edge for step in curved if step.edge is not None]
        self.slopes: list[Tensor] = []
        #: For each output its gradient at each curved step that it depends on, by the step's slot.
        self._gradients: list[dict[int, Tensor]] = []
        for number, value in enumerate(values):
            gradients: Sequence[Tensor | None] = [None] * len(curved)
            slopes: Tensor | None = None
            if value.requires_grad:
                # The last pass frees the graph.
                keep, ends = number + 1 < len(values), [*edges, get_gradient_edge(t)]
                *gradients, slopes = torch.autograd.grad(value.sum(), ends, retain_graph=keep, allow_unused=True)
            self.slopes.append(torch.zeros_like(t) if slopes is None else slopes)
            known = zip(curved, gradients, strict=True)
            self._gradients.append({step.out: gradient for step, gradient in known if gradient is not None})
        #: Slots of the curved steps that an output depends on.
        self._curved = {slot for gradients in self._gradients for slot in gradients}
        # From the end: a step is needed if it is curved, or if a later step that is needed takes its result.
        needed: set[int] = set()
        steps: list[Step] = []
        for step in reversed(recorder.steps):
            if step.out in needed or step.out in self._curved:
                steps.append(step)
                needed.update(step.sources)
        self._steps = steps[::-1]
        #: Slots whose directions are the same at all positions of a channel.
        self._uniform: set[int] = set()
        #: Index of the last step that takes each slot, after which its Jacobian is freed.
        self._last_use = {source: number for number, step in enumerate(self._steps) for source in step.sources}

    @property
    def n_curved(self) -> int:
        """Number of entries per row of all curved steps, those with the same directions counted once."""
        return sum(
            step.n_channels if self._uniform.issuperset(step.sources) else step.size
            for step in self._steps
            if step.out in self._curved
        )

    @property
    def n_entries(self) -> int:
        """Number of entries per row of all steps."""
        return sum(step.size for step in self._steps)

    @property
    def largest_step(self) -> int:
        """Number of entries per row of the largest step through which directions are pushed."""
        pushed = [step for step in self._steps if step.out in self._last_use]
        return max((step.n_channels if step.out in self._uniform else step.size for step in pushed), default=1)

    def _find_uniform(self, basis: Sequence[Jacobian]) -> None:
        """Find the steps whose directions stay the same at all positions of a channel."""
        pairs = zip(self._entry, basis, strict=True)
        self._uniform = {slot for slot, jacobian in pairs if isinstance(jacobian, UniformJacobian)}
        for step in self._steps:
            if step.keeps_uniform and self._uniform.issuperset(step.sources):
                self._uniform.add(step.out)

    @torch.no_grad()
    def local_hessians(
        self, basis: Sequence[Jacobian], check_cost: Callable[[int], None] | None = None
    ) -> list[LocalHessians | None]:
        """Push directions through all steps, and return the sum of the Hessian terms of each output.

        It is None for an output that depends on no curved step.

        Parameters
        ----------
        basis
            The units' directions at the cut, one Jacobian per tensor that crosses it.
        check_cost
            Called once before the first Hessian term, with the number of entries d of a narrow layer, 0 if the Hessian
            is taken at the units. It may raise to stop.
        """
        jacobians: dict[int, Jacobian] = dict(zip(self._entry, basis, strict=True))
        self._find_uniform(basis)
        hessians: list[Tensor | None] = [None] * len(self._gradients)
        linear_map: Tensor | None = None
        started = False
        for number, step in enumerate(self._steps):
            if not started and linear_map is None and len(jacobians) == 1:
                linear_map = self._restart_if_narrow(jacobians, step)
            sources = [jacobians[source] for source in step.sources]
            if step.out in self._curved and step.hessian_terms is not None:
                if check_cost is not None and not started:
                    check_cost(0 if linear_map is None else len(linear_map))
                started = True
                for output, gradients in enumerate(self._gradients):
                    if step.out in gradients:
                        for term in step.hessian_terms(gradients[step.out], *sources):
                            hessians[output] = _add_term(hessians[output], term, self._n_rows)
            # Free directions as soon as no later step takes them: they are the largest tensors here.
            for source in set(step.sources):
                if self._last_use[source] == number:
                    del jacobians[source]
            if step.out in self._last_use:
                jacobians[step.out] = step.push_forward(*sources)
        if check_cost is not None and not started:
            check_cost(0)
        # Steps above a conversion to double precision are computed in it.
        dtype = self.slopes[0].dtype
        linear_map = None if linear_map is None else linear_map.to(dtype)
        return [None if found is None else LocalHessians(found.to(dtype), linear_map) for found in hessians]

    def _restart_if_narrow(self, jacobians: dict[int, Jacobian], step: Step) -> Tensor | None:
        """Continue from a narrow layer as if its entries were the units, if ``step`` takes such a layer.

        The layer must be the only tensor that depends on the units, a linear map of them that all rows share, and the
        input of a curved step. Its Jacobian in ``jacobians`` is replaced by the identity. Returns the map W (d, D), or
        None.
        """
        ((slot, jacobian),) = jacobians.items()
        if not isinstance(jacobian, Tensor) or not is_shared(jacobian) or step.out not in self._curved:
            return None
        n_units, shape = jacobian.shape[0], jacobian.shape[2:]
        if _NARROW_RATIO * math.prod(shape) > n_units:
            return None
        jacobians[slot] = DiagonalJacobian(jacobian.new_ones(1, math.prod(shape)), tuple(shape))
        return jacobian.reshape(n_units, -1).T.contiguous()


def _add_term(hessians: Tensor | None, term: HessianTerm, n_rows: int) -> Tensor:
    """Return the local Hessians (n, D, D) plus one term; ``hessians`` may be overwritten."""
    weight = term.weight.reshape(n_rows, -1)
    if isinstance(term.left, DiagonalJacobian) and term.right is None:
        if hessians is None:
            hessians = weight.new_zeros(n_rows, weight.shape[1], weight.shape[1])
        hessians.diagonal(dim1=1, dim2=2).add_(term.left.scale**2 * weight)
        return hessians
    left = term.left
    if isinstance(left, UniformJacobian) and term.right is None:
        # The weights of all positions of a channel meet the same directions.
        weight, left = weight.reshape(n_rows, left.shape[0], -1).sum(dim=2), left.base
    if isinstance(left, DeferredProduct) and left.factor is not None and left.base.shape[1] == 1 and term.right is None:
        # (f J)^T diag(w) (f J) = J^T diag(f^2 w) J, and J is shared by all rows.
        weight, left = weight * left.factor.reshape(n_rows, -1) ** 2, left.base
    left = to_tensor(left)
    left = left.reshape(*left.shape[:2], -1)
    right = left if term.right is None else to_tensor(term.right).reshape(len(left), -1, left.shape[2])
    n_units, width = left.shape[0], left.shape[2]
    if left.shape[1] == right.shape[1] == 1 and n_units**2 * width <= _MAX_TABLE:
        # Shared directions: one table of their products (D^2, width), and one matrix product for all rows.
        products = (left[:, None, 0] * right[None, :, 0]).reshape(n_units**2, width)
        part = (weight @ products.T).reshape(n_rows, n_units, n_units)
    else:
        if term.right is None:
            left, weight = _without_zeros(left, weight)
            right = left
        first, second = (left * weight).transpose(0, 1), right.expand(-1, n_rows, -1).permute(1, 2, 0)
        if hessians is not None and term.right is None and hessians.dtype == first.dtype:
            return hessians.baddbmm_(first, second)
        part = torch.bmm(first, second)
    if term.right is not None:
        part = part + part.transpose(1, 2)
    return part if hessians is None else hessians.add_(part)


def _without_zeros(left: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return directions (D, n, k) and weights (n, k) of the entries that count in each row, where these are few.

    The second derivative of a kink smoothed by a Gaussian is 0 away from the kink, at most entries of a row.
    """
    n_rows, width = weight.shape
    # A few rows often tell that there are too many.
    for rows in (weight[:_FIRST_ROWS], weight):
        count = max(1, int(torch.count_nonzero(rows, dim=1).max()))
        if count > _MAX_SHARE * width:
            return left, weight
    entries = weight.abs().topk(count, dim=1, sorted=False).indices
    chosen = left.expand(-1, n_rows, -1).gather(2, entries.expand(len(left), -1, -1))
    return chosen, weight.gather(1, entries)
