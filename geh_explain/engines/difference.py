"""Mixed differences: no derivatives at all.

[f(x+a+b) - f(x+a) - f(x+b) + f(x)] / (a b) works for black boxes, for kinks, for columns that know two values
only, and towards a baseline, where it sees what the curvature at a confident prediction cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from geh_explain._memory import chunk_bytes
from geh_explain._types import Floats, Ints
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Engine, EngineRun, Limits
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.model.cut import Cut
from geh_explain.model.unit_values import UnitMoments

#: Rows of one call of the model: enough to keep it busy.
_CALL_ROWS = 8192
#: A discrete unit has no more levels than this.
_MAX_LEVELS = 100


@dataclass(frozen=True, eq=False, repr=False)
class Difference(Engine):
    """Mixed differences, with steps towards the centre of the data or towards a baseline.

    Parameters
    ----------
    step
        Length of a step, in standard deviations of the unit.
    baseline
        None for steps of that length; else where each unit is moved to: a number, ``"mean"``, or one number
        per unit. With 0 hidden units are switched off.
    discrete
        Units that jump from level to level instead: ``"detect"`` takes those with exactly two values among the
        points; or give their indices, for categories coded as numbers too (each jumps to the next level that
        occurs, the last one back); () for none.

    Examples
    --------
    >>> import numpy as np, torch, geh_explain as geh
    >>> def black_box(x):  # any predictor of arrays; its first column is binary
    ...     return np.where(x[:, 0] > 0.5, 3.0 * x[:, 1], 0.0)
    >>> explainer = geh.GEHExplainer(
    ...     lambda x: black_box(x.numpy()),
    ...     engine=geh.engines.Difference(discrete=[0]),
    ...     posterior=geh.posterior.PointEstimate(),
    ... )
    >>> x = np.stack([np.arange(100) % 2, np.linspace(-1, 1, 100)], axis=1)
    >>> float(explainer.explain(x, groups=1, progress=False).geh.mean[0, 1].round(6))
    3.0
    """

    name = "difference"
    differentiates = False

    step: float = 0.5
    baseline: float | str | Floats | None = None
    discrete: str | Sequence[int] = "detect"

    def __post_init__(self) -> None:
        step = self.step
        if isinstance(step, bool) or not isinstance(step, (int, float)) or not 0 < step < float("inf"):
            raise GEHValueError(f"Difference: step={step!r} must be a positive number of standard deviations.")
        if isinstance(self.baseline, str) and self.baseline != "mean":
            raise GEHValueError(
                f"Difference: baseline={self.baseline!r} is unknown; use None, a number, 'mean' or a list."
            )
        if isinstance(self.discrete, str) and self.discrete != "detect":
            raise GEHValueError(
                f"Difference: discrete={self.discrete!r} is unknown; use 'detect' or a list of indices."
            )

    def start(self, cut: Cut, limits: Limits) -> DifferenceRun:
        """Return the object that computes the mixed differences of one run."""
        return DifferenceRun(self, cut, limits)

    def __repr__(self) -> str:
        return f"Difference(step={self.step}, baseline={self.baseline!r}, discrete={self.discrete!r})"


class DifferenceRun(EngineRun):
    """Mixed differences of one run: steps of the units, from their moments and levels over the points."""

    engine: Difference
    needs_values = True

    def __init__(self, engine: Difference, cut: Cut, limits: Limits) -> None:
        super().__init__(engine, cut, limits)
        self._moments = UnitMoments(cut.n_units)
        self._fixed_baseline = self._check_baseline()
        #: Values of each unit that may be discrete, as far as they are few.
        self._levels: dict[int, set[float]] = {unit: set() for unit in self._check_discrete()}

    def _check_baseline(self) -> Floats | None:
        """Return where each unit is moved to (D,); None where that is its mean, or steps are used."""
        if self.engine.baseline is None or isinstance(self.engine.baseline, str):
            return None
        try:
            return np.broadcast_to(np.asarray(self.engine.baseline, dtype=np.float64), (self.cut.n_units,)).copy()
        except (TypeError, ValueError) as error:
            raise GEHTypeError(
                f"Difference: baseline={self.engine.baseline!r} must be a number, or one for each of the "
                f"{self.cut.n_units} units."
            ) from error

    def _check_discrete(self) -> Sequence[int]:
        """Return the units that may be discrete."""
        if self.engine.baseline is not None:
            return ()
        units = range(self.cut.n_units) if isinstance(self.engine.discrete, str) else self.engine.discrete
        wrong = [unit for unit in units if not 0 <= unit < self.cut.n_units]
        if wrong:
            raise GEHValueError(f"Difference: discrete={wrong} are no units; there are {self.cut.n_units}.")
        return units

    def observe(self, values: Tensor) -> None:
        """Take the values (n, D) of some rows: moments of all units, levels of those that may be discrete."""
        self._moments.add(values)
        columns = values.double().cpu().numpy() if self._levels else None
        for unit in list(self._levels):
            assert columns is not None
            self._levels[unit].update(np.unique(columns[:, unit])[: _MAX_LEVELS + 1].tolist())
            if len(self._levels[unit]) > 2 and isinstance(self.engine.discrete, str):
                del self._levels[unit]

    @cached_property
    def _baseline(self) -> Floats | None:
        """Where each unit is moved to (D,), None where steps are used."""
        return self._moments.mean if isinstance(self.engine.baseline, str) else self._fixed_baseline

    @cached_property
    def jumps(self) -> dict[int, Floats]:
        """The sorted levels of each discrete unit, between which it jumps."""
        jumps = {}
        for unit, levels in self._levels.items():
            if 2 <= len(levels) <= _MAX_LEVELS:
                jumps[unit] = np.array(sorted(levels))
            elif not isinstance(self.engine.discrete, str):
                raise GEHValueError(
                    f"Difference: discrete unit {unit} has {len(levels)} values or more among the points; a discrete "
                    f"one has 2 to {_MAX_LEVELS}."
                )
        return jumps

    def chunk_rows(self, rows: Rows) -> int:
        """Return the batch size asked for, else what the memory allows for all pairs of a row."""
        if self.limits.batch_size is not None:
            return self.limits.batch_size
        memory = chunk_bytes(self.cut.device, self.limits.memory)
        return max(1, min(1024, memory // (64 * self.cut.n_units**2)))

    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Add the mixed differences of a chunk of rows to ``sums``."""
        cut = self.cut
        i, j = torch.triu_indices(cut.n_units, cut.n_units, 1, device=cut.device)
        alone = torch.arange(cut.n_units, device=cut.device)
        steps = self._steps(rows)
        with torch.no_grad():
            plain = cut.outputs(rows, cut.zeros(rows)).double()
            at_once = None if self.limits.batch_size is None else 1
            single = outputs_after_moves(cut, rows, steps, alone, alone, at_once)
            both = outputs_after_moves(cut, rows, steps, i, j, at_once)
        area = (steps[:, i] * steps[:, j]).double()
        mixed = (both - single[i] - single[j] + plain).T
        members = sums.one_hot(labels, cut.device)
        sums.add(0, _quotient(mixed, area), members)
        sums.add_slopes(_quotient((single - plain).T, steps.double()), members)

    def _steps(self, rows: Rows) -> Tensor:
        """Return how far each unit of each row moves, (n, D)."""
        values = self.cut.units.values(self.cut.activations(rows))
        if self._baseline is not None:
            return torch.as_tensor(self._baseline).to(values) - values
        centre = torch.as_tensor(self._moments.mean).to(values)
        width = torch.as_tensor(self._moments.std).to(values)
        # Towards the centre: the moved points stay where data are, and the error of first order cancels on average.
        steps = torch.where(values > centre, -width, width) * self.engine.step
        for unit, levels in self.jumps.items():
            known = torch.as_tensor(levels).to(values)
            here = (values[:, unit, None] - known).abs().argmin(dim=1)
            steps[:, unit] = known[torch.where(here + 1 < len(known), here + 1, here - 1)] - known[here]
        return steps


def outputs_after_moves(
    cut: Cut, rows: Rows, steps: Tensor, first: Tensor, second: Tensor, at_once: int | None = None
) -> Tensor:
    """Return the outputs (k, n) with units ``first[k]`` and ``second[k]`` moved by ``steps`` (n, D).

    ``at_once`` moves go into one call, None for as many as keep the model busy.
    """
    at_once = at_once or max(1, _CALL_ROWS // len(rows))
    parts = []
    for i, j in zip(torch.split(first, at_once), torch.split(second, at_once), strict=True):
        move = torch.arange(len(i), device=steps.device)
        shifts = steps.new_zeros(len(i), len(rows), cut.n_units)
        shifts[move, :, i] = steps.T[i]
        shifts[move, :, j] = steps.T[j]
        outputs = cut.outputs(rows.repeat(len(i)), shifts.reshape(-1, cut.n_units))
        parts.append(outputs.double().reshape(len(i), len(rows)))
    return torch.cat(parts)


def _quotient(difference: Tensor, step: Tensor) -> Tensor:
    """Return the difference by the step; a unit that is where it should go already makes none."""
    return torch.where(step == 0, 0.0, difference / torch.where(step == 0, 1.0, step))
