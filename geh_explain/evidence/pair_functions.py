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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geh_explain._process import safe_contextmanager
from geh_explain._types import Floats, Ints
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHRuntimeError, GEHValueError
from geh_explain.model.cut import Cut
from geh_explain.posterior import MCDropout, PointEstimate, Posterior
from geh_explain.posterior.protocols import enter_draws, fixed

#: Number of background values of each unit, at least one for each draw.
_BACKGROUND_VALUES = 8
#: Number of background rows for the mean interaction.
_BACKGROUND_ROWS = 32
#: Number of values of a unit on the grid; units with at most twice as many distinct values take these.
_GRID = 10
#: Quantiles between which the grid lies.
_GRID_ENDS = (0.01, 0.99)
#: Draws whose mean is tested, where the posterior has no network without draws.
_DRAWS = 10
#: Rows of one call of the model where the user does not choose.
_ROWS_PER_CALL = 8192

Pair = tuple[int, int]


@dataclass(frozen=True)
class PairFunctions:
    """Outputs (n,) of the network at n held-out rows, and the functions ``local`` G, ``mean`` h (n, C) of C pairs."""

    outputs: Floats
    local: Floats
    mean: Floats


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
        self._rows_per_call = batch_size or _ROWS_PER_CALL
        self._seed = seed
        self.values = unit_values(cut, points, batch_size)
        count = -(-_BACKGROUND_VALUES // self.n_functions) * self.n_functions
        places = (np.arange(count) + 0.5) / count
        # A Latin hypercube: every unit takes all of its quantiles, in an order of its own.
        quantiles = np.quantile(self.values, places, axis=0)
        self._background = np.random.default_rng(seed).permuted(quantiles, axis=0)
        self._grids = [_grid(column) for column in self.values.T]
        step = -(-len(points) // _BACKGROUND_ROWS)
        # Batch by batch, so that a streamed loader is read once.
        sampled = [rows[-rows.start % step :: step] for rows in points.batches()]
        self._background_rows = [(rows, unit_values_of(cut, rows)) for rows in sampled if len(rows)]

    @property
    def rounding(self) -> float:
        """Relative rounding error of differences of outputs."""
        return 100 * torch.finfo(self._cut.dtype).eps

    @property
    def n_functions(self) -> int:
        """Number of functions whose mean is tested: 1, or the number of draws at most."""
        if isinstance(self._posterior, (MCDropout, PointEstimate)):
            return 1
        return min(_DRAWS, self._posterior.__len__() if hasattr(self._posterior, "__len__") else _DRAWS)

    def outputs(self) -> Floats:
        """Return the tested number (n,) of each row."""
        return self._mean_over_functions(lambda _: [self._outputs()])[0]

    def pairs(self, pairs: Sequence[Pair], advance: Callable[[int], object]) -> PairFunctions:
        """Return the functions of some pairs; ``advance`` is called with the number of pairs done in each draw."""
        outputs, local, *grids = self._mean_over_functions(lambda function: self._evaluate(function, pairs, advance))
        mean = [
            interpolate(grid, self._grids[i], self._grids[j], self.values[:, [i, j]])
            for (i, j), grid in zip(pairs, grids, strict=True)
        ]
        return PairFunctions(outputs, local, np.stack(mean, axis=1))

    def _evaluate(self, function: int, pairs: Sequence[Pair], advance: Callable[[int], object]) -> list[Floats]:
        """Return outputs (n,), local interactions (n, C) and the mean interaction of each pair on its grid.

        ``function`` is the number of the current draw, which decides on its background values and rows.
        """
        units = sorted({unit for pair in pairs for unit in pair})
        own = function % self.n_functions
        values, rows = self._background[own :: self.n_functions], self._own_background_rows(own)
        background = {unit: self._at_background((unit,), values) for unit in units}
        on_grid = {unit: self._on_grid((unit,), rows) for unit in units}
        outputs, centre = self._outputs(), self._on_grid((), rows)
        local = np.empty((len(outputs), len(pairs)))
        grids = []
        for column, (i, j) in enumerate(pairs):
            local[:, column] = outputs - background[i] - background[j] + self._at_background((i, j), values)
            grids.append(self._on_grid((i, j), rows) - on_grid[i][:, None] - on_grid[j] + centre)
            advance(1)
        return [outputs, local, *grids]

    def _outputs(self) -> Floats:
        """Return the tested number (n,) of each row in the current function."""
        return np.concatenate([self._call(rows, None) for rows in self._points.split(self._rows_per_call)])

    def _own_background_rows(self, function: int) -> list[tuple[Rows, Floats]]:
        """Return the background rows of one function, with the values of their units."""
        own, seen = [], 0
        for rows, values in self._background_rows:
            part = slice((function - seen) % self.n_functions, None, self.n_functions)
            if len(values[part]):
                own.append((rows[part], values[part]))
            seen += len(rows)
        return own

    def _at_background(self, units: tuple[int, ...], background: Floats) -> Floats:
        """Return the mean outputs (n,) with ``units`` set to their values in each row of ``background`` (B, D)."""
        repeats = len(background)
        means = []
        for rows in self._points.split(max(1, self._rows_per_call // repeats)):
            values = self.values[rows.start : rows.start + len(rows)]
            shifts = np.zeros((repeats, len(rows), values.shape[1]))
            for unit in units:
                shifts[:, :, unit] = background[:, None, unit] - values[:, unit]
            outputs = self._call(rows.repeat(repeats), shifts.reshape(-1, values.shape[1]))
            means.append(outputs.reshape(repeats, -1).mean(axis=0))
        return np.concatenate(means)

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
                arrays = evaluate(count)
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
            first = self._points.first[:1]
            with enter_draws(self._posterior, model, _DRAWS, self._seed, lambda: self._cut.all_outputs(first)) as draws:
                yield draws


@torch.no_grad()
def unit_values_of(cut: Cut, rows: Rows) -> Floats:
    """Return the values (n, D) of the units in some rows."""
    return np.asarray(cut.units.values(cut.activations(rows)).double().cpu().numpy())


def unit_values(cut: Cut, points: Points, batch_size: int | None) -> Floats:
    """Return the values (n, D) of the units in all rows."""
    return np.concatenate([unit_values_of(cut, rows) for rows in points.split(batch_size)])


def interpolate(grid: Floats, first: Floats, second: Floats, values: Floats) -> Floats:
    """Return bilinear interpolations (n,) of a function on a grid; values outside of the grid take those at its edge.

    Parameters
    ----------
    grid
        Function (G, H) on the grid.
    first, second
        Grid values (G,) and (H,), both increasing.
    values
        Where to interpolate (n, 2).

    Examples
    --------
    >>> import numpy as np
    >>> interpolate(np.array([[0.0, 1.0], [2.0, 3.0]]), np.arange(2.0), np.arange(2.0), np.array([[0.5, 0.5], [9, 9]]))
    array([1.5, 3. ])
    """
    (low_i, share_i), (low_j, share_j) = (
        _position(places, column) for places, column in zip((first, second), values.T, strict=True)
    )
    high_i, high_j = (np.minimum(low + 1, len(g) - 1) for low, g in ((low_i, first), (low_j, second)))
    return np.asarray(
        (1 - share_i) * ((1 - share_j) * grid[low_i, low_j] + share_j * grid[low_i, high_j])
        + share_i * ((1 - share_j) * grid[high_i, low_j] + share_j * grid[high_i, high_j])
    )


def _position(places: Floats, values: Floats) -> tuple[Ints, Floats]:
    """Return the index (n,) of the grid value below each value, and the share of the way to the next one."""
    low = np.clip(np.searchsorted(places, values, side="right") - 1, 0, max(0, len(places) - 2))
    width = np.diff(places, append=np.inf)[low]
    return low, np.clip((values - places[low]) / width, 0, 1)


def _grid(values: Floats) -> Floats:
    """Return the grid values of a unit: its distinct values if these are few, else quantiles."""
    distinct = np.unique(values)
    if len(distinct) <= 2 * _GRID:
        return distinct
    return np.asarray(np.unique(np.quantile(values, np.linspace(*_GRID_ENDS, _GRID))))
