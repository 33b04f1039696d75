"""Hessians of networks made of linear maps and elementwise functions, at about the cost of a forward pass per unit.

See :mod:`geh_explain.engines.program` for how. Where the units enter through a linear map that is narrower than they
are many, the Hessians at that narrow place are summed by group and pulled back once: the cost of a point does not
depend on the number of units.
"""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain._memory import chunk_bytes
from geh_explain._types import Ints
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Engine, EngineRun, Limits, refuse_not_finite
from geh_explain.engines.exact import Exact
from geh_explain.engines.structured.program import Jacobian, Local, Program, Recorder, Scaled, UnsupportedOp
from geh_explain.engines.sums import GroupSums
from geh_explain.model.cut import Cut
from geh_explain.units.neurons import Neurons

#: Rows of a chunk: more only spill the caches.
_MAX_ROWS = 16384
_CACHE_BYTES = 8 * 2**20
#: An accumulated pair of directions costs this much of a multiplication that carries a direction through a layer.
_PAIR_COST = 0.5
#: How far the Hessian may be from one that autograd gives, along a random direction.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-8}
#: Rows on which an engine is tried.
PROBE_ROWS = 2
#: Absolute interactions need a pulled-back Hessian per point: of as many points as this many multiplications allow per
#: draw, and never fewer than a few.
_ABSOLUTE_WORK = 1e9
_MIN_ABSOLUTE = 4
#: How many Hessians, how many rows of each, and how many numbers are pulled back at a time.
_POINTS, _BLOCK, _AT_ONCE = 64, 256, 2**20


class Structured(Engine):
    """One forward pass of directions and one backward pass, for linear maps and elementwise functions.

    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> explainer = geh.GEHExplainer(net, engine=geh.engines.Structured(), posterior=geh.posterior.PointEstimate())
    >>> explainer.explain(torch.randn(20, 3), groups=1, progress=False).settings["engine"]
    'structured'
    """

    name = "structured"

    def start(self, cut: Cut, limits: Limits) -> StructuredRun:
        """Return the object that computes the Hessians of one run."""
        return StructuredRun(self, cut, limits)


class StructuredRun(EngineRun):
    """Recorded forward passes of one run; draws that the record does not support are handed to the exact engine."""

    batches_draws = True

    def __init__(self, engine: Engine, cut: Cut, limits: Limits) -> None:
        super().__init__(engine, cut, limits)
        self.exact = Exact().start(cut, limits)
        #: What the network has that is not supported, None where everything is.
        self.unsupported: str | None = None
        self._row_bytes = 0
        self._narrow = 0
        #: Which points the absolute interactions of this draw are measured at, None for all.
        self._absolute: NDArray[np.bool_] | None = None
        self._via: Tensor | None = None
        self._absolute_hessians: list[Tensor] = []
        self._sums: Tensor | None = None

    # Is the network supported?

    def adapt(self, rows: Rows) -> None:
        """Check the network of this draw; if it is not supported, the exact engine computes the draw."""
        rows = rows[:PROBE_ROWS]
        probe = self.exact.probe(rows)
        self.check(rows, probe or (self.cut.zeros(rows)[0], self.cut.zeros(rows)))

    def check(self, rows: Rows, probe: tuple[Tensor, Tensor]) -> None:
        """Check that the network is supported, gains by it, and agrees with autograd along one direction.

        ``probe`` holds a direction (D,) and the exact local Hessians times it (n, D).
        """
        direction, expected = probe
        self.unsupported = None
        try:
            product = _along(self._local(rows, judge_cost=True)[0], direction, expected)
        except UnsupportedOp as unsupported:
            self.unsupported = str(unsupported)
            return
        tolerance = _TOLERANCE.get(expected.dtype, 1e-3) * float(expected.abs().max())
        if not bool(((product - expected).abs() <= tolerance).all()):
            self.unsupported = "something that it does not see (its check against autograd failed)"

    def _local(self, rows: Rows, judge_cost: bool = False) -> tuple[Local | None, Tensor]:
        """Return the local Hessians of some rows, and their slopes (n, D).

        ``judge_cost`` measures what rows cost, and raises UnsupportedOp where autograd is cheaper.
        """
        cut = self.cut
        recorder = Recorder(cut.view)
        t = cut.zeros(rows).requires_grad_()
        with cut.viewed(recorder):
            value = cut.outputs(rows, t)
        with torch._C.DisableTorchFunction():
            program = Program(recorder, value, t)
            judge = partial(self._judge, program, recorder.work) if judge_cost else None
            return program.run(_basis(cut, rows), judge), program.slopes

    def _judge(self, program: Program, work: int, narrow: int) -> None:
        """Measure what rows cost, and raise where autograd is cheaper, before the costly part is done."""
        cut = self.cut
        units = narrow or cut.n_units
        # Two backward passes carry a direction twice; here it goes once, and is multiplied with every other.
        if units * program.width * _PAIR_COST > max(work, 1) and units > 32:
            raise UnsupportedOp(
                f"{units} units, whose products over {program.width} curved numbers cost more than autograd"
            )
        item = torch.finfo(cut.dtype).bits // 8
        self._row_bytes = item * (units * (4 * program.widest + 2 * units) + 8 * program.size) + 8 * units**2
        self._cache_rows = max(1, _CACHE_BYTES // (item * units * max(units, program.widest)))
        self._narrow = narrow

    @property
    def name(self) -> str:
        """Name of the engine that does the work."""
        return self.engine.name if self.unsupported is None else self.exact.name

    @property
    def fallback_reason(self) -> str | None:
        """Why the exact engine does the work, None where it does not."""
        return None if self.unsupported is None else why_not(self.unsupported)

    # What it costs

    @cached_property
    def n_eah_points(self) -> int:
        """Number of points per draw at which absolute interactions are measured.

        Through a narrow layer every point needs a product with all pairs of units, which the signed sums do not.
        """
        n_points, n_units = self.limits.n_points, self.cut.n_units
        if not self._narrow:
            return n_points
        if self.limits.eah_points is not None:
            return min(n_points, self.limits.eah_points)
        work = n_units * self._narrow * (self._narrow + n_units / 2)
        return min(n_points, max(_MIN_ABSOLUTE, int(_ABSOLUTE_WORK / work)))

    def begin_draw(self, seed: int) -> None:
        """Start a draw: choose the points at which absolute interactions are measured."""
        self._via = None
        self._sums = None
        self._absolute_hessians = []
        n_points = self.limits.n_points
        if self.n_eah_points < n_points:
            chosen = np.random.default_rng(seed).choice(n_points, self.n_eah_points, replace=False)
            self._absolute = np.zeros(n_points, dtype=bool)
            self._absolute[chosen] = True

    def chunk_rows(self, rows: Rows) -> int:
        """Return the batch size asked for, else what the caches and the memory allow."""
        if self.limits.batch_size is not None or self.unsupported:
            return self.exact.chunk_rows(rows)
        memory = chunk_bytes(self.cut.device, self.limits.memory)
        return max(1, min(_MAX_ROWS, self._cache_rows, memory // max(1, self._row_bytes)))

    # The sums

    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Add the local interactions of a chunk of rows to ``sums``."""
        if self.unsupported:
            self.exact.add(sums, rows, labels)
            return
        try:
            local, slopes = self._local(rows)
        except UnsupportedOp:  # a path that only these rows take
            self.exact.add(sums, rows, labels)
            return
        members = sums.one_hot(labels, self.cut.device)
        sums.add_slopes(slopes, members)
        if local is None:
            return
        if local.via is None:
            _add_all(sums, local.hessians, members)
            refuse_not_finite(sums.absolute, rows)
        else:
            self._add_narrow(sums, local, members, rows.start)
            refuse_not_finite(self._sums, rows)

    def _add_narrow(self, sums: GroupSums, local: Local, members: Tensor, start: int) -> None:
        """Add up at the narrow layer; :meth:`end_draw` pulls the sums back."""
        assert local.via is not None
        draws, count = len(sums.signed), members.shape[1]
        total = (members.to(local.hessians.dtype) @ local.hessians.reshape(draws, count, -1)).double()
        self._sums = total if self._sums is None else self._sums + total
        self._via = local.via
        for draw, hessians in enumerate(local.hessians.reshape(draws, count, *local.hessians.shape[1:])):
            if self._absolute is None:
                for few in torch.split(hessians, _POINTS):
                    _pull_back(sums.absolute[draw], local.via, few, absolute=True)
            else:
                taken = torch.as_tensor(self._absolute[start : start + count], device=hessians.device)
                sums.skipped += int((~taken).sum())
                self._absolute_hessians.append(hessians[taken])

    def end_draw(self, sums: GroupSums) -> None:
        """Finish a draw: pull the sums at the narrow layer back to the units."""
        if self._via is None or self._sums is None:
            return
        width = len(self._via)
        for few in torch.split(torch.cat(self._absolute_hessians), _POINTS) if self._absolute_hessians else ():
            _pull_back(sums.absolute[0], self._via, few, absolute=True)
        for draw, groups in enumerate(self._sums):
            for group, total in enumerate(groups):
                _pull_back(sums.signed[draw, group], self._via, total.reshape(1, width, width).to(self._via))
        self._via = None
        self._sums = None
        self._absolute_hessians = []


def why_not(unsupported: str) -> str:
    """Say why the structured engine is not used."""
    return f"engine='structured' does not take {unsupported}"


def _basis(cut: Cut, rows: Rows) -> list[Jacobian]:
    """Return the units' directions at the cut, one entry per tensor that crosses it."""
    units = cut.n_units
    if isinstance(cut.units, Neurons) and (cut.layer is not None or len(rows.inputs) == 1):
        return [Scaled(torch.ones(1, units, device=cut.device, dtype=cut.dtype), cut.shape)]
    eye = torch.eye(units, device=cut.device, dtype=cut.dtype)
    basis = cut.units.shift(eye, cut.shape).expand(units, *cut.shape)
    if cut.layer is not None or len(rows.inputs) == 1:
        return [basis[:, None]]
    parts = torch.split(basis, [x[0].numel() for x in rows.inputs], dim=1)
    return [part.reshape(units, 1, *x.shape[1:]) for x, part in zip(rows.inputs, parts, strict=True)]


def _along(local: Local | None, direction: Tensor, like: Tensor) -> Tensor:
    """Return the local Hessians times one direction, (n, D)."""
    if local is None:
        return torch.zeros_like(like)
    if local.via is None:
        return local.hessians @ direction
    return (local.hessians @ (local.via @ direction)) @ local.via


def _add_all(sums: GroupSums, hessians: Tensor, members: Tensor) -> None:
    """Add local Hessians (B * n, D, D), which are overwritten, over all points first: picking pairs is slow."""
    units = hessians.shape[1]
    i, j = torch.triu_indices(units, units, 1, device=hessians.device)
    flat = hessians.reshape(len(sums.signed), members.shape[1], -1)
    sums.signed += (members.to(flat.dtype) @ flat)[:, :, i * units + j].double().cpu()
    sums.absolute += flat.abs_().sum(dim=1)[:, i * units + j].double().cpu()


def _pull_back(pairs: Tensor, via: Tensor, hessians: Tensor, absolute: bool = False) -> None:
    """Add the sum over ``hessians`` (n, d, d) of via^T hessian via, or of its absolute values, to ``pairs`` (P,)."""
    units = via.shape[1]
    halves = via.T @ hessians
    start = 0
    for first in range(0, units - 1, _BLOCK):
        block = via.new_zeros(min(_BLOCK, units - first), units - first)
        for some in torch.split(halves[:, first : first + _BLOCK], max(1, _AT_ONCE // block.numel())):
            part = some @ via[:, first:]
            part = part.abs_() if absolute else part
            block += part[0] if part.shape[0] == 1 else part.sum(dim=0)
        block = block.double().cpu()
        for row in range(len(block)):
            stop = start + units - first - row - 1
            pairs[start:stop] += block[row, row + 1 :]
            start = stop
