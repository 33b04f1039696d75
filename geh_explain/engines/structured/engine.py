"""The structured engine: Hessians of networks of linear maps and elementwise functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain._process import cached_property
from geh_explain._types import Ints
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Engine, EngineRun, Limits, check_finite
from geh_explain.engines.compared_networks import RowCost
from geh_explain.engines.exact import Exact, NoSecondDerivative
from geh_explain.engines.probes import choose_points, products_agree, random_directions
from geh_explain.engines.structured.directions import unit_directions
from geh_explain.engines.structured.narrow_layer import NarrowLayer
from geh_explain.engines.structured.program import LocalHessians, Program
from geh_explain.engines.structured.pull_back import check_common_groups, count_work, make_pull_back
from geh_explain.engines.structured.recorder import Recorder, UnsupportedOp
from geh_explain.engines.structured.rules.table import apply_rule
from geh_explain.engines.sums import GroupSums, add_hessians
from geh_explain.model.cut import Cut
from geh_explain.model.row_independence import check_repeated

#: Local Hessians of n rows, None where all are 0, their slopes (n, D), and their outputs (n,).
Found = tuple[LocalHessians | None, Tensor, Tensor]
#: Rows of a chunk at most.
_MAX_ROWS = 16384
#: Cost of one product of two directions, in units of one multiplication that pushes a direction through a linear map.
_PAIR_COST = 0.5
#: Cost of one row of the Hessian by double backward, in the same units, with what is lost around it.
_ROW_COST = 3
#: Up to this many units the engine pays whatever the products cost.
_MAX_CHEAP_UNITS = 32
#: Rows on which the engine is tried before the first draw.
PROBE_ROWS = 2
#: Rows of a chunk at which Hessians are compared with double backward, at most.
_MAX_COMPARED = 128
#: Multiplications per draw for absolute interactions, each of which needs the pull-back of one point's Hessian ...
_ABSOLUTE_WORK = 1e9
#: ... which are measured at this many points at least.
_MIN_ABSOLUTE = 4


class Structured(Engine):
    """One forward pass of directions and one backward pass, for linear maps and elementwise functions.

    With z_l the input of an elementwise function s_l, J_l = dz_l / dt its Jacobian (width of l, D) and g_l the gradient
    of the output at s_l(z_l), the local Hessian is::

        H = sum over curved steps l of J_l^T diag(g_l * s_l''(z_l)) J_l.

    One backward pass gives all g_l, one pass of D directions through the network all J_l, and one batched matrix
    product per step adds its term for all points of a chunk. Products of tensors, quotients, softmax, layer
    normalisation and smoothed pooling contribute terms of the same form.

    If the units enter through a linear map W (d, D) with D >= 2 d, as many inputs into few hidden units do, the
    Hessians are taken at z = W t (d, d), summed over the points of each group, and pulled back once per group::

        sum over points of H = W^T (sum over points of H_z) W.

    The cost per point then does not depend on D. Absolute interactions need W^T H_z W of each point; where that is much
    work they are measured at a random part of the points, see ``eah_points``. So are the squares, which give the
    sampling error of the points.

    *Cost*: about half of double backward, much less through a narrow layer. *Right* to rounding for the functions in
    :mod:`geh_explain.engines.structured.rules.table`: feed-forward and convolutional networks. The Hessians are
    compared with double backward at some random points during the run; if they differ, the exact engine computes all
    draws again. *Not* for attention, recurrent layers, matrix products of two tensors that depend on the units, layers
    that are called several times, wide convolutions over many units, where products of directions cost more than
    autograd, and pairs of few units: these go to the exact engine, and ``result.settings["engine_reason"]`` says why.

    Examples
    --------
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
    """Recorded forward passes of one run; the exact engine computes draws and chunks that are not supported.

    Attributes
    ----------
    exact
        The exact engine for this run.
    unsupported
        What the network has that is not supported, as a noun phrase; None where everything is supported.
    detaches
        Whether the network detaches tensors, so that double backward is checked too.
    """

    batches_draws = True
    takes_pairs = True

    def __init__(self, engine: Engine, cut: Cut, limits: Limits) -> None:
        super().__init__(engine, cut, limits)
        self.exact = Exact().start(cut, limits)
        self.unsupported: str | None = None
        #: What a row costs, measured by _check_cost().
        self._cost = RowCost(row_bytes=0, cache_rows=1, narrow_width=0)
        # Whether the engine pays depends on the pairs.
        self._compared = limits.compared if limits.pairs is None and not limits.by_pair else None
        #: Whether absolute interactions are measured at each point (n_points,) of this draw; None for all points.
        self._measured: NDArray[np.bool_] | None = None
        #: The sums of this draw at a narrow layer.
        self._narrow = NarrowLayer()
        #: Seed of the current draw, and whether its network was compared with double backward.
        self._seed, self._was_compared = 0, False
        self._fell_back = False
        self.detaches = False

    # Support, cost and checks.

    def adapt(self, rows: Rows) -> None:
        """Check the network of this draw; if it is not supported, the exact engine computes the draw."""
        self._was_compared = False
        if not self._fell_back and not self.recall():
            self.check(rows[:PROBE_ROWS])

    def recall(self) -> bool:
        """Return whether a network of the same layers was compared before; it then needs no check."""
        cost = None if self._compared is None else self._compared.cost(self.cut)
        if cost is not None:
            self.unsupported, self._cost, self._was_compared = None, cost, True
        return cost is not None

    def check(self, rows: Rows, directions: Tensor | None = None, products: Tensor | None = None) -> None:
        """Set ``unsupported`` unless the network is supported, gains by it, and agrees with autograd.

        Parameters
        ----------
        rows
            A few rows.
        directions, products
            Directions v (n, D), and the products H v (n, D) of the exact local Hessians with them; None where they need
            not be compared.
        """
        self.unsupported = None
        try:
            ((local, _, _),) = self.local_hessians(rows, [rows.target], check_cost=True)
        except UnsupportedOp as unsupported:
            self.unsupported = str(unsupported)
            return
        if directions is not None and products is not None and not _agrees(local, directions, products):
            self.unsupported = "a function that it cannot record (its Hessian differs from that of autograd)"

    def fall_back(self) -> None:
        """Let the exact engine compute everything from now on."""
        self.refuted, self._fell_back = False, True
        if self._compared is not None:
            self._compared.discard(self.cut)
        self.n_eah_points = self.limits.n_points
        self.unsupported = "a function whose Hessian differs from that of autograd at some points"

    def compare(self, rows: Rows, local: LocalHessians | None) -> None:
        """Compare the Hessians of some of the rows with double backward, and set ``refuted`` if they differ.

        In the first chunk of each network, and in some others: random points, and the one with the largest Hessian.
        """
        points = choose_points(rows, self._seed, _MAX_COMPARED, always=not self._was_compared)
        if points is None:
            return
        self._was_compared = True
        n_points = len(rows) // rows.repeats
        if local is not None:
            sizes = local.hessians.abs().amax(dim=(1, 2)).reshape(-1, n_points)
            largest = sizes.argmax(dim=1, keepdim=True)
            points = np.concatenate([points, largest.cpu().numpy()], axis=1)
        indices = (np.arange(rows.repeats)[:, None] * n_points + points).ravel().tolist()
        few = rows.take(indices)
        directions = random_directions(self.cut, few, self._seed)
        try:
            products = self.exact.probe(few, directions)
        except NoSecondDerivative:
            return
        part = None if local is None else LocalHessians(local.hessians[indices], local.linear_map)
        if products is not None and not _agrees(part, directions, products):
            # A model that is random contradicts itself.
            check_repeated(self.cut, rows, self.cut.zeros(rows).requires_grad_())
            self.refuted = True
        elif self._compared is not None and not self.refuted:
            self._compared.add(self.cut, self._cost)

    def local_hessians(self, rows: Rows, targets: Sequence[Any], check_cost: bool = False) -> list[Found]:
        """Return for each target the local Hessians of ``rows``, None where all are 0, slopes (n, D) and outputs (n,).

        ``check_cost`` measures what rows cost, and raises UnsupportedOp where autograd is cheaper.
        """
        cut = self.cut
        recorder = Recorder(cut.view, apply_rule)
        t = cut.zeros(rows).requires_grad_()
        with cut.viewed(recorder):
            outputs = cut.all_outputs(rows, t)
        recorder.check_followed(outputs)
        self.detaches = recorder.detaches
        # The choice of the target is linear: it needs no step.
        values = [cut.selected(outputs, rows.with_target(target)) for target in targets]
        with torch._C.DisableTorchFunction():
            program = Program(recorder, values, t)
            check = partial(self._check_cost, program, recorder.work) if check_cost else None
            hessians = program.local_hessians(unit_directions(cut, rows), check)
            return list(zip(hessians, program.slopes, values, strict=True))

    def _check_cost(self, program: Program, work: int, narrow_width: int) -> None:
        """Measure what rows cost, and raise UnsupportedOp where autograd is cheaper.

        Double backward carries a direction through the network twice at ``work`` multiplications each; here it is
        carried once, and multiplied with every other direction at all curved entries.
        """
        cut = self.cut
        check_common_groups(self.limits, narrow_width)
        n_directions = narrow_width or cut.n_units
        self._check_rows(n_directions * (work + n_directions * program.n_curved * _PAIR_COST), work)
        if n_directions * program.n_curved * _PAIR_COST > max(work, 1) and n_directions > _MAX_CHEAP_UNITS:
            raise UnsupportedOp(
                f"{n_directions} units, whose products over {program.n_curved} curved numbers cost more than autograd"
            )
        self._cost = RowCost.of(cut, program.largest_step, program.n_entries, narrow_width)

    def _check_rows(self, all_work: float, work: int) -> None:
        """Raise UnsupportedOp where double backward gives the rows of the known pairs at less than ``all_work``."""
        if self.pairs.complete:
            return
        n_rows = len(self.pairs.rows)
        if _ROW_COST * n_rows * max(work, 1) < all_work:
            raise UnsupportedOp(
                f"{n_rows} of {self.cut.n_units} rows of the Hessian, which double backward computes for less"
            )

    @property
    def hessian_width(self) -> int:
        """Number of rows of the Hessians that are held for each point: units, or entries of a narrow layer."""
        return self._cost.narrow_width or self.cut.n_units

    @property
    def name(self) -> str:
        """Name of the engine that computes the interactions: ``"exact"`` after a fallback."""
        return self.engine.name if self.unsupported is None else self.exact.name

    @property
    def fallback_reason(self) -> str | None:
        """Why the exact engine computes the interactions; None where it does not."""
        return None if self.unsupported is None else unsupported_reason(self.unsupported)

    @property
    def doubtful(self) -> bool:  # type: ignore[override]
        """Whether autograd's second derivatives contradict differences of its gradients."""
        return self.exact.doubtful

    @cached_property
    def n_eah_points(self) -> int:
        """Number of points per draw at which absolute interactions are measured.

        Through a narrow layer each of these points needs a pull-back to all pairs of units, which signed sums do not.
        """
        n_points = self.limits.n_points
        if not self._cost.narrow_width:
            return n_points
        if self.limits.eah_points is not None:
            return min(n_points, self.limits.eah_points)
        work = count_work(self.pairs, self._cost.narrow_width)
        return self.limits.fewest_points(max(_MIN_ABSOLUTE, int(_ABSOLUTE_WORK / work)))

    def chunk_rows(self, rows: Rows) -> int:
        """Return ``batch_size``, else the number of rows that the caches and the memory allow."""
        if self.limits.batch_size is not None or self.unsupported:
            return self.exact.chunk_rows(rows)
        return max(1, min(_MAX_ROWS, self._cost.cache_rows, self.chunk_bytes // max(1, self._cost.row_bytes)))

    # Sums.

    def begin_draw(self, seed: int) -> None:
        """Start a draw: choose the points at which absolute interactions are measured."""
        self._narrow.reset()
        self.exact.begin_draw(seed)
        n_points = self.limits.n_points
        self._seed, self._measured = seed, None
        if self.n_eah_points < n_points:
            chosen = np.random.default_rng(seed).choice(n_points, self.n_eah_points, replace=False)
            self._measured = np.zeros(n_points, dtype=bool)
            self._measured[chosen] = True

    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Add the local interactions of a chunk of rows to ``sums``; at a narrow layer they follow in end_draw()."""
        if self._measured is not None:
            sums.visit_sample()
        if self.unsupported:
            self.exact.add(sums, rows, labels)
            return
        try:
            (found,) = self.local_hessians(rows, [rows.target])
        except UnsupportedOp:
            # A branch of the forward that only these rows take.
            self.exact.add(sums, rows, labels)
            return
        self.add_found(sums, rows, labels, found)

    def add_found(self, sums: GroupSums, rows: Rows, labels: Ints, found: Found) -> None:
        """Add what :meth:`local_hessians` found for the target of ``rows``."""
        local, slopes, outputs = found
        if self._measured is not None:
            sums.visit_sample()
        self.check_outputs(rows, self.cut.zeros(rows).requires_grad_(), outputs)
        self.compare(rows, local)
        if self.detaches:
            self.exact.check_double_backward(rows)
        members = sums.one_hot(labels, self.cut.device)
        sums.add_slopes(slopes, members)
        if local is None:
            sums.visit(members)
            return
        if local.linear_map is None:
            add_hessians(sums, local.hessians, members, self._flat_pairs)
            check_finite(sums.absolute, rows)
        else:
            self._add_narrow(sums, local, members, rows.start)
            check_finite(self._narrow.total, rows)

    @cached_property
    def _flat_pairs(self) -> Tensor:
        """Places (P,) of the pairs in a Hessian (D, D) as one row of numbers."""
        first, second = self.pairs.ends
        return torch.as_tensor(first * self.cut.n_units + second, device=self.cut.device)

    def _add_narrow(self, sums: GroupSums, local: LocalHessians, members: Tensor, start: int) -> None:
        """Add Hessians (B * n, d, d) at a narrow layer to its sums by group; :meth:`end_draw` pulls them back.

        ``start`` is the index of the first of the n points.
        """
        assert local.linear_map is not None
        n_draws, n_rows = len(sums.signed), members.shape[1]
        self._narrow.add(sums, local, members, self.pairs)
        pull_back = make_pull_back(local.linear_map, self.pairs)
        for draw, of_draw in enumerate(local.hessians.reshape(n_draws, n_rows, *local.hessians.shape[1:])):
            if self._measured is None:
                pull_back.add_points(sums, draw, of_draw, members)
            else:
                measured = torch.as_tensor(self._measured[start : start + n_rows], device=of_draw.device)
                sums.skipped += int((~measured).sum())
                weights = None if sums.weights is None else sums.weights[measured.cpu()]
                self._narrow.measure(of_draw[measured], members[:, measured], weights)
        if self._measured is None:
            sums.visit(members)

    def end_draw(self, sums: GroupSums) -> None:
        """Finish a draw: pull the sums at a narrow layer back to the units."""
        if self._measured is not None:
            # Also where this process has no rows: the sums of all processes must have the same parts.
            sums.visit_sample()
        self._narrow.pull_back(sums, self.pairs)


def unsupported_reason(unsupported: str) -> str:
    """Return the reason not to use the structured engine; ``unsupported`` is a noun phrase."""
    return f"engine='structured' does not take {unsupported}"


def _agrees(local: LocalHessians | None, directions: Tensor, expected: Tensor) -> bool:
    """Return whether products of local Hessians with directions (n, D) are the expected ones (n, D), up to rounding."""
    found, sizes = torch.zeros_like(expected), torch.zeros_like(expected)
    if local is not None:
        hessians, linear_map = local.hessians, local.linear_map
        pushed = directions if linear_map is None else directions @ linear_map.T
        found, sizes = ((h @ v[:, :, None])[:, :, 0] for h, v in ((hessians, pushed), (hessians.abs(), pushed.abs())))
        if linear_map is not None:
            found, sizes = found @ linear_map, sizes @ linear_map.abs()
    return products_agree(found, expected, sizes)
