"""What the share of interactions is measured with: blocks of rows, and evaluations of the network in each draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from geh_explain._process import safe_contextmanager
from geh_explain._types import Floats, Ints
from geh_explain.analyses.category_codes import CategoryCodes
from geh_explain.data.case_weights import CaseWeights
from geh_explain.data.points import InMemoryPoints, Points
from geh_explain.data.rows import Rows
from geh_explain.data.sampling import sample_rows
from geh_explain.errors import GEHRuntimeError, GEHValueError, warn
from geh_explain.groups.clusters import unite_clusters
from geh_explain.model.cut import Cut
from geh_explain.model.kept_points import keep_below, output_of_row
from geh_explain.posterior import Posterior
from geh_explain.posterior.protocols import enter_draws, fixed, keeps_below
from geh_explain.run.options import AnalysisOptions
from geh_explain.statistics.variance_shares import PickFreezeOutputs, PickFreezePoints, choose_block_count
from geh_explain.units.categorical import Categorical

#: Rows whose values are used, at most and at least, and bytes that they may take.
_MAX_ROWS = 10_000
_MIN_ROWS = 20
_MAX_BYTES = 2**29
#: Rows of one call of the model where the user does not choose, and numbers in these rows, at most.
_ROWS_PER_CALL = 8192
_NUMBERS_PER_CALL = 2**25
#: Numbers of a row, and parameters of a network, that are small: evaluating a row costs 1.
_SMALL_ROW = 1000
_SMALL_NETWORK = 100_000
#: Variances up to the square of this many rounding errors of the outputs are those of a constant.
_ROUNDING = 16


@dataclass(frozen=True)
class ShareRequest:
    """What is measured.

    Attributes
    ----------
    names
        Names of the units (D).
    pairs
        Units (P, 2) of the pairs.
    precision
        Half the width of the interval over rows at which no further points are evaluated.
    evaluations
        At most so many rows are evaluated, in all draws together, once there is a first estimate. None for two million,
        fewer for large networks.
    """

    names: list[str]
    pairs: Ints
    precision: float
    evaluations: int | None


class ShareDesign:
    """Rows of the data in blocks, and the network that is evaluated at combinations of their values.

    Parameters
    ----------
    cut, points, posterior
        The network, all rows, and where draws come from.
    clusters
        Cluster (N,) of each point, which are not divided between blocks; None for independent points.
    case_weights
        Weights of the points. Those of weight 0 are left out.
    options
        Number of draws, batch size, seed and progress bar.

    Attributes
    ----------
    rows
        The rows that are used, all of them or a random part.
    weights
        Case weights (n,) of these rows; None where they count alike.
    categories
        The categories among the units, which come first. They take the levels of other rows as a whole.
    blocks
        Indices of the rows of each block.
    """

    def __init__(
        self,
        cut: Cut,
        points: Points,
        posterior: Posterior,
        clusters: Ints | None,
        case_weights: CaseWeights,
        options: AnalysisOptions,
    ) -> None:
        clusters = None if clusters is None else np.asarray(case_weights.select(clusters))
        points = case_weights.points(points)
        _check_row_count(len(points), case_weights)
        self.cut = cut
        self.options = options
        self.generator = np.random.default_rng(options.seed)
        self._posterior = posterior
        count = min(len(points), _MAX_ROWS, max(_MIN_ROWS, _MAX_BYTES // _row_bytes(points.first)))
        chosen = np.sort(self.generator.permutation(len(points))[:count])
        kept: Points = InMemoryPoints(sample_rows(points, chosen))
        if keeps_below(posterior):
            with fixed(posterior, cut.model, options.seed):
                kept = keep_below(cut, kept, options.batch_size)
        self.rows = next(iter(kept.batches()))
        self.weights = None if case_weights.values is None else case_weights.values[chosen]
        self.categories = CategoryCodes(cut.units, self.rows)
        self._below = cut.below
        self.blocks = self._make_blocks(None if clusters is None else clusters[chosen])

    @property
    def n_units(self) -> int:
        """Number of units D. What rows hold beside them is factor number D."""
        return self.cut.n_units

    @property
    def units_hold_rows(self) -> bool:
        """Whether the units are all numbers of a row, so that an output is a function of their values."""
        units = self.cut.units
        held = (
            len(units.category_columns) + len(units.single_columns) if isinstance(units, Categorical) else self.n_units
        )
        return held == math.prod(self.cut.shape) and not any(self.rows.forward_args.per_row)

    @property
    def block_labels(self) -> Ints:
        """Block (n,) of each row; -1 for rows that are in none."""
        labels = np.full(len(self.rows), -1)
        for number, block in enumerate(self.blocks):
            labels[block] = number
        return labels

    def _make_blocks(self, clusters: Ints | None) -> list[Ints]:
        """Divide the rows into blocks at random, or whole clusters into blocks of about equal size."""
        weights = self.weights
        effective = len(self.rows) if weights is None else int(weights.sum() ** 2 / (weights**2).sum())
        count = choose_block_count(effective, self.n_units + 1)
        if clusters is None:
            return [np.asarray(block) for block in np.array_split(self.generator.permutation(len(self.rows)), count)]
        numbers = np.unique(clusters, return_inverse=True)[1].reshape(-1)
        united = unite_clusters(numbers, count)
        blocks = [np.flatnonzero(united == number) for number in np.unique(united)]
        blocks = [block for block in blocks if len(block) > 1]
        if len(blocks) < 2:
            raise GEHValueError("clusters: rows of at least two clusters are needed, with two rows or more each.")
        return blocks

    @property
    def block_weights(self) -> Floats:
        """How much each block (G,) counts: the sum of the weights of its rows, or their number."""
        return np.array([len(block) if self.weights is None else self.weights[block].sum() for block in self.blocks])

    @safe_contextmanager
    def draws(self, bar: Any) -> Iterator[Iterator[int]]:
        """Enter the draws of the posterior one after the other; the value iterates over their numbers."""
        options, first = self.options, self.rows[:1]
        forward = partial(output_of_row, self.cut, first, self._below)
        with bar, enter_draws(self._posterior, self.cut.model, options.draws, options.seed, forward) as numbers:
            yield numbers

    def bar(self, total: int | None) -> Any:
        """Return a progress bar over evaluated rows."""
        progress = self.options.progress
        return tqdm(total=total, desc="share", unit="row", unit_scale=True, disable=not progress, leave=False)

    @property
    def row_cost(self) -> float:
        """Approximate cost of evaluating one row, at least 1 and that of a small network for tables.

        It follows from sizes alone, so that it is the same on all machines.
        """
        parameters = sum(parameter.numel() for parameter in self.cut.model.parameters())
        return max(1.0, self._row_numbers / _SMALL_ROW, parameters / _SMALL_NETWORK)

    @property
    def _row_numbers(self) -> int:
        """Numbers of a row, in its inputs or in the output of the layer."""
        return max(sum(x[0].numel() for x in self.rows.inputs), math.prod(self.cut.shape), 1)

    @property
    def _rows_per_call(self) -> int:
        """Rows of one call of the model: fewer where a row has many numbers."""
        return self.options.batch_size or max(1, min(_ROWS_PER_CALL, _NUMBERS_PER_CALL // self._row_numbers))

    @torch.no_grad()
    def values(self) -> Tensor:
        """Return the values (n, D) of the units in the current draw; those of categories are codes of levels."""
        parts = self.rows.split(self._rows_per_call)
        values = torch.cat([self.cut.units.values(self.cut.activations(part)) for part in parts])
        if len(self.categories):
            # In double precision, which holds all codes.
            values = values.double()
            values[:, : len(self.categories)] = torch.as_tensor(self.categories.codes).to(values)
        return values

    @torch.no_grad()
    def row_outputs(self) -> Floats:
        """Return the outputs (n,) of the rows as they are, in the current draw."""
        return np.concatenate([_numbers(self.cut.outputs(part)) for part in self.rows.split(self._rows_per_call)])

    @torch.no_grad()
    def exchanged_outputs(
        self, values: Tensor, points: PickFreezePoints, pairs: Ints, advance: Callable[[int], object]
    ) -> PickFreezeOutputs:
        """Return the outputs at all points of a pick-freeze design in the current draw.

        A point has a base row, which is the value of the last factor, and its units are shifted to the values that
        they have in other rows: t = other - own. Categories are set to the levels of other rows.

        Parameters
        ----------
        values
            Values (n, D) of the units in all rows.
        points
            Rows of the D + 1 factors of each point.
        pairs
            Units (P, 2) of pairs that are exchanged together.
        advance
            Called with the number of evaluated rows.
        """
        n_units = self.n_units
        exchanged: list[list[int]] = [[], *([factor] for factor in range(n_units + 1)), *pairs.tolist()]
        outputs = np.empty((2, len(exchanged), len(points.blocks)))
        for start in range(0, len(points.blocks), self._rows_per_call):
            part = slice(start, start + self._rows_per_call)
            sides = [self._side(values, rows[part]) for rows in (points.first, points.second)]
            for number, factors in enumerate(exchanged):
                for side, (own, other) in enumerate((sides, sides[::-1])):
                    outputs[side, number, part] = self._moved(own, other, factors)
                    advance(len(own.units))
        return PickFreezeOutputs(outputs[0], outputs[1], pairs, n_units + 1)

    def _side(self, values: Tensor, factors: Ints) -> _Side:
        """Return the points whose factors come from the rows ``factors`` (m, D + 1)."""
        index = torch.as_tensor(factors, device=values.device)
        units = values[index[:, :-1], torch.arange(values.shape[1], device=values.device)]
        return _Side(self.rows.take(factors[:, -1].tolist()), values[index[:, -1]], units)

    def _moved(self, own: _Side, other: _Side, factors: list[int]) -> Floats:
        """Return the outputs (m,) of points with the given factors taken from the other points."""
        base = other if self.n_units in factors else own
        units = own.units
        exchanged = [factor for factor in factors if factor < self.n_units]
        if exchanged:
            units = units.clone()
            units[:, exchanged] = other.units[:, exchanged]
        rows = base.rows
        if len(self.categories):
            rows = self.categories.set(rows, units[:, : len(self.categories)].long().cpu().numpy())
        try:
            return _numbers(self.cut.outputs(rows, (units - base.values).to(self.cut.dtype)))
        except GEHRuntimeError as error:
            raise GEHRuntimeError(
                "background='permuted': the network fails at a combination of values that come from different rows "
                f"({error}). background='conditional' evaluates it at the rows as they are."
            ) from error


@dataclass(frozen=True)
class _Side:
    """Points: their base rows, the values (m, D) of the units in these, and those that the units are moved to."""

    rows: Rows
    values: Tensor
    units: Tensor


def _check_row_count(n_rows: int, case_weights: CaseWeights) -> None:
    """Raise if there are too few rows for a variance, or if few of them carry most of the weight."""
    if n_rows < _MIN_ROWS:
        counted = "" if case_weights.kept is None else " of weight above 0"
        raise GEHValueError(
            f"inputs: there are {n_rows} rows{counted}; a share of variance needs at least {_MIN_ROWS}, and some "
            "hundreds to be of use."
        )
    if case_weights.values is not None and (effective := case_weights.effective or 0) < _MIN_ROWS:
        raise GEHValueError(
            f"sample_weight: {n_rows} rows with these weights tell as much as {effective:.1f} rows of equal weight; a "
            f"share of variance needs at least {_MIN_ROWS}. Give more rows, or limit the largest weights."
        )


def is_constant(variance: float, largest: float, dtype: torch.dtype) -> bool:
    """Return whether outputs of this variance and largest absolute value are equal up to rounding.

    >>> is_constant(1e-10, 100.0, torch.float32), is_constant(1e-6, 1.0, torch.float32)
    (True, False)
    """
    return variance <= (_ROUNDING * torch.finfo(dtype).eps * largest) ** 2


def leave_out_constant(constant: list[bool]) -> list[int]:
    """Return the numbers of the draws whose outputs vary, all of them if none does, and warn about the others."""
    varying = [number for number, is_same in enumerate(constant) if not is_same]
    if len(varying) == len(constant):
        return varying
    if not varying:
        warn(
            "share: the output of the network does not vary over these rows, beyond rounding, so that its variance has "
            "no shares; they are NaN. Check inputs= and target=, or explain in double precision."
        )
        return list(range(len(constant)))
    warn(f"share: the output is constant in {len(constant) - len(varying)} of {len(constant)} draws; left out.")
    return varying


def _numbers(outputs: Tensor) -> Floats:
    return np.asarray(outputs.double().cpu().numpy())


def _row_bytes(rows: Rows) -> int:
    """Return the bytes of one row."""
    return max(1, sum(x[0].nbytes for x in rows.inputs))
