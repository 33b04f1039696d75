"""Smoothing by a radius: each kink of each row is smoothed as far as its input moves within a ball around the row.

With z the input of a kinked function at one entry, t the units' shifts and sigma a standard deviation of the units, the
bandwidth of the entry in a row is ::

    b = sigma ||dz / dt||    at t = 0,

the standard deviation to first order of z for normal shifts t. Derivatives are those of the smoothed network: earlier
kinks are smoothed before later ones are measured. Up to ``MAX_DIRECTIONS`` units the norm is exact, from the
derivatives along all units. For more units D it comes from m random directions v_k, orthonormal and the same for all
rows: ||dz / dt||^2 is D / m times the sum over k of (dz / dt v_k)^2, with a standard error of the norm of about
1 / sqrt(2 m).

A row may set sigma by itself, as a part of its median distance |z| / ||dz / dt|| to the kinks of the first kinked call
that has entries away from the kink.

Maxima over several entries are decided by differences of these. The bandwidth of a maximum is the root mean square of
sigma ||d(z_k - z_l) / dt|| over pairs of its entries, and its form is a log-sum-exp with the same standard deviation.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from geh_explain.data.rows import Rows
from geh_explain.engines.smoothing.bandwidths import (
    DIFFERENCE,
    Differences,
    Measurement,
    row_layouts,
    unit_directions,
)
from geh_explain.engines.smoothing.maxima import form_of, maximum_of
from geh_explain.engines.smoothing.sharpness import BETA_TIMES_BANDWIDTH
from geh_explain.engines.smoothing.view import Form, Smoothing
from geh_explain.errors import GEHValueError
from geh_explain.model.cut import Cut

#: Rows times directions in one forward pass, and numbers of the units' layer in them, at most.
_MAX_ROWS = 2048
_MAX_NUMBERS = 2**24


@dataclass(frozen=True)
class _Held:
    """Rows that were measured.

    Attributes
    ----------
    rows
        The rows.
    bandwidths
        Bandwidths of each kinked call, None where it stays as it is.
    sigmas
        Standard deviations (n,) of the units.
    """

    rows: Rows
    bandwidths: list[Tensor | None]
    sigmas: Tensor

    def position(self, rows: Rows) -> int | None:
        """Return where the first of ``rows`` is among these, if they are a slice of them in memory; else None."""
        first = rows.start - self.rows.start
        if rows.repeats > 1 or self.rows.repeats > 1 or not 0 <= first <= len(self.rows) - len(rows):
            return None
        pairs = zip(rows.inputs, self.rows.inputs, strict=True)
        return first if all(x.data_ptr() == all_x[first:].data_ptr() for x, all_x in pairs) else None


class RadiusSmoothing(Smoothing):
    """Replaces each kinked call by its Gaussian form, with a bandwidth for each entry of each row.

    Before each forward pass the bandwidths of its rows are measured at t = 0, by one forward pass with derivatives
    along all directions. They are constants for the engines, also at other shifts.

    Parameters
    ----------
    names
        Names of the kinked functions, in the order of their calls in a forward pass.
    cut
        The model as a function of the units' shifts.
    rows
        A row or more, for the shapes of what enters the calls.
    sigma
        Standard deviation of the units; None for one that each row sets, see
        :func:`~geh_explain.engines.smoothing.bandwidths.own_sigma`.
    factor
        What bandwidths are divided by.

    Attributes
    ----------
    sigmas
        Standard deviation (n,) of the units in the rows of the last forward pass.
    """

    def __init__(self, names: Sequence[str], cut: Cut, rows: Rows, sigma: float | None, factor: float = 1.0) -> None:
        super().__init__(names, [1.0] * len(names))
        self._cut, self._first = cut, rows[:1]
        self._sigma, self._factor = sigma, factor
        self.sigmas = torch.zeros(0)
        self._stretch: Tensor | None = None
        self._layouts = row_layouts(cut, rows)
        self._directions = unit_directions(cut)
        self._by_differences = False
        self._held: _Held | None = None
        self._bandwidths: list[Tensor | None] = []
        #: Sum of squared bandwidths of each call over all rows, and their number.
        self._squares = [0.0] * len(names)
        self._counts = [0] * len(names)

    def times(self, factor: float) -> Smoothing:
        """Return the same with all bandwidths divided by ``factor``."""
        return RadiusSmoothing(self.names, self._cut, self._first, self._sigma, self._factor * factor)

    def typical_betas(self) -> list[float | None]:
        """Return for each call the sharpness of a softplus with the root mean square of its bandwidths so far."""
        pairs = zip(self._squares, self._counts, strict=True)
        return [BETA_TIMES_BANDWIDTH * math.sqrt(count / square) if square > 0 else None for square, count in pairs]

    def typical_sigma(self) -> float | None:
        """Return the standard deviation of the units, the mean over the last rows where each sets its own."""
        if self._sigma is not None:
            return self._sigma / self._factor
        return float(self.sigmas.double().mean()) if len(self.sigmas) else None

    @contextmanager
    def stretched(self, factors: Tensor) -> Iterator[None]:
        """Multiply the bandwidths of the rows of the last forward pass by ``factors`` (n,), and measure no others.

        The output is differentiable in factors that require gradients. At factors of 1 the derivative is the change of
        the output by a relative growth of all bandwidths.

        Parameters
        ----------
        factors
            One factor for each row of the forward passes within the context, which are those of the last one.
        """
        self._stretch = factors
        try:
            yield
        finally:
            self._stretch = None

    @contextmanager
    def measured(self, rows: Rows) -> Iterator[None]:
        """Measure all ``rows`` at once; forward passes of slices of them measure nothing within the context.

        Engines that work on a few rows at a time would measure them a few at a time, at a higher cost per row. The
        network must stay the same within the context. Other rows are measured as always.

        Parameters
        ----------
        rows
            Rows whose slices, views of the same memory, are recognised.
        """
        self.prepare(rows)
        self._held = _Held(rows, self._bandwidths, self.sigmas)
        try:
            yield
        finally:
            self._held = None

    def prepare(self, rows: Rows) -> None:
        """Measure the bandwidths of the rows of the next forward pass."""
        if self._stretch is not None:
            return
        first = None if self._held is None else self._held.position(rows)
        if self._held is None or first is None:
            self._prepare(rows)
            return
        part = slice(first, first + len(rows))
        self.sigmas = self._held.sigmas[part]
        self._bandwidths = [
            None if b is None or layout is None else layout.of_rows(b, part)
            for b, layout in zip(self._held.bandwidths, self._layouts, strict=False)
        ]

    @torch.no_grad()
    def _prepare(self, rows: Rows) -> None:
        """Measure the bandwidths of ``rows``."""
        n_points = len(rows) // rows.repeats
        numbers = len(self._directions) * rows.repeats * max(1, math.prod(self._cut.shape))
        size = max(1, min(_MAX_ROWS // (len(self._directions) * rows.repeats), _MAX_NUMBERS // numbers))
        parts = [range(first, min(first + size, n_points)) for first in range(0, n_points, size)]
        draws = range(rows.repeats)
        measured = [
            self._measure(rows if len(parts) == 1 else rows.take([r * n_points + p for r in draws for p in part]))
            for part in parts
        ]
        self.sigmas = torch.cat([view.sigmas.reshape(rows.repeats, -1) for view in measured], dim=1).flatten()
        self._bandwidths = []
        for number in range(min(len(view.bandwidths) for view in measured)):
            layout = self._layouts[number] if number < len(self._layouts) else None
            found = [view.bandwidths[number] for view in measured]
            self._bandwidths.append(None if layout is None else layout.joined(found, rows.repeats))
            self._add_squares(number)

    def _add_squares(self, number: int) -> None:
        """Add the squared bandwidths of a call that was measured to the sums of the record."""
        found = self._bandwidths[number]
        if found is not None and number < len(self.names):
            self._squares[number] += float(found.double().square().sum())
            self._counts[number] += found.numel()

    def _measure(self, rows: Rows) -> Measurement:
        """Return the view that measured the bandwidths of each call in all rows.

        Rows all of whose entries are at the kinks of a first call set sigma at a later one, and are measured again.

        Raises
        ------
        GEHValueError
            If a row is at all of its kinks, so that it has no distance to them.
        """
        view = self._measure_with(self._sigma, rows)
        if not bool(view.undecided.any()):
            return view
        unknown = torch.nonzero(view.undecided & (view.sigmas == 0)).flatten().tolist()
        if unknown:
            raise GEHValueError(
                f"smooth: row {rows.start + unknown[0] % (len(rows) // rows.repeats)} is at all of its kinks, as zeros "
                "are in a network without biases, so that it has no distance to them which could set the radius; give "
                "one, smooth=geh_explain.engines.Radius(radius)."
            )
        return self._measure_with(view.sigmas * self._factor, rows)

    def _measure_with(self, sigma: float | Tensor | None, rows: Rows) -> Measurement:
        """Return the same for a given sigma.

        Functions without forward-mode derivative, such as an ``autograd.Function`` with a backward pass only, are
        measured by differences from the first time on that one is met.
        """
        if self._by_differences:
            return self._measure_differences(sigma, rows)
        cut, zeros = self._cut, self._cut.zeros(rows)
        view = Measurement(self._layouts, (sigma, self._factor), zeros[:, 0])

        def move(direction: Tensor) -> Any:
            return torch.func.jvp(partial(cut.all_outputs, rows), (zeros,), (direction.expand_as(zeros),))[1]

        try:
            # Values are computed once, and derivatives for all directions at once.
            with cut.viewed(view), warnings.catch_warnings():
                # Of torch itself, where it prepares forward-mode derivatives.
                warnings.simplefilter("ignore", DeprecationWarning)
                torch.func.vmap(move)(self._directions)
            return view
        except Exception:
            # A function without forward-mode derivative. If the error has another cause, it is raised again.
            self._by_differences = True
            return self._measure_differences(sigma, rows)

    def _measure_differences(self, sigma: float | Tensor | None, rows: Rows) -> Measurement:
        """Return the same by differences, with all rows repeated for each direction and both of its signs."""
        draws, n_points = rows.repeats, len(rows) // rows.repeats
        moves = DIFFERENCE * torch.cat([self._directions, -self._directions])
        indices = [r * n_points + point for r in range(draws) for _ in moves for point in range(n_points)]
        t = moves[None, :, None].expand(draws, -1, n_points, -1).reshape(len(indices), -1)
        view = Differences(
            self._layouts, (sigma, self._factor), t.new_zeros(len(rows)), (draws, len(self._directions), n_points)
        )
        with self._cut.viewed(view):
            self._cut.all_outputs(rows.take(indices), t)
        return view

    def _form(self, number: int, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Form:
        # Rows that take another path may make more calls than were measured.
        b = self._bandwidths[number - 1] if number <= len(self._bandwidths) else None
        layout = self._layouts[number - 1] if number <= len(self._layouts) else None
        if b is None or layout is None:
            return None
        if self._stretch is not None:
            b = b * layout.along_rows(self._stretch, b)
        return form_of(maximum_of(name, args, kwargs), b)
