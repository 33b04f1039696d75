"""Stein's identity: the Hessian of the smoothed network from gradients under Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain._process import cached_property
from geh_explain._types import Floats, Ints
from geh_explain._validation import check_int, check_positive
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Engine, EngineRun, Limits, check_finite
from geh_explain.engines.stein.control import ControlHessians, ControlVariate, find_control
from geh_explain.engines.stein.noise import normal_samples, smallest_scale
from geh_explain.engines.stein.pilot import PILOT_SAMPLES, Pilot, samples_for
from geh_explain.engines.stein.products import Samples, SummedSamples
from geh_explain.engines.stein.sums import SteinSums
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHRuntimeError, GEHValueError
from geh_explain.model.cut import Cut
from geh_explain.model.row_independence import check_parts
from geh_explain.model.unit_values import UnitMoments

#: Scale of the noise without arguments, in standard deviations of the units.
_DEFAULT_NOISE = 0.25
#: Standard deviation of the noise of each unit for a ball, in units of radius / sqrt(D).
_SIGMA_PER_RADIUS = 0.75
#: Samples of a run that was not prepared.
_DEFAULT_SAMPLES = 8
#: Rows of a chunk, and of one call of the model, at most.
_MAX_ROWS = 1024
_CALL_ROWS = 1024
#: Arrays of the size of all samples of a chunk that are held at once.
_COPIES = 14
#: Numbers per draw for absolute interactions, each of which needs the Hessian of one point ...
_ABSOLUTE_NUMBERS = 5e7
#: ... which are measured at this many points at least.
_MIN_ABSOLUTE = 4
#: Seed of the pilot's noise.
_PILOT_SEED = 24


@dataclass(frozen=True, repr=False)
class Stein(Engine):
    """Hessians of the smoothed network by Stein's identity, from first derivatives only.

    For Gaussian noise d of scale s, the Hessian of f convolved with that Gaussian is::

        H = E[d (grad f(x + d) - grad f(x - d))^T] / (2 s^2).

    The scale s_i may differ from unit to unit, and both orders of i and j are averaged. One sample is::

        L_ij = (w_i v_j + w_j v_i) / 2,    w = d / s^2,    v = (grad f(x + d) - grad f(x - d)) / 2.

    The pair d, -d is antithetic: grad f(x) itself, which would dominate the variance, cancels. The expectation is a
    mean over ``samples`` pairs per point. Sums over samples and points are matrix products.

    *Control variate.* Most of the variance of a sample is that of the linear part H d of v. For any fixed matrix C the
    mean of ::

        C + (w_i (v - C d)_j + w_j (v - C d)_i) / 2

    is the same. C is the Hessian at x of the network with smoothed kinks, from the structured engine, times a factor,
    where that engine takes the network and saves more samples than it costs. The estimate stays that of the network
    itself; only its variance is smaller, most of all for smooth networks.

    *Error.* The variance of the estimate is in ``GroupSums.variance``, from the samples of each point. ``|noise|`` must
    not be taken for an interaction: E[mean^2] exceeds H^2 by the variance of the mean, so the absolute interaction of a
    point is estimated by sqrt(max(mean^2 - variance, 0)). The scores of groups are corrected likewise. If the noise of
    all group means together exceeds their interactions, a :class:`~geh_explain.GEHWarning` says how many samples would
    do.

    *Cost*: 2 ``samples`` gradients per point and draw, whatever the number of units, and products of D^2 numbers per
    sample. Absolute interactions and the sampling error of points need the Hessian of each point; for many units they
    are measured at a part of the points, see ``eah_points``. *Right* for kinked networks, whose functions are not
    replaced, and for many units. *Not* for black boxes without gradients. The standard error of a point grows with the
    number of units that act on the output: about sqrt(D / (2 samples)) of the norm of its Hessian, without a control
    variate. Groups of n points need n times fewer samples if the points of a group are alike.

    Parameters
    ----------
    noise
        Scale of the noise in standard deviations of the units: the bandwidth of the smoothing; 0.25 if no scale is
        given. At most twice the standard deviation of most points counts, if a few are far from the others. Units that
        are constant over the points are left alone, and their interactions are 0.
    samples
        Antithetic pairs per point and draw, at least 2. None chooses the number from a few samples at 64 of the points:
        as many as reach ``error``, at least 4, at most 4,096 per point, and at most 100,000 for all points together.
        ``result.settings["engine_settings"]`` has the number.
    sigma
        Scale of the noise of all units, as a number in the units' own measure; instead of ``noise``.
    radius
        Radius of a ball around each point in the space of the D units, on which the Hessian is to describe the network:
        ``sigma = 0.75 radius / sqrt(D)``; instead of ``noise``.
    error
        Relative error that ``samples=None`` aims at: the norm of the noise of all group means, divided by the norm of
        the interactions.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> explainer = geh.GEHExplainer(
    ...     lambda x: (x[:, 0] + x[:, 1]).abs(),  # curved on the line x0 = -x1 only
    ...     engine=geh.engines.Stein(samples=20),
    ...     posterior=geh.posterior.PointEstimate(),
    ... )
    >>> x = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
    >>> result = explainer.explain(x, groups=1, progress=False)
    >>> bool(abs(result.geh.mean[0, 1] - 0.56) < 0.1)  # twice the density 1 / sqrt(4 pi) of x0 + x1 at 0
    True
    >>> geh.engines.Stein(radius=0.5)
    Stein(radius=0.5, samples=None, error=0.3)
    """

    name = "stein"
    differentiates = False

    noise: float | None = None
    samples: int | None = None
    sigma: float | None = None
    radius: float | None = None
    error: float = 0.3

    def __post_init__(self) -> None:
        scales = [name for name in ("noise", "sigma", "radius") if getattr(self, name) is not None]
        if len(scales) > 1:
            given = ", ".join(f"{name}={getattr(self, name)!r}" for name in scales)
            raise GEHValueError(f"Stein: {given} all set the scale of the noise; give one of them.")
        if not scales:
            object.__setattr__(self, "noise", _DEFAULT_NOISE)
        expected = {
            "noise": "a positive number of standard deviations",
            "sigma": "a positive number, the standard deviation of the noise of each unit",
            "radius": "a positive number, the radius of a ball around each point",
        }
        for name in scales:
            check_positive(f"Stein: {name}", getattr(self, name), expected[name])
        if self.samples is not None:
            check_int("Stein: samples", self.samples, 2)
        check_positive("Stein: error", self.error, "a positive number, such as 0.3 for 30 % of the interactions")

    def start(self, cut: Cut, limits: Limits) -> SteinRun:
        """Return the object that computes the estimates of one run."""
        return SteinRun(self, cut, limits)

    def __repr__(self) -> str:
        scale = next(f"{name}={value}" for name in ("noise", "sigma", "radius") if (value := getattr(self, name)))
        aim = f", error={self.error}" if self.samples is None else ""
        return f"Stein({scale}, samples={self.samples}{aim})"


class SteinRun(EngineRun):
    """Estimates of one run: scale of the noise, number of samples, control variate, and the seed of the draw.

    Attributes
    ----------
    engine
        The description, with the number of samples that was chosen.
    """

    engine: Stein
    takes_pairs = True

    def __init__(self, engine: Stein, cut: Cut, limits: Limits) -> None:
        super().__init__(engine, cut, limits)
        self.needs_values = engine.noise is not None
        self._moments = UnitMoments(cut.n_units, limits.weights)
        #: Units (D,) whose noise is rounded away beside their values.
        self.rounded = np.zeros(cut.n_units, dtype=bool)
        self._control: ControlVariate | None = None
        self._seed = 0
        #: Rows of the current chunk whose outputs are compared.
        self._parts: list[list[int]] = []
        #: Whether absolute interactions are measured at each point (n_points,) of this draw; None for all points.
        self._measured: NDArray[np.bool_] | None = None

    # Scale of the noise, number of samples.

    def observe(self, values: Tensor) -> None:
        """Take the values (n, D) of the next rows, for their standard deviations."""
        self._moments.add(values)

    @cached_property
    def scale(self) -> Floats:
        """Standard deviation (D,) of the noise of each unit; 0 for units that are left alone.

        Raises
        ------
        GEHValueError
            If it is relative to the spread of the units, and none of them has any.
        """
        engine, n_units = self.engine, self.cut.n_units
        if engine.sigma is not None:
            return np.full(n_units, engine.sigma)
        if engine.radius is not None:
            return np.full(n_units, _SIGMA_PER_RADIUS * engine.radius / math.sqrt(n_units))
        assert engine.noise is not None
        std = self._moments.limited_std
        if not std.any():
            raise GEHValueError(
                f"{engine!r}: noise is a number of standard deviations of the units over the points, and these have "
                "one value each. Pass more points, or a scale in the units' own measure: Stein(sigma=...) or "
                "Stein(radius=...)."
            )
        return std * engine.noise

    @cached_property
    def _scales(self) -> tuple[Tensor, Tensor]:
        """The scale s of the noise, and 1 / s, 0 where s is; both (D,), for products with standard normal numbers."""
        s = torch.as_tensor(self.scale, device=self.cut.device)
        inverse = torch.where(s > 0, 1 / torch.where(s > 0, s, 1.0), 0.0)
        return s.to(self._dtype), inverse.to(self._dtype)

    @property
    def _dtype(self) -> torch.dtype:
        """Precision of samples and products: that of the model, single or double."""
        return torch.double if self.cut.dtype == torch.double else torch.float

    @property
    def samples(self) -> int:
        """Number of samples per point and draw."""
        return self.engine.samples or _DEFAULT_SAMPLES

    def prepare(self, points: Points, labels: Ints, factors: Floats) -> None:
        """Choose the number of samples and the control variate, by the network without draws at some points."""
        scale, requested, aim = self.scale, self.engine.samples, self.engine.error
        self.rounded = (scale > 0) & (scale < smallest_scale(self.cut, points))
        control = find_control(self.cut, points, scale, self.limits)
        if control is None and requested is not None:
            return
        pilot = Pilot(np.abs(factors), labels)
        for rows in points.spread:
            pilot.add(*self._pilot_samples(rows, pilot.n_points))
        noise, signal = pilot.energies()
        samples = requested or samples_for(aim, noise, signal, len(points))
        if control is not None:
            n_parts = min(len(points.spread), control.affordable_rows(samples, len(points)) // len(points.spread[0]))
            for part in np.linspace(0, len(points.spread) - 1, n_parts).astype(int).tolist():
                pilot.add_control(part, control.hessians(points.spread[part]))
            controlled, signal = pilot.controlled_energies()
            fewer = requested or samples_for(aim, controlled, signal, len(points))
            # Variance times work, which does not depend on the number of samples.
            if controlled * control.work_per_sample(fewer) < noise * control.work_per_sample(None):
                samples, self._control = fewer, control.times(pilot.factor)
        self.engine = replace(self.engine, samples=samples)

    def _pilot_samples(self, rows: Rows, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return d, w and v (k, n, D) of a few samples of the rows of the pilot from number ``start`` on."""
        z = normal_samples(_PILOT_SEED, start, (PILOT_SAMPLES, len(rows), self.cut.n_units))
        return self._sample(rows, z)[:3]

    # Chunks.

    @cached_property
    def n_eah_points(self) -> int:
        """Number of points per draw at which absolute interactions are measured, each of which needs D^2 numbers."""
        if self.limits.eah_points is not None:
            return min(self.limits.n_points, self.limits.eah_points)
        n_rows = self.cut.n_units if self.pairs.complete else len(self.pairs.rows)
        fitting = int(_ABSOLUTE_NUMBERS / max(1, n_rows * self.cut.n_units))
        return self.limits.fewest_points(max(_MIN_ABSOLUTE, fitting))

    @cached_property
    def _samples_at_once(self) -> int:
        """Samples of one row that fit into memory, an even number."""
        bytes_of_sample = _COPIES * self.cut.n_units * self._dtype.itemsize
        return max(2, self.chunk_bytes // (2 * bytes_of_sample) // 2 * 2)

    def _fitting_rows(self, rows: Rows) -> int:
        """Return the number of rows all of whose samples fit into memory; 1 if not even those of one row do."""
        fitting = max(1, min(_MAX_ROWS, self._samples_at_once // self.samples))
        return fitting if self._control is None else max(1, min(fitting, self._control.chunk_rows(rows)))

    def chunk_rows(self, rows: Rows) -> int:
        """Return ``batch_size``, else the number of rows all of whose samples fit into memory."""
        return self.limits.batch_size or self._fitting_rows(rows)

    # Sums.

    def begin_draw(self, seed: int) -> None:
        """Start a draw with noise of its own, so that the spread over draws includes that of the noise."""
        self._seed, self._measured = seed, None
        n_points = self.limits.n_points
        if self.n_eah_points < n_points:
            chosen = np.random.default_rng(seed).choice(n_points, self.n_eah_points, replace=False)
            self._measured = np.zeros(n_points, dtype=bool)
            self._measured[chosen] = True

    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Add the estimates of a chunk of rows to ``sums``."""
        weights = sums.weights
        offset = 0
        for part in rows.split(self._fitting_rows(rows)):
            stop = offset + len(part)
            sums.weights = None if weights is None else weights[offset:stop]
            self._add_part(sums, part, labels[offset:stop], first=offset == 0)
            offset = stop
        sums.weights = weights

    def end_draw(self, sums: GroupSums) -> None:
        """Finish a draw; the sums of all processes must have the same parts, also of those without rows."""
        self._sums_of(sums).check_range(f"{self.engine!r}: the estimates exceed the range of {self._dtype}")

    def _sums_of(self, sums: GroupSums) -> SteinSums:
        """Return ``sums`` as what adds samples to them, with room for all that is added."""
        if sums.variance is None:
            sums.variance = torch.zeros_like(sums.signed)
        if self._measured is not None:
            sums.visit_sample()
        return SteinSums(sums, self.pairs, self.samples, self.chunk_bytes // 4, self.cut.device)

    def _add_part(self, sums: GroupSums, rows: Rows, labels: Ints, first: bool) -> None:
        """Add the estimates of rows that fit into memory; ``first``: they are those whose outputs are checked."""
        control = None if self._control is None else self._control.hessians(rows)
        target = self._sums_of(sums)
        measured = None if self._measured is None else self._measured[rows.start : rows.start + len(rows)]
        slopes = torch.zeros(len(rows), self.cut.n_units, dtype=self._dtype, device=self.cut.device)
        blocks = self._blocks(rows, control, slopes, check=first)
        points: Samples | SummedSamples
        if self.samples <= self._samples_at_once:
            points = next(blocks)
            if measured is not None:
                target.add_groups(points, labels)
        else:
            points = SummedSamples()
            for samples in blocks:
                points.add(samples)
                if measured is not None:
                    target.add_groups(samples, labels)
        if measured is not None and control is not None:
            target.add_control(control, labels)
        target.add_points(points, control, labels, measured)
        sums.add_slopes(slopes / self.samples, sums.one_hot(labels, self.cut.device))
        check_finite(sums.slopes, rows)

    def _blocks(self, rows: Rows, control: ControlHessians | None, slopes: Tensor, check: bool) -> Iterator[Samples]:
        """Yield the samples of ``rows``, as many as fit into memory, and add their slopes to ``slopes`` (n, D)."""
        for start in range(0, self.samples, self._samples_at_once):
            count = min(self._samples_at_once, self.samples - start)
            z = normal_samples(self._seed, rows.start, (count, len(rows), self.cut.n_units), start)
            d, w, v, gradients = self._sample(rows, z, check and start == 0)
            slopes += gradients
            yield Samples(w, v if control is None else v - control.times(d))

    def _sample(self, rows: Rows, z: Tensor, check: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return d, w and v (k, n, D) for standard normal numbers z (k, n, D), and the sum of slopes (n, D).

        Units that are left alone have w = v = 0, and so no interactions.
        """
        scale, inverse = self._scales
        z = z.to(self.cut.device, self._dtype)
        d = z * scale
        plus, minus = self._gradients(rows, torch.cat([d, -d]), check).chunk(2)
        slopes = (plus + minus).sum(dim=0) / 2
        return d, z * inverse, (plus - minus) / 2 * (scale > 0), slopes

    def _check_sample(self, rows: Rows, start: int, t: Tensor, outputs: Tensor, n_samples: int) -> None:
        """Compare outputs in a call with shifts from number ``start`` on, if d or -d of the first sample is in it."""
        if start == 0:
            self._parts = self._part_choice.parts(rows)
        for number in (0, n_samples):
            place = slice((number - start) * len(rows), (number - start + 1) * len(rows))
            if 0 <= place.start < len(t):
                check_parts(self.cut, rows, t[place], outputs[place], self._parts)

    def _gradients(self, rows: Rows, shifts: Tensor, check: bool) -> Tensor:
        """Return the gradients (k, n, D) at k shifts of all rows (k, n, D); ``check`` compares some outputs.

        Raises
        ------
        GEHRuntimeError
            If the outputs have no gradients.
        """
        at_once = max(1, (self.limits.batch_size or _CALL_ROWS) // len(rows))
        found = []
        for start in range(0, len(shifts), at_once):
            part = shifts[start : start + at_once]
            t = part.flatten(0, 1).to(self.cut.dtype).requires_grad_()
            value = self.cut.outputs(rows.repeat(len(part)) if len(part) > 1 else rows, t)
            if not value.requires_grad:
                raise GEHRuntimeError(
                    "engine='stein' needs gradients, and the model's output has none; use engine='difference' for "
                    "black boxes."
                )
            if check:
                self._check_sample(rows, start, t, value.detach(), len(shifts) // 2)
            (gradient,) = torch.autograd.grad(value.sum(), t, allow_unused=True)
            gradient = torch.zeros_like(t) if gradient is None else gradient
            found.append(gradient.reshape(part.shape).to(self._dtype))
        return torch.cat(found)
