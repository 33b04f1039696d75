"""The network's interaction of a pair, evaluated at the held-out rows.

With units i and j of a row x set to other values, and everything else as it is, two functions of the network g are
needed for each pair:

- the *local* interaction, whose background values B_bi, B_bj are the same for all rows ::

      G(x) = mean_b [g(x) - g(x; i = B_bi) - g(x; j = B_bj) + g(x; i = B_bi, j = B_bj)]

  so that q = g - G is a function of x without i plus a function of x without j, exactly. Background values drawn anew
  for each row would break this, and the test with it.

- the *mean* interaction over background rows r, a function of x_i and x_j only ::

      h(x) = mean_r [g(r; i = x_i, j = x_j) - g(r; i = x_i) - g(r; j = x_j) + g(r)]

  It is computed on a grid of the two units' values and interpolated: any direction gives a valid test.

The mean over a posterior's draws is that of G and of h, since both are linear in g. Draws share background values and
rows out among them, so that the mean of ten costs about as much as one network: q has the form above for each draw
alone, whatever its background values are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from geh_explain._process import safe_contextmanager
from geh_explain._types import Bools, Floats, Ints
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHRuntimeError, GEHValueError
from geh_explain.evidence.covariates import read_covariates
from geh_explain.model.cut import Cut
from geh_explain.model.unit_values import whole_units
from geh_explain.posterior import MCDropout, PointEstimate, Posterior
from geh_explain.posterior.protocols import enter_draws, fixed

#: Number of background values of each unit, at least one for each draw; of units that are independent of all others,
#: whose whole local interaction is tested: its mean given other units must be 0.
_BACKGROUND_VALUES = 8
BACKGROUND_VALUES_IF_INDEPENDENT = 34
#: Number of background rows for the mean interaction.
_BACKGROUND_ROWS = 32
#: Number of values of a unit on the grid; units with at most twice as many distinct values take these.
_GRID = 10
#: Quantiles between which the grid lies.
_GRID_ENDS = (0.01, 0.99)
#: Draws whose mean is tested, where the posterior has no network without draws: of those that can be drawn without end,
#: and of those that are finitely many, at most.
_DRAWS = 10
_MAX_MEMBERS = _BACKGROUND_ROWS
#: Rows of one call of the model where the user does not choose, at most, and numbers of the layer's output or of the
#: inputs in these rows (128 MB in single precision).
_ROWS_PER_CALL = 8192
_NUMBERS_PER_CALL = 2**25

#: Steps of a lattice are this share of its size, about: multiples of the golden ratio are never near each other.
_GOLDEN = 0.618

Pair = tuple[int, int]


class HeldOutFunctions:
    """Evaluates a network and its pairs at held-out rows.

    Parameters
    ----------
    cut, points
        The model as a function of its units, and the held-out rows.
    posterior
        Its mean function is evaluated: the network without dropout for MC dropout, else the mean over draws.
    read
        Turns all outputs of the model (n, ...) into the numbers (n,) that are tested.
    batch_size
        Rows of one call of the model; None chooses it.
    seed
        Decides on background values, and on the draws.

    Attributes
    ----------
    values
        Values (n, D) of the units.
    covariates
        What else the rows contain.
    """

    def __init__(
        self,
        cut: Cut,
        points: Points,
        posterior: Posterior,
        read: Callable[[Tensor], Tensor],
        *,
        batch_size: int | None,
        seed: int,
    ) -> None:
        self._cut = cut
        self._points = points
        self._posterior = posterior
        self._read = read
        self._rows_per_call = batch_size or _rows_per_call(cut, points)
        self._seed = seed
        self.values = unit_values(cut, points, batch_size)
        self.covariates = read_covariates(cut, points, batch_size)
        self._whole = whole = whole_units(cut)
        generator = np.random.default_rng(seed)
        # A Latin hypercube: every unit takes all of its quantiles, in an order of its own.
        self._background = generator.permuted(self._quantiles(_BACKGROUND_VALUES), axis=0)
        self._grids = [_grid(column, rounds) for column, rounds in zip(self.values.T, whole, strict=True)]
        chosen = generator.choice(len(points), min(len(points), _BACKGROUND_ROWS), replace=False)
        # Batch by batch, so that a streamed loader is read once.
        sampled = [_take(rows, chosen) for rows in points.batches()]
        self._background_rows = [(rows, unit_values_of(cut, rows)) for rows in sampled if len(rows)]

    @property
    def units(self) -> str:
        """The unit set in words, as the record of a run has it."""
        return repr(self._cut.units)

    @property
    def unit_names(self) -> list[str]:
        """The names of the units."""
        return self._cut.unit_names()

    @property
    def rounding(self) -> float:
        """Relative rounding error of differences of outputs."""
        return 100 * torch.finfo(self._cut.dtype).eps

    @property
    def n_functions(self) -> int:
        """Number of functions whose mean is tested: 1, or the number of draws at most."""
        if isinstance(self._posterior, (MCDropout, PointEstimate)):
            return 1
        return min(_MAX_MEMBERS, len(self._posterior)) if isinstance(self._posterior, Sized) else _DRAWS

    def outputs(self) -> Floats:
        """Return the tested number (n,) of each row."""
        return self._mean_over_functions(lambda _: [self._outputs()])[0]

    def without(self, pairs: Sequence[Pair], advance: Callable[[int], object], independent: Bools) -> Floats:
        """Return mean outputs (5, n, C) with background values, for C pairs.

        The first three have those of i, of j, and of both: functions of x without i, without j, and without both.
        ``advance`` is called with the number of pairs done in each draw. Pairs of two ``independent`` (D,) units have
        more background values, and the last two rows are the slopes of the network's interaction over those of i, and
        of j: functions of x without i, and without j. They are 0 for other pairs.
        """

        def evaluate(function: int) -> list[Floats]:
            single: dict[tuple[int, bool], Floats] = {}
            means = np.zeros((5, len(self.values), len(pairs)))
            for column, (i, j) in enumerate(pairs):
                many = bool(independent[[i, j]].all())
                values = (self._many_quantiles if many else self._background)[function :: self.n_functions]
                ranks = _standardised(len(values))
                for unit in (i, j):
                    if (unit, many) not in single:
                        single[unit, many] = self._at_background((unit,), values, ranks[None])
                if many:
                    order = lattice_order(len(values))
                    values = values.copy()
                    values[:, j] = values[order, j]
                    ranks = np.stack([ranks, ranks[order]])
                both = self._at_background((i, j), values, np.atleast_2d(ranks))
                means[:3, :, column] = single[i, many][0], single[j, many][0], both[0]
                if many:
                    means[3:, :, column] = single[i, many][1] - both[1], single[j, many][1] - both[2]
                advance(1)
            return [means]

        return self._mean_over_functions(evaluate)[0]

    def mean_interactions(self, pairs: Sequence[Pair], advance: Callable[[int], object]) -> MeanInteractions:
        """Return the mean interactions h of some pairs; ``advance`` as in :meth:`without`."""

        def evaluate(function: int) -> list[Floats]:
            rows = self._own_background_rows(function)
            centre = self._on_grid((), rows)
            single = {unit: self._on_grid((unit,), rows) for unit in {unit for pair in pairs for unit in pair}}
            grids = []
            for i, j in pairs:
                grids.append(self._on_grid((i, j), rows) - single[i][:, None] - single[j] + centre)
                advance(1)
            return grids

        # Main effects that are left, as draws have background rows of their own, are no part of an interaction.
        grids = [_centred(grid) for grid in self._mean_over_functions(evaluate)]
        places = [_position(grid, column) for grid, column in zip(self._grids, self.values.T, strict=True)]
        return MeanInteractions(dict(zip(pairs, grids, strict=True)), places, self._grids)

    def _quantiles(self, count: int) -> Floats:
        """Return at least ``count`` quantiles of all units (B, D), as many for each draw."""
        count = -(-count // self.n_functions) * self.n_functions
        quantiles = np.quantile(self.values, (np.arange(count) + 0.5) / count, axis=0)
        # The same in all rows still, so that q keeps its form.
        quantiles[:, self._whole] = np.rint(quantiles[:, self._whole])
        return np.asarray(quantiles)

    @cached_property
    def _many_quantiles(self) -> Floats:
        """Quantiles (B, D) of which lattices are made."""
        return self._quantiles(BACKGROUND_VALUES_IF_INDEPENDENT)

    def _outputs(self) -> Floats:
        """Return the tested number (n,) of each row in the current function."""
        return np.concatenate([self._call(rows, None) for rows in self._points.split(self._rows_per_call)])

    def _own_background_rows(self, function: int) -> list[tuple[Rows, Floats]]:
        """Return the background rows of one function, with the values of their units."""
        own, seen = [], 0
        for rows, values in self._background_rows:
            part = range((function - seen) % self.n_functions, len(rows), self.n_functions)
            if part:
                own.append((rows.take(part), values[part]))
            seen += len(rows)
        return own

    def _at_background(self, units: tuple[int, ...], background: Floats, factors: Floats) -> Floats:
        """Return means (1 + k, n) of outputs with ``units`` set to their values in each row of ``background`` (B, D).

        The first is that of the outputs, the others are those of the outputs times ``factors`` (k, B).
        """
        weights = np.concatenate([np.ones((1, len(background))), factors]) / len(background)
        repeats = len(background)
        means = []
        for rows in self._points.split(max(1, self._rows_per_call // repeats)):
            values = self.values[rows.start : rows.start + len(rows)]
            shifts = np.zeros((repeats, len(rows), values.shape[1]))
            for unit in units:
                shifts[:, :, unit] = background[:, None, unit] - values[:, unit]
            outputs = self._call(rows.repeat(repeats), shifts.reshape(-1, values.shape[1]))
            means.append(weights @ outputs.reshape(repeats, -1))
        return np.concatenate(means, axis=1)

    def _on_grid(self, units: tuple[int, ...], background: list[tuple[Rows, Floats]]) -> Floats:
        """Return the mean output over ``background`` rows at each combination of the units' grid values."""
        grids = [self._grids[unit] for unit in units]
        shape = tuple(len(grid) for grid in grids)
        places = np.stack([axis.ravel() for axis in np.meshgrid(*grids, indexing="ij")]) if units else np.zeros((0, 1))
        sums = np.zeros(places.shape[1])
        for rows, values in background:
            per_call = max(1, self._rows_per_call // len(rows))
            for start in range(0, len(sums), per_call):
                part = places[:, start : start + per_call]
                shifts = np.zeros((part.shape[1], *values.shape))
                for unit, place in zip(units, part, strict=True):
                    shifts[:, :, unit] = place[:, None] - values[:, unit]
                outputs = self._call(rows.repeat(part.shape[1]), shifts.reshape(-1, values.shape[1]))
                sums[start : start + per_call] += outputs.reshape(part.shape[1], -1).sum(axis=1)
        return np.asarray(sums / sum(len(rows) for rows, _ in background)).reshape(shape)

    @torch.no_grad()
    def _call(self, rows: Rows, shifts: Floats | None) -> Floats:
        """Return the tested number of each row, with the units shifted by ``shifts`` (n, D)."""
        t = None if shifts is None else torch.as_tensor(shifts, dtype=self._cut.dtype, device=self._cut.device)
        outputs = self._read(self._cut.all_outputs(rows, t)).double().cpu().numpy()
        if not np.isfinite(outputs).all():
            raise GEHRuntimeError(
                "evidence: the model's output is NaN or infinite at a held-out row, or where a unit takes another "
                "row's value; check model(X_held), and leave such rows out."
            )
        return np.asarray(outputs)

    def _mean_over_functions(self, evaluate: Callable[[int], list[Floats]]) -> list[Floats]:
        """Return the mean of the arrays of ``evaluate(number)`` over draws, or their values for the network itself."""
        total: list[Floats] = []
        count = 0
        with self._functions() as functions:
            for _ in functions:
                arrays = evaluate(count % self.n_functions)
                total = [sums + array for sums, array in zip(total, arrays, strict=True)] if total else arrays
                count += 1
        if not count:
            raise GEHValueError(f"posterior={self._posterior!r} gave no draws.")
        return [sums / count for sums in total]

    @safe_contextmanager
    def _functions(self) -> Iterator[Iterator[int]]:
        """Enter the functions whose mean is tested, one after the other."""
        model = self._cut.model
        if isinstance(self._posterior, (MCDropout, PointEstimate)):
            with fixed(self._posterior, model, self._seed):
                yield iter(range(1))
        else:
            first, count = self._points.first[:1], self.n_functions
            with enter_draws(self._posterior, model, count, self._seed, lambda: self._cut.all_outputs(first)) as draws:
                yield draws


def _standardised(count: int) -> Floats:
    """Return the numbers (count,) from 0 on with mean 0 and variance 1."""
    numbers = np.arange(count) - (count - 1) / 2
    return np.asarray(numbers / max(float(numbers.std()), 1e-300))


def lattice_order(count: int) -> Ints:
    """Return an order (count,) of numbers from 0 which, with 0, 1, 2, ..., makes points that fill a square evenly.

    It is a lattice of Fibonacci for 8, 13, 21, 34, ... points, moved by half of them, so that means of products of two
    coordinates are close to the products of their means.

    >>> lattice_order(8)
    array([4, 1, 6, 3, 0, 5, 2, 7])
    """
    step = next(step for step in range(round(count * _GOLDEN), count + 2) if math.gcd(step, count) == 1)
    return np.asarray((np.arange(count) * step + count // 2) % count)


def _rows_per_call(cut: Cut, points: Points) -> int:
    """Return the rows of one call of the model: fewer where a row has many numbers, as feature maps have."""
    inputs = sum(x[:1].numel() for x in points.first.inputs)
    return max(1, min(_ROWS_PER_CALL, _NUMBERS_PER_CALL // max(1, inputs, math.prod(cut.shape))))


def _take(rows: Rows, chosen: Ints) -> Rows:
    """Return those of ``rows`` whose indices among all points are ``chosen``."""
    return rows.take([index - rows.start for index in chosen.tolist() if 0 <= index - rows.start < len(rows)])


@torch.no_grad()
def unit_values_of(cut: Cut, rows: Rows) -> Floats:
    """Return the values (n, D) of the units in some rows."""
    return np.asarray(cut.units.values(cut.activations(rows)).double().cpu().numpy())


def unit_values(cut: Cut, points: Points, batch_size: int | None) -> Floats:
    """Return the values (n, D) of the units in all rows."""
    return np.concatenate([unit_values_of(cut, rows) for rows in points.split(batch_size)])


@dataclass(frozen=True)
class MeanInteractions:
    """Mean interactions of pairs on grids, and the places of all held-out rows on the grid of each unit.

    Examples
    --------
    >>> import numpy as np
    >>> places = [_position(np.arange(2.0), np.array([0.5, 9.0])) for _ in range(2)]
    >>> MeanInteractions({(0, 1): np.array([[0.0, 1.0], [2.0, 3.0]])}, places).at_rows((0, 1))
    array([1.5, 3. ])
    """

    grids: Mapping[Pair, Floats]
    places: Sequence[tuple[Ints, Floats]]
    axes: Sequence[Floats] = ()

    def at_rows(self, pair: Pair) -> Floats:
        """Return bilinear interpolations (n,) at the rows; values outside of the grid take those at its edge."""
        return _interpolate(self.grids[pair], *(self.places[unit] for unit in pair))

    def at_values(self, pair: Pair, first: Floats, second: Floats) -> Floats:
        """Return the same at other values of both units, arrays of one shape."""
        places = (_position(self.axes[unit], values) for unit, values in zip(pair, (first, second), strict=True))
        return _interpolate(self.grids[pair], *places)

    def beside(self, pair: Pair, rounding: float) -> list[Floats]:
        """Return the interactions (n,) of one unit of a pair with other units, those that exceed rounding errors."""
        shared = [other for other in self.grids if len(set(other) & set(pair)) == 1]
        return [self.at_rows(other) for other in shared if np.abs(self.grids[other]).max() > rounding]


def _interpolate(grid: Floats, first: tuple[Ints, Floats], second: tuple[Ints, Floats]) -> Floats:
    """Return bilinear interpolations of a function on a grid at places from :func:`_position`."""
    (low_i, share_i), (low_j, share_j) = first, second
    high_i, high_j = (np.minimum(low + 1, size - 1) for low, size in zip((low_i, low_j), grid.shape, strict=True))
    return np.asarray(
        (1 - share_i) * ((1 - share_j) * grid[low_i, low_j] + share_j * grid[low_i, high_j])
        + share_i * ((1 - share_j) * grid[high_i, low_j] + share_j * grid[high_i, high_j])
    )


def _centred(grid: Floats) -> Floats:
    """Return a function on a grid minus its means over rows and over columns."""
    return np.asarray(grid - grid.mean(axis=0) - grid.mean(axis=1, keepdims=True) + grid.mean())


def _position(places: Floats, values: Floats) -> tuple[Ints, Floats]:
    """Return the index (n,) of the grid value below each value, and the share of the way to the next one."""
    low = np.clip(np.searchsorted(places, values, side="right") - 1, 0, max(0, len(places) - 2))
    width = np.diff(places, append=np.inf)[low]
    return low, np.clip((values - places[low]) / width, 0, 1)


def _grid(values: Floats, whole: bool) -> Floats:
    """Return the grid values of a unit: its distinct values if these are few, else quantiles, whole ones if asked."""
    distinct = np.unique(values)
    if len(distinct) <= 2 * _GRID:
        return distinct
    quantiles = np.quantile(values, np.linspace(*_GRID_ENDS, _GRID))
    return np.asarray(np.unique(np.rint(quantiles) if whole else quantiles))
