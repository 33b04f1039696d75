"""Third mixed derivatives and differences: how a third unit changes the interaction of a pair.

With f(x, t) the explained number of each row as a function of the units' shifts t (n, D), see :class:`Cut`, the local
third-order interaction of units i, j and k is d3 f / dt_i dt_j dt_k at t = 0, the change of H_ij with unit k.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Ints
from geh_explain.data.rows import Rows
from geh_explain.engines.base import EngineRun, Limits, check_finite
from geh_explain.engines.difference import DifferenceRun
from geh_explain.engines.exact import Exact, ExactRun
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHRuntimeError
from geh_explain.model.cut import Cut
from geh_explain.units.pair_set import PairSet

#: Rows of one call of the model, so that small chunks do not leave it idle.
_CALL_ROWS = 8192
#: Rows of a chunk of differences at most.
_MAX_ROWS = 1024


class ThirdDerivatives(EngineRun):
    """Third derivatives of some pairs with all other units, by three backward passes.

    For a pair (i, j), row i of the local Hessians is differentiable itself, and one more backward pass of its column j
    gives the derivatives in all units at once::

        T[:, k] = d/dt_k sum_n H_n[i, j].

    *Cost*: per chunk of rows one forward and one backward pass, one second backward pass per unit i, and one third
    backward pass per pair.

    Parameters
    ----------
    cut, limits
        The model as a function of the units' shifts, with the view of the run, and the resources of the run.
    triples
        Units (Q, 3) of the triples i, j, k, in the order of the sums.
    """

    takes_pairs = True
    batches_draws = True

    def __init__(self, cut: Cut, limits: Limits, triples: Ints) -> None:
        super().__init__(Exact(), cut, limits)
        self._exact = ExactRun(self.engine, cut, limits)
        ends = np.unique(triples[:, :2], axis=0)
        places = {(int(i), int(j)): np.flatnonzero((triples[:, :2] == (i, j)).all(axis=1)) for i, j in ends}
        #: For each row of the Hessian the column, the third units, and the places of the triples of its pairs.
        self._rows: dict[int, list[tuple[int, Tensor, Tensor]]] = {}
        for row in PairSet.of([(int(i), int(j)) for i, j in ends], cut.n_units).rows:
            for other in np.arange(cut.n_units)[row.others].tolist():
                own = places[(min(row.unit, other), max(row.unit, other))]
                thirds = torch.as_tensor(triples[own, 2], device=cut.device)
                self._rows.setdefault(row.unit, []).append((other, thirds, torch.as_tensor(own)))

    def chunk_rows(self, rows: Rows) -> int:
        """Return ``batch_size``, else half of the rows that second derivatives allow: the graph is about twice it."""
        rows_at_once = self._exact.chunk_rows(rows)
        return rows_at_once if self.limits.batch_size is not None else max(1, rows_at_once // 2)

    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Add the third derivatives of a chunk of rows to ``sums``."""
        members = sums.one_hot(labels, self.cut.device)
        t = self.cut.zeros(rows).requires_grad_()
        outputs = self.cut.outputs(rows, t)
        self.check_outputs(rows, t, outputs)
        gradient = _gradient(outputs.sum(), t)
        for unit, columns in self._rows.items():
            hessian_row = _gradient(gradient[:, unit].sum(), t)
            for other, thirds, places in columns:
                third = _gradient(hessian_row[:, other].sum(), t, create_graph=False)
                sums.add(places, third[:, thirds], members)
        check_finite(sums.absolute, rows)


def _gradient(value: Tensor, t: Tensor, create_graph: bool = True) -> Tensor:
    """Return the gradient (n, D) of a number at the shifts t; 0 where it does not depend on them."""
    if not value.requires_grad:
        return torch.zeros_like(t)
    try:
        found = torch.autograd.grad(value, t, retain_graph=True, create_graph=create_graph, allow_unused=True)[0]
    except RuntimeError as error:
        if "derivative for" not in str(error) and "once_differentiable" not in str(error):
            raise
        raise GEHRuntimeError(
            f"triples: a function inside the model has no third derivative ({error}); "
            "GEHExplainer(..., engine='difference') measures mixed differences instead."
        ) from error
    return torch.zeros_like(t) if found is None else found


class ThirdDifferences(EngineRun):
    """Third mixed differences, with the steps a, b, c of :class:`~geh_explain.engines.Difference`.

    ::

        [f(abc) - f(ab) - f(ac) - f(bc) + f(a) + f(b) + f(c) - f] / (a b c)

    where f(ab) is the output with unit i moved by a and unit j by b. *Cost*: about 3 evaluations of the model per
    triple and row.

    Parameters
    ----------
    run
        The mixed differences of the same run, which know the units' steps.
    limits
        Resources of the run.
    triples
        Units (Q, 3) of the triples i, j, k, in the order of the sums.
    """

    takes_pairs = True

    def __init__(self, run: DifferenceRun, limits: Limits, triples: Ints) -> None:
        super().__init__(run.engine, run.cut, limits)
        self._differences = run
        self._triples = triples
        sets = {
            (): 0,
            **{
                tuple(sorted(units)): 0
                for triple in triples.tolist()
                for units in (triple, triple[:2], triple[1:], triple[::2], *([unit] for unit in triple))
            },
        }
        #: Sets of units that are moved together, and for each triple the places of its eight sets and their signs.
        self._moves = list(sets)
        place = {units: number for number, units in enumerate(self._moves)}
        self._places = torch.as_tensor(
            [[place[tuple(sorted(units))] for units in _subsets(triple)] for triple in triples.tolist()]
        ).reshape(-1, 8)

    def chunk_rows(self, rows: Rows) -> int:
        """Return ``batch_size``, else the number of rows whose moves the memory allows."""
        if self.limits.batch_size is not None:
            return self.limits.batch_size
        return max(1, min(_MAX_ROWS, self.chunk_bytes // (64 * len(self._moves) + 64 * self.cut.n_units)))

    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Add the third mixed differences of a chunk of rows to ``sums``."""
        with torch.no_grad():
            steps = self._differences.steps(rows)
            outputs = self._outputs(rows, steps)
        signs = outputs.new_tensor([(-1.0) ** (3 - len(units)) for units in _subsets([0, 1, 2])])
        mixed = (outputs[self._places] * signs[:, None]).sum(dim=1).T
        volume = steps.double()[:, torch.as_tensor(self._triples, device=steps.device)].prod(dim=2)
        local = torch.where(volume == 0, 0.0, mixed / torch.where(volume == 0, 1.0, volume))
        sums.add(0, local, sums.one_hot(labels, self.cut.device))

    def _outputs(self, rows: Rows, steps: Tensor) -> Tensor:
        """Return the outputs (k, n) after each of the k moves."""
        at_once = 1 if self.limits.batch_size is not None else max(1, _CALL_ROWS // len(rows))
        parts = []
        for start in range(0, len(self._moves), at_once):
            moves = self._moves[start : start + at_once]
            shifts = steps.new_zeros(len(moves), len(rows), self.cut.n_units)
            for number, units in enumerate(moves):
                shifts[number, :, list(units)] = steps[:, list(units)]
            outputs = self.cut.outputs(rows.repeat(len(moves)), shifts.reshape(-1, self.cut.n_units))
            parts.append(outputs.double().reshape(len(moves), len(rows)))
        return torch.cat(parts)


def _subsets(triple: list[int]) -> list[list[int]]:
    """Return the eight subsets of a triple.

    >>> _subsets([4, 5, 6])[3:6]
    [[4, 5], [6], [4, 6]]
    """
    return [[unit for bit, unit in enumerate(triple) if number >> bit & 1] for number in range(8)]


def start_third_order(run: EngineRun, limits: Limits, triples: Ints) -> EngineRun:
    """Return what computes third-order interactions for a run whose engine is ``run``.

    Third differences for mixed differences, third derivatives for all engines that differentiate.
    """
    if isinstance(run, DifferenceRun):
        return ThirdDifferences(run, limits, triples)
    return ThirdDerivatives(run.cut, limits, triples)
