"""Mixed differences: no derivatives at all.

[f(x+a+b) - f(x+a) - f(x+b) + f(x)] / (a b) works for black boxes, for kinks, for columns that know two values
only, and towards a baseline, where it sees what the curvature at a confident prediction cannot.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain._memory import chunk_bytes
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Engine
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.model.cut import Cut
from geh_explain.model.unit_values import unit_moments

#: Rows of one call of the model: enough to keep it busy.
_CALL_ROWS = 8192
#: A discrete unit has no more levels than this.
_MOST_LEVELS = 100


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
    smooth = False

    def __init__(
        self,
        step: float = 0.5,
        baseline: float | str | NDArray[np.float64] | None = None,
        discrete: str | tuple[int, ...] | list[int] = "detect",
    ) -> None:
        if isinstance(step, bool) or not isinstance(step, (int, float)) or not 0 < step < float("inf"):
            raise GEHValueError(f"Difference: step={step!r} must be a positive number of standard deviations.")
        if isinstance(baseline, str) and baseline != "mean":
            raise GEHValueError(f"Difference: baseline={baseline!r} is unknown; use None, a number, 'mean' or a list.")
        if isinstance(discrete, str) and discrete != "detect":
            raise GEHValueError(f"Difference: discrete={discrete!r} is unknown; use 'detect' or a list of indices.")
        self.step, self.baseline, self.discrete = step, baseline, discrete
        self.batch_size: int | None = None
        self.jumps: dict[int, NDArray[np.float64]] = {}

    def prepare(self, cut: Cut, points: Points, batch_size: int | None) -> None:
        """Find the centre and width of each unit, and the two values of discrete ones."""
        self.batch_size = batch_size
        self._mean, self._std = unit_moments(cut, points, batch_size)
        self._target = self._baseline(cut.count)
        self.jumps = self._find_jumps(cut, points, batch_size)

    def _baseline(self, units: int) -> NDArray[np.float64] | None:
        if self.baseline is None:
            return None
        if isinstance(self.baseline, str):
            return self._mean
        try:
            values = np.broadcast_to(np.asarray(self.baseline, dtype=np.float64), (units,)).copy()
        except (TypeError, ValueError) as error:
            raise GEHTypeError(
                f"Difference: baseline={self.baseline!r} must be a number, or one for each of the {units} units."
            ) from error
        return values

    def _find_jumps(self, cut: Cut, points: Points, batch_size: int | None) -> dict[int, NDArray[np.float64]]:
        if self._target is not None:
            return {}
        wanted = range(cut.count) if isinstance(self.discrete, str) else self.discrete
        wrong = [unit for unit in wanted if not 0 <= unit < cut.count]
        if wrong:
            raise GEHValueError(f"Difference: discrete={wrong} are no units; there are {cut.count}.")
        values: dict[int, set[float]] = {unit: set() for unit in wanted}
        for rows in points.split(batch_size):
            if not values:
                break
            seen = cut.units.values(cut.activations(rows)).double().cpu().numpy()
            for unit in list(values):
                values[unit].update(np.unique(seen[:, unit])[: _MOST_LEVELS + 1].tolist())
                if len(values[unit]) > 2 and isinstance(self.discrete, str):
                    del values[unit]
        jumps = {}
        for unit, levels in values.items():
            if 2 <= len(levels) <= _MOST_LEVELS:
                jumps[unit] = np.array(sorted(levels))
            elif not isinstance(self.discrete, str):
                raise GEHValueError(
                    f"Difference: discrete unit {unit} has {len(levels)} values or more among the points; a discrete "
                    f"one has 2 to {_MOST_LEVELS}."
                )
        return jumps

    def chunk_rows(self, cut: Cut, rows: Rows) -> int:
        """Return the batch size asked for, else what a budget of memory allows for all pairs of a row."""
        if self.batch_size is not None:
            return self.batch_size
        return max(1, min(1024, chunk_bytes(cut.device, self.memory) // (64 * cut.count**2)))

    def add(self, sums: GroupSums, cut: Cut, rows: Rows, labels: NDArray[np.int64]) -> None:
        """Add the mixed differences of a chunk of rows to ``sums``."""
        i, j = torch.triu_indices(cut.count, cut.count, 1, device=cut.device)
        alone = torch.arange(cut.count, device=cut.device)
        steps = self._steps(cut, rows)
        with torch.no_grad():
            plain = cut.outputs(rows, cut.zeros(rows)).double()
            at_once = None if self.batch_size is None else 1
            single = moved(cut, rows, steps, alone, alone, at_once)
            both = moved(cut, rows, steps, i, j, at_once)
        area = (steps[:, i] * steps[:, j]).double()
        mixed = (both - single[i] - single[j] + plain).T
        members = sums.one_hot(labels, cut.device)
        sums.add(0, _quotient(mixed, area), members)
        sums.add_slopes(_quotient((single - plain).T, steps.double()), members)

    def _steps(self, cut: Cut, rows: Rows) -> Tensor:
        """Return how far each unit of each row moves, (n, D)."""
        values = cut.units.values(cut.activations(rows))
        if self._target is not None:
            return torch.as_tensor(self._target).to(values) - values
        centre, width = torch.as_tensor(self._mean).to(values), torch.as_tensor(self._std).to(values)
        # Towards the centre: the moved points stay where data are, and the error of first order cancels on average.
        steps = torch.where(values > centre, -width, width) * self.step
        for unit, levels in self.jumps.items():
            known = torch.as_tensor(levels).to(values)
            here = (values[:, unit, None] - known).abs().argmin(dim=1)
            steps[:, unit] = known[torch.where(here + 1 < len(known), here + 1, here - 1)] - known[here]
        return steps

    def __repr__(self) -> str:
        return f"Difference(step={self.step}, baseline={self.baseline!r}, discrete={self.discrete!r})"


def moved(cut: Cut, rows: Rows, steps: Tensor, first: Tensor, second: Tensor, at_once: int | None = None) -> Tensor:
    """Return the outputs (k, n) with units ``first[k]`` and ``second[k]`` moved by ``steps`` (n, D).

    ``at_once`` moves go into one call, None for as many as keep the model busy.
    """
    at_once = at_once or max(1, _CALL_ROWS // len(rows))
    parts = []
    for i, j in zip(torch.split(first, at_once), torch.split(second, at_once), strict=True):
        move = torch.arange(len(i), device=steps.device)
        shifts = steps.new_zeros(len(i), len(rows), cut.count)
        shifts[move, :, i] = steps.T[i]
        shifts[move, :, j] = steps.T[j]
        outputs = cut.outputs(rows.repeat(len(i)), shifts.reshape(-1, cut.count))
        parts.append(outputs.double().reshape(len(i), len(rows)))
    return torch.cat(parts)


def _quotient(difference: Tensor, step: Tensor) -> Tensor:
    """Return the difference by the step; a unit that is where it should go already makes none."""
    return torch.where(step == 0, 0.0, difference / torch.where(step == 0, 1.0, step))
