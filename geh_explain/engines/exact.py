"""Exact Hessians by double backward."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Ints
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Engine, EngineRun, Limits, check_finite
from geh_explain.engines.custom_functions import hides_derivative
from geh_explain.engines.gradient_differences import contradicts_differences
from geh_explain.engines.probes import choose_points
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHRuntimeError
from geh_explain.model.autograd_graph import custom_functions, graph_nodes
from geh_explain.model.cut import Cut
from geh_explain.units.pair_set import HessianRow

#: Rows of a chunk at most: with more, tensors no longer fit into the caches, and nothing is gained.
_MAX_ROWS = 2048
#: Rows times directions at most in one vectorised backward pass; with more, vectorising costs more than it saves.
_MAX_VECTOR_ROWS = 8192
#: Directions at most in one vectorised backward pass.
_MAX_DIRECTIONS = 32
#: Rows that take more bytes than this are large images, for which vectorising over directions does not pay ...
_IMAGE_BYTES = 64 * 1024
#: ... unless all rows of the chunk together take no more than this.
_SMALL_CHUNK_BYTES = 2 * 2**20

#: Pairs are chosen after the sum over points where more than this part of the columns of a row are pairs.
_MIN_CHOSEN = 0.2

#: Rows of a chunk at which double backward is compared with differences of gradients, at most.
_MAX_COMPARED = 16


class NoSecondDerivative(GEHRuntimeError):
    """An operator inside the model cannot be differentiated twice."""


class Exact(Engine):
    """Local Hessians by double backward, chunked over points and directions.

    With f(x, t) the explained number of each row as a function of the units' shifts t (n, D), row i of the local
    Hessians of all n rows is::

        H[:, i, :] = d/dt sum_n g_ni,    g = d/dt sum_n f(x_n, t_n)    at t = 0.

    Rows are independent, so the gradient of a sum over rows holds the gradient of every row, and no loop over points is
    needed.

    *Cost*: one forward pass, one backward pass, and D - 1 second backward passes per chunk (the last unit has no
    partner left); for pairs that r units cover, r of them. Second passes are vectorised over directions where the rows
    are small. Memory: the graph of the forward and the first backward pass.

    *Right* for everything that autograd differentiates twice, to rounding. *Not* for black boxes, for operators without
    a second derivative (:class:`NoSecondDerivative`), and for kinked functions such as ReLU, whose second derivative is
    0 almost everywhere: these are smoothed while explaining, see ``smooth``. The structured engine gives the same
    Hessians faster where it supports the network. Double backward is compared with differences of gradients at a few
    points, and the backward pass of each ``torch.autograd.Function`` in the model at all points; a warning says where a
    function hides its second derivative from autograd.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> point = geh.posterior.PointEstimate()
    >>> explainer = geh.GEHExplainer(lambda x: x.prod(1), engine=geh.engines.Exact(), posterior=point)
    >>> explainer.explain(torch.ones(5, 2), groups=1, progress=False).geh.mean.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    name = "exact"

    def start(self, cut: Cut, limits: Limits) -> ExactRun:
        """Return the object that computes the Hessians of one run."""
        return ExactRun(self, cut, limits)


class ExactRun(EngineRun):
    """Double backward passes of one run, with the measured memory per row."""

    batches_draws = True
    takes_pairs = True

    def __init__(self, engine: Engine, cut: Cut, limits: Limits) -> None:
        super().__init__(engine, cut, limits)
        #: Bytes that the graph takes per row; 0 before it is measured.
        self._row_bytes = 0
        #: Whether all operators of the model support a backward pass vectorised over directions.
        self._vectorise = True
        #: Seed of the current draw, and whether double backward was compared with differences of gradients.
        self._seed = 0
        self._was_compared = False
        #: Number of points at which functions with a backward pass of their own were not examined yet.
        self._unexamined = limits.n_points

    def begin_draw(self, seed: int) -> None:
        """Start a draw; ``seed`` chooses the points at which double backward is checked."""
        self._seed = seed

    def probe(self, rows: Rows, directions: Tensor) -> Tensor | None:
        """Return the products H v (n, D) of the local Hessians with one direction v per row (n, D).

        Other engines are checked against it. Returns None if the outputs have no gradients.

        Raises
        ------
        NoSecondDerivative
            If the gradients cannot be differentiated.
        """
        first = _first_derivatives(self.cut, rows)
        if first.gradient is None:
            return torch.zeros_like(first.t) if first.outputs.requires_grad else None
        return _backward((first.gradient * directions).sum(), first.t)

    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Add the local interactions of a chunk of rows to ``sums``."""
        has_custom_functions = self._add_hessians(sums, rows, labels)
        # After the graph of the chunk is freed.
        self.check_double_backward(rows, has_custom_functions)

    def check_double_backward(self, rows: Rows, has_custom_functions: bool = False) -> None:
        """Compare double backward with differences of gradients at a few points, and set ``doubtful``.

        Functions with a backward pass of their own are examined at all points, once. Draws that are computed at once
        are left out: the first draw is always computed alone.
        """
        if rows.repeats > 1 or self.doubtful:
            return
        if has_custom_functions and self._unexamined > 0:
            self._unexamined -= len(rows)
            self.doubtful = hides_derivative(self.cut, rows, self._seed)
        points = choose_points(rows, self._seed, _MAX_COMPARED, always=not self._was_compared)
        if points is not None:
            self._was_compared = True
            few = rows.take(points[0].tolist())
            self.doubtful |= contradicts_differences(self.cut, few, self._seed, self.probe)

    def _add_hessians(self, sums: GroupSums, rows: Rows, labels: Ints) -> bool:
        """Add the local interactions of a chunk to ``sums``; return whether a custom function may hide some of them."""
        members = sums.one_hot(labels, self.cut.device)
        t, outputs, gradient, slopes = _first_derivatives(self.cut, rows)
        self.check_outputs(rows, t, outputs)
        has_custom_functions = self._unexamined > 0 and bool(custom_functions(outputs, t))
        sums.add_slopes(slopes, members)
        if gradient is None:
            sums.visit(members)
            return has_custom_functions
        step = self._directions_at_once(len(rows))
        # Each row of the Hessian gives its pairs with units that have no row before it.
        needed = self.pairs.rows
        for first in range(0, len(needed), step):
            block = needed[first : first + step]
            hessian_rows = self._hessian_rows(gradient, t, [row.unit for row in block])
            self._add_rows(sums, hessian_rows, block, members)
        check_finite(sums.absolute, rows)
        return has_custom_functions

    def _add_rows(self, sums: GroupSums, found: Tensor, rows: list[HessianRow], members: Tensor) -> None:
        """Add the pairs that some rows of the Hessian hold; ``found`` (k, n, D) are these rows at n points."""
        if isinstance(rows[0].positions, range):
            local = torch.cat([part[:, row.others] for part, row in zip(found, rows, strict=True)], dim=1)
            sums.add(rows[0].positions.start, local, members)
            return
        places = torch.as_tensor(np.concatenate([row.positions for row in rows]))
        n_units = found.shape[2]
        columns = np.concatenate([place * n_units + np.arange(n_units)[row.others] for place, row in enumerate(rows)])
        chosen, local = torch.as_tensor(columns, device=found.device), found.transpose(0, 1).flatten(1)
        if len(columns) > _MIN_CHOSEN * local.shape[1]:
            sums.add(places, local, members, chosen)
        else:
            sums.add(places, local[:, chosen], members)

    def products(self, rows: Rows, directions: Tensor) -> Tensor:
        """Return the products H v (k, n, D) of the local Hessians of n rows with k directions (k, D), for all rows."""
        return self.slopes_and_products(rows, directions)[1]

    def slopes_and_products(self, rows: Rows, directions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients (n, D) of n rows, and their :meth:`products` (k, n, D) with k directions (k, D)."""
        t, _, gradient, slopes = _first_derivatives(self.cut, rows)
        if gradient is None:
            return slopes, t.new_zeros(len(directions), *t.shape)
        step = self._directions_at_once(len(rows))
        return slopes, torch.cat([self._products(gradient, t, part) for part in torch.split(directions, step)])

    def _hessian_rows(self, gradient: Tensor, t: Tensor, units: list[int]) -> Tensor:
        """Return the rows (len(units), n, D) of the local Hessians that belong to ``units``."""
        if self._vectorise and len(units) > 1:
            directions = torch.zeros(len(units), t.shape[1], device=t.device, dtype=t.dtype)
            directions[torch.arange(len(units)), units] = 1
            return self._products(gradient, t, directions)
        return torch.stack([_backward(gradient[:, unit].sum(), t) for unit in units])

    def _products(self, gradient: Tensor, t: Tensor, directions: Tensor) -> Tensor:
        """Return the products (k, n, D) of the local Hessians with k directions (k, D)."""
        if self._vectorise and len(directions) > 1:
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="There is a performance drop")
                    return _backward(gradient, t, directions[:, None].expand(-1, len(t), -1), batched=True)
            except RuntimeError:
                # The operator has no batching rule. If the error has another cause, the loop below raises it again.
                self._vectorise = False
        return torch.stack([_backward((gradient * direction).sum(), t) for direction in directions])

    def _directions_at_once(self, n_rows: int) -> int:
        """Return how many rows of the Hessian one vectorised backward pass computes, for a chunk of ``n_rows``."""
        large_images = self._row_bytes > _IMAGE_BYTES and n_rows * self._row_bytes > _SMALL_CHUNK_BYTES
        if not self._vectorise or large_images:
            return 1
        return max(1, min(_MAX_DIRECTIONS, _MAX_VECTOR_ROWS // n_rows))

    def chunk_rows(self, rows: Rows) -> int:
        """Return ``batch_size``, else the number of rows that the memory allows."""
        if not self._row_bytes:
            self._row_bytes = _graph_bytes(self.cut, rows[:4])
        if self.limits.batch_size is not None:
            return self.limits.batch_size
        # Twice: the second backward pass holds about as much again as the graph that it traverses.
        return max(1, min(_MAX_ROWS, self.chunk_bytes // (2 * self._row_bytes)))


class _FirstDerivatives(NamedTuple):
    """Shifts t (n, D), the outputs (n,) at them, their gradient (n, D) with its graph, and its values.

    ``gradient`` is None where it is constant in t, so that all second derivatives are 0.
    """

    t: Tensor
    outputs: Tensor
    gradient: Tensor | None
    slopes: Tensor


def _first_derivatives(cut: Cut, rows: Rows) -> _FirstDerivatives:
    """Return the outputs of ``rows`` and their gradient at t = 0."""
    t = cut.zeros(rows).requires_grad_()
    outputs = cut.outputs(rows, t)
    if not outputs.requires_grad:
        return _FirstDerivatives(t, outputs, None, torch.zeros_like(t))
    gradient = _backward(outputs.sum(), t, create_graph=True)
    _check_twice_differentiable(gradient)
    return _FirstDerivatives(t, outputs, gradient if gradient.requires_grad else None, gradient.detach())


def _check_twice_differentiable(gradient: Tensor) -> None:
    """Raise if a function forbids a second derivative, which autograd would silently take for 0."""
    # @once_differentiable puts a node of this name into the graph.
    if any(node.name().endswith("Error") for node in graph_nodes(gradient)):
        raise NoSecondDerivative(
            "a function inside the model has no second derivative: it may be differentiated once only "
            "(@once_differentiable). Replace it while explaining, or explain a layer above it."
        )


def _backward(
    value: Tensor, t: Tensor, weights: Tensor | None = None, *, batched: bool = False, create_graph: bool = False
) -> Tensor:
    """Return the gradient of ``value`` at ``t`` as :func:`torch.autograd.grad` does, 0 where there is no dependence.

    Parameters
    ----------
    value
        A number, or a tensor (n, D) with ``weights``.
    t
        The shifts (n, D).
    weights
        Weights of the entries of ``value``, (k, n, D) for k directions at once if ``batched``.
    batched
        Whether to vectorise over the first dimension of ``weights``.
    create_graph
        Whether the gradient is to be differentiated again.

    Raises
    ------
    NoSecondDerivative
        If an operator has no derivative, or a tensor that it needs was changed in place.
    """
    try:
        (gradient,) = torch.autograd.grad(
            value,
            t,
            weights,
            retain_graph=True,
            create_graph=create_graph,
            is_grads_batched=batched,
            allow_unused=True,
        )
    except RuntimeError as error:
        if "modified by an inplace operation" in str(error):
            raise NoSecondDerivative(
                "the model changes a tensor in place that its own derivative needs, so that torch cannot differentiate "
                "it; write that step out of place (x = x * 2, not x *= 2)."
            ) from error
        missing = re.search(r"derivative for (\S+) is not implemented", str(error))
        if missing is None:
            raise
        raise NoSecondDerivative(
            f"the operator {missing[1]} inside the model has no second derivative in torch; replace it while "
            "explaining (for instance by its plain Python form), or explain a layer above it."
        ) from error
    if gradient is None:
        # Not by materialize_grads=True, which drops the dimension of the batched directions.
        return torch.zeros_like(t if weights is None or not batched else weights)
    return gradient


def _graph_bytes(cut: Cut, rows: Rows) -> int:
    """Return the bytes per row that autograd holds for the forward and the first backward pass.

    Counts each storage once and leaves out parameters, which do not grow with the rows.
    """
    gradient = _first_derivatives(cut, rows).gradient
    bytes_by_pointer: dict[int, int] = {}
    # Not by torch.autograd.graph.saved_tensors_hooks: the tensors that it passes keep their own graph alive.
    for node in () if gradient is None else graph_nodes(gradient):
        for tensor in _saved_tensors(node):
            if tensor.ndim and not isinstance(tensor, torch.nn.Parameter):
                bytes_by_pointer[tensor.data_ptr()] = tensor.nbytes
    return max(1, sum(bytes_by_pointer.values()) // len(rows), cut.n_units * 8)


def _saved_tensors(node: Any) -> Iterator[Tensor]:
    """Yield the tensors that a node of the autograd graph holds."""
    for name in dir(node):
        if name == "saved_tensors" or name.startswith("_saved_"):
            try:
                value = getattr(node, name)
            except RuntimeError:  # freed, or no plain tensor
                continue
            for item in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(item, Tensor):
                    yield item
