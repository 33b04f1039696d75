"""Exact Hessians by two backward passes, for everything autograd can differentiate twice.

Rows are independent, so the gradient of a sum over rows holds every row's gradient: D backward passes
serve all points of a chunk.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from geh_explain._memory import chunk_bytes
from geh_explain._types import Ints
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Engine, EngineRun, Limits, refuse_not_finite
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHRuntimeError
from geh_explain.model.cut import Cut

#: More rows than this in a chunk only spill the caches.
_MAX_ROWS = 2048
#: Below this many rows times directions, vectorising over directions pays for its overhead ...
_VECTOR_ROWS = 8192
#: ... unless rows are large images, and more than a few of these bytes: then it never does.
_IMAGE_BYTES, _FEW_BYTES = 64 * 1024, 2 * 2**20


class NoSecondDerivative(GEHRuntimeError):
    """Something inside the model cannot be differentiated twice."""


class Exact(Engine):
    """Double backward, chunked over points and directions.

    >>> import torch, geh_explain as geh
    >>> one = geh.posterior.PointEstimate()
    >>> explainer = geh.GEHExplainer(lambda x: x.prod(1), engine=geh.engines.Exact(), posterior=one)
    >>> explainer.explain(torch.ones(5, 2), groups=1, progress=False).geh.mean.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    name = "exact"

    def start(self, cut: Cut, limits: Limits) -> ExactRun:
        """Return the object that computes the Hessians of one run."""
        return ExactRun(self, cut, limits)


class ExactRun(EngineRun):
    """Double backward passes of one run, with the memory that a row takes."""

    batches_draws = True

    def __init__(self, engine: Engine, cut: Cut, limits: Limits) -> None:
        super().__init__(engine, cut, limits)
        self._row_bytes = 0
        self._vectorise = True

    def probe(self, rows: Rows) -> tuple[Tensor, Tensor] | None:
        """Return one direction (D,) and the local Hessians times it (n, D).

        Returns None if the outputs have no gradients; raises :class:`NoSecondDerivative` if those have none.
        """
        cut = self.cut
        t, gradient, _ = _gradient(cut, rows)
        direction = torch.randn(cut.n_units, generator=torch.Generator().manual_seed(0), dtype=torch.double).to(t)
        if gradient is None:
            return (direction, torch.zeros_like(t)) if cut.outputs(rows, t).requires_grad else None
        return direction, _backward((gradient * direction).sum(), t)

    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Add the local interactions of a chunk of rows to ``sums``."""
        members = sums.one_hot(labels, self.cut.device)
        t, gradient, slopes = _gradient(self.cut, rows)
        sums.add_slopes(slopes, members)
        if gradient is None:
            return
        pair, units = 0, self.cut.n_units
        step = self._directions(len(rows))
        # The last unit has no partner left, so its row of the Hessian is never asked for.
        for first in range(0, units - 1, step):
            hessian = self._second(gradient, t, range(first, min(first + step, units - 1)))
            local = torch.cat([row[:, unit + 1 :] for unit, row in enumerate(hessian, start=first)], dim=1)
            sums.add(pair, local, members)
            pair += local.shape[1]
        refuse_not_finite(sums.absolute, rows)

    def _second(self, gradient: Tensor, t: Tensor, units: range) -> Tensor:
        """Return the rows (directions, n, D) of the Hessian that belong to ``units``."""
        if self._vectorise and len(units) > 1:
            directions = torch.zeros(len(units), 1, t.shape[1], device=t.device, dtype=t.dtype)
            directions[torch.arange(len(units)), 0, torch.arange(units.start, units.stop)] = 1
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="There is a performance drop")
                    return _backward(gradient, t, directions.expand(-1, len(t), -1), batched=True)
            except RuntimeError:  # an operator that cannot be vectorised; one by one it may work
                self._vectorise = False
        return torch.stack([_backward(gradient[:, unit].sum(), t) for unit in units])

    def _directions(self, rows: int) -> int:
        if not self._vectorise or (self._row_bytes > _IMAGE_BYTES and rows * self._row_bytes > _FEW_BYTES):
            return 1
        return max(1, min(32, _VECTOR_ROWS // rows))

    def chunk_rows(self, rows: Rows) -> int:
        """Return the batch size asked for, else what the memory allows."""
        if not self._row_bytes:
            self._row_bytes = _graph_bytes(self.cut, rows[:4])
        if self.limits.batch_size is not None:
            return self.limits.batch_size
        # Twice: the second backward holds about as much again as the graph it walks.
        memory = chunk_bytes(self.cut.device, self.limits.memory)
        return max(1, min(_MAX_ROWS, memory // (2 * self._row_bytes)))


def _gradient(cut: Cut, rows: Rows) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return shifts (n, D), the differentiable gradient at them, None where it is constant, and its values."""
    t = cut.zeros(rows).requires_grad_()
    value = cut.outputs(rows, t)
    if not value.requires_grad:
        return t, None, torch.zeros_like(t)
    gradient = _backward(value.sum(), t, create_graph=True)
    _refuse_once_differentiable(gradient)
    return t, gradient if gradient.requires_grad else None, gradient.detach()


def _refuse_once_differentiable(gradient: Tensor) -> None:
    """Raise where autograd would pass over a function that forbids a second derivative, as if it were flat."""
    if any(node.name().endswith("Error") for node in _graph(gradient)):
        raise NoSecondDerivative(
            "a function inside the model has no second derivative: it may be differentiated once only "
            "(@once_differentiable). Replace it while explaining, or explain a layer above it."
        )


def _backward(
    value: Tensor, t: Tensor, weights: Tensor | None = None, *, batched: bool = False, create_graph: bool = False
) -> Tensor:
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
    if gradient is None:  # the value does not depend on t; materialize_grads would forget the batch of directions
        return torch.zeros_like(t if weights is None or not batched else weights)
    return gradient


def _graph_bytes(cut: Cut, rows: Rows) -> int:
    """Return the bytes per row that autograd keeps for the forward and the first backward pass."""
    _, gradient, _ = _gradient(cut, rows)
    kept: dict[int, int] = {}
    # Hooks on saved tensors would tell the same, but what they hand out keeps its own graph alive for ever.
    for node in () if gradient is None else _graph(gradient):
        for tensor in _saved(node):
            if tensor.ndim and not isinstance(tensor, torch.nn.Parameter):
                kept[tensor.data_ptr()] = tensor.nbytes
    return max(1, sum(kept.values()) // len(rows), cut.n_units * 8)


def _graph(value: Tensor) -> Iterator[Any]:
    """Yield all nodes of the graph that leads to ``value``."""
    waiting, seen = [value.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            waiting += [child for child, _ in node.next_functions]


def _saved(node: Any) -> Iterator[Tensor]:
    """Yield the tensors that a node of the graph keeps."""
    for name in dir(node):
        if name == "saved_tensors" or name.startswith("_saved_"):
            try:
                value = getattr(node, name)
            except RuntimeError:  # it was freed, or is no plain tensor
                continue
            for each in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(each, Tensor):
                    yield each
