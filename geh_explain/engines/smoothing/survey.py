"""Survey of the kinked calls above a cut: which depend on the units, and how sharp their smooth forms are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.engines.smoothing.bandwidths import row_layouts
from geh_explain.engines.smoothing.missed_kinks import decision_name
from geh_explain.engines.smoothing.movement import KinkMovements, entering_values, measure_movements, plain_values
from geh_explain.engines.smoothing.radius import RadiusSmoothing
from geh_explain.engines.smoothing.sharpness import (
    BETA_TIMES_BANDWIDTH,
    Radius,
    Sharpened,
    Smooth,
    Step,
    is_by_row,
    min_beta,
    step_of,
)
from geh_explain.engines.smoothing.smooth_functions import slope_jumps
from geh_explain.engines.smoothing.view import Beta, KinkedCallView, Smoothing
from geh_explain.errors import GEHValueError
from geh_explain.model.cut import Cut
from geh_explain.model.unit_values import limited_std, unit_moments

#: Functions that may never act: a clamp for safety, say before a logarithm.
_CLAMPS = ("clamp", "clip", "clamp_min", "clamp_max")
#: Shift of the units that shows which calls depend on them: a share of their values, or this number if that is more.
_TEST_SHIFT = 0.02
#: Values of a call whose quantiles are taken, and the factor by which they are thinned beyond: one that does not divide
#: usual widths of layers, so that all entries are in the sample.
_MAX_SAMPLE = 2**14
_THINNING = 11
#: Smallest bandwidth of an entry, relative to the root mean square of its call: entries that hardly move.
_MIN_BANDWIDTH = 1e-3


class KinkedCall:
    """Statistics of one kinked call of the forward pass, over rows and positions of what enters it.

    Mean and sum of squared deviations are updated as in :class:`~geh_explain.model.unit_values.UnitMoments`.

    Attributes
    ----------
    name
        Name of the function, its key in ``FORMS``.
    meets_kink
        Whether its kink acts: False for a clamp that never clamps, for CELU, and for ELU with alpha = 1.
    depends_on_units
        Whether what enters changes with the units.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.meets_kink = False
        self.depends_on_units = False
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0
        #: Every so many values one is in the sample.
        self._stride = 1
        self._sample: list[Floats] = []

    def add(self, x: Tensor) -> None:
        """Add values that enter the call; infinite ones, such as those of masked positions, do not count."""
        x = x.double()
        x = x[torch.isfinite(x)]
        if not x.numel():
            return
        self._add_to_sample(x)
        count = x.numel()
        mean = float(x.mean())
        total = self._count + count
        delta = mean - self._mean
        self._squares += float((x - mean).square().sum()) + delta**2 * self._count * count / total
        self._mean += delta * count / total
        self._count = total

    def _add_to_sample(self, x: Tensor) -> None:
        """Keep values at equal distances, at most ``_MAX_SAMPLE``."""
        # A copy: a view would keep all values in memory.
        self._sample.append(x[-self._count % self._stride :: self._stride].clone().cpu().numpy())
        while -(-(self._count + x.numel()) // self._stride) > _MAX_SAMPLE:
            self._sample = [np.concatenate(self._sample)[::_THINNING].copy()]
            self._stride *= _THINNING

    def reset_statistics(self) -> None:
        """Discard the values added so far."""
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0
        self._stride = 1
        self._sample = []

    @property
    def std(self) -> float:
        """Standard deviation of what enters, over rows and positions."""
        return math.sqrt(self._squares / max(self._count, 1))

    @property
    def limited_std(self) -> float:
        """The same, not dominated by a few outliers, see :func:`~geh_explain.model.unit_values.limited_std`."""
        values = np.concatenate([*self._sample, np.zeros(0)])
        return float(limited_std(np.asarray(self.std), values))

    @property
    def is_smoothed(self) -> bool:
        """Whether the call is to be smoothed."""
        return self.meets_kink and self.depends_on_units


class KinkSurvey(KinkedCallView):
    """Measures what enters each kinked call, and changes nothing.

    At first it compares the inputs of the calls in different forward passes, to see which depend on the units; after
    :meth:`start_statistics` it collects statistics of the inputs over all rows.

    Attributes
    ----------
    calls
        One entry per kinked call of a forward pass, in their order.
    decides
        Whether other calls were met that may have kinks or jumps, for which there is no smooth form.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[KinkedCall] = []
        self.decides = False
        #: What entered each call in the first forward pass; None once comparison is over.
        self._first_inputs: list[Tensor] | None = []

    def handle(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of one torch call, unchanged."""
        n_before = self.n_calls
        out = super().handle(func, args, kwargs)
        if not self.decides and self.n_calls == n_before:
            self.decides = decision_name(func, args, kwargs, out) is not None
        return out

    def handle_kinked(self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of one kinked call, unchanged, and record what enters it."""
        if self.n_calls > len(self.calls):
            self.calls.append(KinkedCall(name))
        call = self.calls[self.n_calls - 1]
        entering = entering_values(name, args, kwargs)
        out = func(*args, **kwargs)
        self._compare(call, entering)
        call.add(entering)
        call.meets_kink |= bool(kink_acts(name, args, kwargs, out, entering).any())
        return out

    def _compare(self, call: KinkedCall, entering: Tensor) -> None:
        """Mark a call as dependent on the units if its input differs from that of the first forward pass."""
        if self._first_inputs is None:
            return
        if self.n_calls > len(self._first_inputs):
            self._first_inputs.append(entering)
        else:
            call.depends_on_units |= not torch.equal(self._first_inputs[self.n_calls - 1], entering)

    def start_statistics(self) -> None:
        """End the comparison of forward passes, and start statistics over all rows."""
        self._first_inputs = None
        for call in self.calls:
            call.reset_statistics()

    def smoothing(
        self, smooth: str | float | Step | Radius | Sharpened, cut: Cut, points: Points, std: Floats
    ) -> Smoothing | None:
        """Return the view that smooths by the argument ``smooth``; None where no call is to be smoothed.

        Parameters
        ----------
        smooth
            ``"auto"``, a step, a radius, a sharpness beta, or a multiple of what these set.
        cut, points
            The model as a function of the units' shifts, and all points; some of them are shifted for a step.
        std
            Standard deviations (D,) of the units, without outliers.
        """
        if isinstance(smooth, Sharpened):
            found = self.smoothing(smooth.smooth, cut, points, std)
            return None if found is None else found.times(smooth.factor)
        if isinstance(smooth, Radius):
            if not any(call.depends_on_units for call in self.calls):
                return None
            missing = self.calls_without_rows(cut, points.first)
            if missing:
                raise GEHValueError(
                    f"smooth={smooth!r}: rows are smoothed one by one, and what enters {missing[0]}() in the model has "
                    "no dimension of rows, as under torch.vmap; use smooth='auto' with more points, or "
                    "geh_explain.engines.Step(size)."
                )
            names = [call.name for call in self.calls]
            return RadiusSmoothing(names, cut, points.first, smooth.deviation(cut.n_units))
        step = step_of(smooth)
        if not any(call.is_smoothed for call in self.calls):
            return None
        movements = None if step is None else measure_movements(cut, points.spread, std, step.size, len(self.calls))
        if isinstance(smooth, Step) and not std.any():
            raise GEHValueError(
                f"smooth={smooth!r}: a step is measured in standard deviations of the units, and these have one value "
                "each over the points; give more points, or a number, the beta of the softplus that replaces ReLU."
            )
        betas = [self._beta(number, smooth, movements) for number in range(len(self.calls))]
        if all(beta is None for beta in betas):
            return None
        return Smoothing([call.name for call in self.calls], betas, None if step is None else step.size)

    def calls_without_rows(self, cut: Cut, rows: Rows) -> list[str]:
        """Return the names of calls that depend on the units, in which no dimension is that of the rows."""
        layouts = row_layouts(cut, rows)
        pairs = zip_longest(self.calls, layouts[: len(self.calls)])
        return [call.name for call, layout in pairs if call.depends_on_units and layout is None]

    def _beta(self, number: int, smooth: str | float | Step, movements: KinkMovements | None) -> Beta:
        """Return the sharpness of one call; None to leave it unchanged."""
        call = self.calls[number]
        if not call.is_smoothed:
            return None
        if movements is None:
            assert not isinstance(smooth, (str, Step))
            return float(smooth)
        lowest = min_beta(smooth, call.limited_std)
        squared = movements.squared_bandwidth(number)
        if squared is None:
            # Nothing moves, as at one point: the spread of what enters is all that is known.
            return lowest or None
        bandwidth = squared.sqrt().clamp_min(_MIN_BANDWIDTH * float(squared.mean().sqrt()))
        beta = (BETA_TIMES_BANDWIDTH / bandwidth).clamp_min(lowest)
        return beta.to(movements.dtypes[number]) if beta.ndim else float(beta)


def kink_acts(name: str, args: Sequence[Any], kwargs: dict[str, Any], out: Any, entering: Tensor) -> Tensor:
    """Return whether the kink of a call acts: for each entry of clamps, which may never clamp, else one value."""
    if name in _CLAMPS:
        return plain_values(out) != entering
    return torch.tensor(slope_jumps(name, args, kwargs))


def survey_kinks(cut: Cut, rows: Rows) -> KinkSurvey | None:
    """Return a survey of the kinked calls above ``cut``, from a few rows; None where nothing has a kink.

    Two forward passes, with and without shifted units, show which calls depend on the units. The statistics of the
    survey are empty: they come from a pass over all rows under ``cut.viewed(survey)``.
    """
    if cut.known_smooth:
        return None
    survey = KinkSurvey()
    with cut.viewed(survey):
        cut.outputs(rows, cut.zeros(rows))
        if not survey.calls and not survey.decides:
            return None
        # Kinks of what does not depend on the units, such as a bias by position, stay as they are.
        cut.outputs(rows, detecting_shift(cut, rows))
    survey.start_statistics()
    return survey


@torch.no_grad()
def detecting_shift(cut: Cut, rows: Rows) -> Tensor:
    """Return shifts (n, D) of the units that no rounding absorbs, and that no difference of units cancels."""
    sizes = cut.units.values(cut.activations(rows).abs()).abs().to(cut.dtype).clamp_min(1)
    factors = 0.5 + torch.rand(cut.n_units, generator=torch.Generator().manual_seed(0))
    return _TEST_SHIFT * sizes * factors.to(sizes)


def smoothing_for(
    cut: Cut, points: Points, smooth: Smooth, batch_size: int | None, weights: Floats | None = None
) -> Smoothing | None:
    """Return the view that smooths the network above ``cut``, by one pass over all points.

    Parameters
    ----------
    cut
        The model as a function of the units' shifts.
    points
        All points, whose spread and movements at the kinked calls set the sharpness.
    smooth
        ``"auto"``, a step, a radius, a sharpness beta, or None for no smoothing.
    batch_size
        Rows per forward pass; None for the default of :meth:`Points.split`.
    weights
        Case weights (N,) of the points, which count in the standard deviations of the units; None for 1.

    Returns
    -------
    Smoothing or None
        None where nothing is to be smoothed.
    """
    survey = None if smooth is None else survey_kinks(cut, points.first)
    if survey is None or smooth is None:
        return None
    if is_by_row(smooth):
        return survey.smoothing(smooth, cut, points, np.zeros(cut.n_units))
    with cut.viewed(survey):
        for rows in points.split(batch_size):
            cut.outputs(rows, cut.zeros(rows))
    return survey.smoothing(smooth, cut, points, unit_moments(cut, points, batch_size, weights).limited_std)
