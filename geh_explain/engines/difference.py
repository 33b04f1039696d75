"""Mixed differences: interactions without derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geh_explain._process import cached_property
from geh_explain._types import Bools, Floats, Ints
from geh_explain._validation import check_positive
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Engine, EngineRun, Limits
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.model.cut import Cut
from geh_explain.model.unit_values import UnitMoments, text_units, whole_units
from geh_explain.units.categorical import Categorical
from geh_explain.units.unit_lookup import find_unit

#: Rows in one call of the model, so that small chunks do not leave it idle.
_CALL_ROWS = 8192
#: Rows of a chunk at most.
_MAX_ROWS = 1024
#: Levels of a discrete unit at most.
_MAX_LEVELS = 100


@dataclass(frozen=True, eq=False, repr=False)
class Difference(Engine):
    """Mixed finite differences, with steps towards the centre of the data, towards a baseline, or between levels.

    With a and b the steps of the units i and j at a row x, the local interaction is::

        [f(x + a e_i + b e_j) - f(x + a e_i) - f(x + b e_j) + f(x)] / (a b).

    - By default ``|a|`` is ``step`` standard deviations of the unit, and its sign points towards the unit's mean. The
      moved points stay where data are, and the error of first order, a/2 d3f/di2dj + b/2 d3f/didj2, cancels on average
      because rows on both sides of the mean step in opposite directions.
    - With ``baseline`` a = baseline - value, for instance to switch units off. At a confident prediction a sigmoid is
      flat and its Hessian nearly 0, while switching off either of two units that are both required changes the output.
    - A discrete unit steps from its level to the next one, so that the model is not evaluated at values that cannot
      occur. The difference is divided by the distance of the levels.
    - Columns of integers in a data frame that the model is given step by whole numbers, at least 1. Those of text step
      to the next one of their values, in sorted order, if they are units; the difference is divided by 1.

    A unit that is at its baseline already makes a step of 0; its interactions there are 0.

    *Cost*: 1 + D + P evaluations of the model per point and draw for P pairs, without gradients. *Right* for black
    boxes, kinked functions and binary or categorical inputs, and exact for products of units. *Not* the derivative for
    large steps, where f bends between the points, and costly for many units.

    Parameters
    ----------
    step
        Length of a step, in standard deviations of the unit over the points; at most twice that of most points counts,
        if a few are far from the others.
    baseline
        None for steps of that length; else where each unit is moved to: a number, ``"mean"``, or one number per unit.
    discrete
        Units that step between levels instead: ``"detect"`` takes those with exactly two values among the points. A
        list of names or indices may have categories coded as numbers too (each steps to the next level that occurs, the
        last one back); () for none. Ignored with a ``baseline``. Names are those of columns, or the units' own.

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
    discrete: str | Sequence[int | str] = "detect"

    def __post_init__(self) -> None:
        check_positive("Difference: step", self.step, "a positive number of standard deviations")
        if isinstance(self.baseline, str) and self.baseline != "mean":
            raise GEHValueError(
                f"Difference: baseline={self.baseline!r} is unknown; use None, a number, 'mean' or a list."
            )
        if isinstance(self.discrete, str) and self.discrete != "detect":
            raise GEHValueError(
                f"Difference: discrete={self.discrete!r} is unknown; use 'detect' or a list of names or indices."
            )

    def start(self, cut: Cut, limits: Limits) -> DifferenceRun:
        """Return the object that computes the mixed differences of one run."""
        return DifferenceRun(self, cut, limits)

    def __repr__(self) -> str:
        return f"Difference(step={self.step}, baseline={self.baseline!r}, discrete={self.discrete!r})"


class DifferenceRun(EngineRun):
    """Mixed differences of one run: the units' steps, from their moments and levels over the points."""

    engine: Difference
    needs_values = True
    takes_pairs = True

    def __init__(self, engine: Difference, cut: Cut, limits: Limits) -> None:
        super().__init__(engine, cut, limits)
        self._moments = UnitMoments(cut.n_units, limits.weights)
        self._fixed_baseline = self._check_baseline()
        #: Values that occur, for each unit that may be discrete; collected only as long as they are few.
        self._levels: dict[int, set[float]] = {unit: set() for unit in self._check_discrete()}

    @property
    def has_fixed_baseline(self) -> bool:
        """Whether units move to given values, so that their spread over the points does not count."""
        return self._fixed_baseline is not None

    def check_spread(self, n_points: int) -> None:
        """Raise if steps are measured by the spread of a single point, so that all of them would be 0."""
        if n_points == 1 and not self.has_fixed_baseline:
            raise GEHValueError(
                "engine='difference' steps by the spread of the units over the points, and there is one point: all "
                "steps would be 0. Use explainer.explain_row(x, baseline=...) for a single row, pass more points, or "
                "engine=Difference(baseline=0)."
            )

    def _check_baseline(self) -> Floats | None:
        """Return the baseline (D,) of the units; None where it is their mean, or steps are used."""
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
        """Return the indices of the units that may be discrete."""
        text = np.flatnonzero(self._text).tolist()
        if self.engine.baseline is not None:
            if text:
                raise GEHValueError(
                    f"Difference: baseline={self.engine.baseline!r} is for numbers, and unit {text[0]} is a column "
                    "that is not numeric; leave it out of the units."
                )
            return ()
        if isinstance(self.engine.discrete, str):
            return range(self.cut.n_units)
        names = self.limits.names or self.cut.unit_names()
        named = [find_unit(unit, names, "Difference: discrete") for unit in self.engine.discrete]
        units = self.cut.units
        if isinstance(units, Categorical) and min(named, default=len(names)) < len(units.categories):
            raise GEHValueError(
                f"Difference: discrete has {names[min(named)]!r}, a category of units=Categorical(...), which moves "
                "between its levels anyway; leave it out of discrete=."
            )
        return sorted({*named, *text})

    def observe(self, values: Tensor) -> None:
        """Take the values (n, D) of the next rows: moments of all units, levels of those that may be discrete."""
        self._moments.add(values)
        if not self._levels:
            return
        columns = values.double().cpu().numpy()
        for unit in list(self._levels):
            # One level more than allowed is enough to recognise a unit that is not discrete.
            self._levels[unit].update(np.unique(columns[:, unit])[: _MAX_LEVELS + 1].tolist())
            if len(self._levels[unit]) > 2 and isinstance(self.engine.discrete, str) and not self._text[unit]:
                del self._levels[unit]

    @cached_property
    def _baseline(self) -> Floats | None:
        """Where each unit is moved to (D,); None where steps are used."""
        return self._moments.mean if isinstance(self.engine.baseline, str) else self._fixed_baseline

    @cached_property
    def _whole(self) -> Bools:
        """Which units (D,) step by whole numbers."""
        return whole_units(self.cut)

    @cached_property
    def _text(self) -> Bools:
        """Which units (D,) are columns that are no numbers, and jump between their values."""
        return text_units(self.cut)

    @cached_property
    def jumps(self) -> dict[int, Floats]:
        """The sorted levels of each discrete unit, between which it steps, by the index of the unit.

        Raises
        ------
        GEHValueError
            If a unit that ``discrete`` names has fewer than 2 or more than 100 values among the points.
        """
        jumps = {}
        for unit, levels in self._levels.items():
            if 2 <= len(levels) <= _MAX_LEVELS:
                jumps[unit] = np.array(sorted(levels))
            elif not isinstance(self.engine.discrete, str) or self._text[unit]:
                raise GEHValueError(
                    f"Difference: discrete unit {unit} has {len(levels)} values or more among the points; a discrete "
                    f"one has 2 to {_MAX_LEVELS}. Leave it out of discrete=, or out of the units."
                )
        return jumps

    def chunk_rows(self, rows: Rows) -> int:
        """Return ``batch_size``, else the number of rows whose pairs the memory allows."""
        if self.limits.batch_size is not None:
            return self.limits.batch_size
        return max(1, min(_MAX_ROWS, self.chunk_bytes // (128 * len(self.pairs) + 64 * self.cut.n_units)))

    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Add the mixed differences of a chunk of rows to ``sums``."""
        cut = self.cut
        i, j = (torch.as_tensor(ends, device=cut.device) for ends in self.pairs.ends)
        unit = torch.arange(cut.n_units, device=cut.device)
        steps = self.steps(rows)
        with torch.no_grad():
            t = cut.zeros(rows)
            plain = cut.outputs(rows, t)
            self.check_outputs(rows, t, plain)
            plain = plain.double()
            # Moves of one and of two units side by side, so that few calls do for all.
            first, second = torch.cat([unit, i]), torch.cat([unit, j])
            moved = outputs_after_moves(cut, rows, steps, first, second, self._moves_at_once(len(rows)), self.report)
            single, both = moved[: cut.n_units], moved[cut.n_units :]
        area = (steps[:, i] * steps[:, j]).double()
        mixed = (both - single[i] - single[j] + plain).T
        members = sums.one_hot(labels, cut.device)
        sums.add(0, divide_by_steps(mixed, area), members)
        sums.add_slopes(divide_by_steps((single - plain).T, steps.double()), members)

    def _moves_at_once(self, n_rows: int) -> int:
        """Return how many moves of ``n_rows`` rows are in one call: as many as the user's batch size, or 8,192 rows."""
        return max(1, (self.limits.batch_size or _CALL_ROWS) // n_rows)

    def calls_and_rows(self, n_rows: int) -> tuple[int, int]:
        """Return the number of calls of the model for a chunk of ``n_rows`` rows, and the rows of these calls.

        One call is the check of a few rows, another one has the rows as they are.
        """
        moves = self.cut.n_units + len(self.pairs)
        return 2 + -(-moves // self._moves_at_once(n_rows)), n_rows * (1 + moves)

    def steps(self, rows: Rows) -> Tensor:
        """Return the signed step (n, D) of each unit of each row."""
        values = self.cut.units.values(self.cut.activations(rows))
        if self._baseline is not None:
            return torch.as_tensor(self._baseline).to(values) - values
        centre = torch.as_tensor(self._moments.centre).to(values)
        width = torch.as_tensor(self._moments.limited_std).to(values)
        length = width * self.engine.step
        whole = torch.as_tensor(self._whole, device=values.device) & (width > 0)
        length = torch.where(whole, length.round().clamp_min(1), length)
        # Towards the centre: the moved points stay where data are, and the error of first order cancels on average.
        steps = torch.where(values > centre, -length, length)
        for unit, sorted_levels in self.jumps.items():
            levels = torch.as_tensor(sorted_levels).to(values)
            # The nearest level, as values in single precision may differ from the level by rounding.
            index = (values[:, unit, None] - levels).abs().argmin(dim=1)
            steps[:, unit] = levels[torch.where(index + 1 < len(levels), index + 1, index - 1)] - levels[index]
        return steps


def outputs_after_moves(
    cut: Cut,
    rows: Rows,
    steps: Tensor,
    first: Tensor,
    second: Tensor,
    moves_at_once: int | None = None,
    report: Callable[[float], object] | None = None,
) -> Tensor:
    """Return the outputs (k, n) after each of k moves of one or two units.

    Parameters
    ----------
    cut
        The model as a function of the units' shifts.
    rows
        The n rows that are moved.
    steps
        Step (n, D) of each unit of each row.
    first, second
        Indices (k,) of the units of each move; equal for a move of a single unit.
    moves_at_once
        Moves per call of the model; None for as many as fit into one call of about 8,000 rows.
    report
        Called after each call of the model with its share of the rows.
    """
    moves_at_once = moves_at_once or max(1, _CALL_ROWS // len(rows))
    if not len(first):
        return torch.zeros(0, len(rows), device=steps.device, dtype=torch.double)
    parts = []
    for i, j in zip(torch.split(first, moves_at_once), torch.split(second, moves_at_once), strict=True):
        # Row n of move k is row k * n_rows + n of one large batch.
        move = torch.arange(len(i), device=steps.device)
        shifts = steps.new_zeros(len(i), len(rows), cut.n_units)
        shifts[move, :, i] = steps.T[i]
        shifts[move, :, j] = steps.T[j]
        outputs = cut.outputs(rows.repeat(len(i)), shifts.reshape(-1, cut.n_units))
        parts.append(outputs.double().reshape(len(i), len(rows)))
        if report is not None:
            report(len(rows) * len(i) / len(first))
    return torch.cat(parts)


def divide_by_steps(difference: Tensor, step: Tensor) -> Tensor:
    """Return ``difference / step``, and 0 where the step is 0 because a unit is at its baseline already."""
    return torch.where(step == 0, 0.0, difference / torch.where(step == 0, 1.0, step))
