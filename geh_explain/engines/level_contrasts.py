"""Differences between the levels of categories, summed by group: the part of a run that no engine differentiates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Ints
from geh_explain.data.rows import Rows
from geh_explain.engines.base import Engine, EngineRun, Limits, check_finite
from geh_explain.engines.difference import DifferenceRun, divide_by_steps, outputs_after_moves
from geh_explain.engines.stein.engine import SteinRun
from geh_explain.engines.structured.engine import StructuredRun
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHRuntimeError, GEHTypeError
from geh_explain.model.cut import Cut
from geh_explain.model.view import View
from geh_explain.units.categorical import Categorical
from geh_explain.units.category_columns import ObservedCategory, set_levels
from geh_explain.units.contrasts import Contrasts

#: Rows of a chunk, and of one call of the model, at most.
_MAX_ROWS = 1024
_CALL_ROWS = 8192
#: Differences below this many eps of the values are rounding.
_ROUNDING = 4


class NoNumericUnits(Engine):
    """The engine of a run all of whose units are categories: there is nothing to differentiate."""

    name = "levels"
    differentiates = False

    def start(self, cut: Cut, limits: Limits) -> EngineRun:
        """Return the object of one run."""
        return _NoNumericRun(self, cut, limits)


class _NoNumericRun(EngineRun):
    """A run of :class:`NoNumericUnits`, which adds nothing."""

    takes_pairs = True

    def chunk_rows(self, rows: Rows) -> int:
        """Return ``batch_size``, or a number of rows."""
        return self.limits.batch_size or _MAX_ROWS

    def calls_and_rows(self, n_rows: int) -> tuple[int, int]:
        """Return 2, one of which is the check of a few rows, and the number of rows."""
        return 2, n_rows

    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Count the points; check that the outputs do not depend on the batch."""
        t = self.cut.zeros(rows)
        with torch.no_grad():
            self.check_outputs(rows, t, self.cut.outputs(rows, t))
        members = sums.one_hot(labels, self.cut.device)
        sums.add_slopes(t, members)
        sums.visit(members)


class LevelContrasts:
    """Sums of the contrasts of one run, beside those of pairs of numeric units, which an engine computes.

    For a category c all rows are set to each of its L levels in turn, which gives the outputs f(x; c <- a) and the
    derivatives df/du (x; c <- a) in all numeric units u; for two categories all rows are set to each of the L L' pairs
    of levels. Contrasts are differences of these, see :class:`~geh_explain.units.Categorical`.

    Derivatives are those of the network itself: smooth forms of kinked functions serve second derivatives only. If the
    engine is that of mixed differences, derivatives are its quotients of differences.

    Parameters
    ----------
    engine
        The engine of the run, for pairs of numeric units.
    units
        The units, with the levels that occur.
    contrasts
        The contrasts to compute.

    Attributes
    ----------
    units, contrasts
        As passed.
    """

    def __init__(self, engine: EngineRun, units: Categorical, contrasts: Contrasts) -> None:
        self.units = units
        self.contrasts = contrasts
        self.categories = units.observed
        self._engine = engine
        self._cut = engine.cut
        #: Rounding of the outputs, relative to their size.
        self._eps = 0.0
        has_numeric = engine.cut.n_units > len(self.categories)
        has_slopes = engine.engine.differentiates or isinstance(engine, (DifferenceRun, SteinRun))
        if has_numeric and not has_slopes:
            raise GEHTypeError(
                f"engine={engine.engine!r} takes no derivatives, and units=Categorical(...) needs those of numeric "
                "units; use engine='auto' or engine='difference'."
            )
        #: Numeric units that have a contrast with each category, with the index of the first one, and pairs of
        #: categories with theirs.
        self._numeric: list[list[tuple[int, int]]] = [[] for _ in self.categories]
        self._pairs: list[tuple[int, int, int]] = []
        first, second = contrasts.pairs.ends
        for pair, start in zip(contrasts.category_pairs.tolist(), contrasts.starts.tolist(), strict=True):
            i, j = int(first[pair]), int(second[pair])
            if j < len(self.categories):
                self._pairs.append((i, j, start))
            else:
                self._numeric[i].append((j, start))

    def add(self, sums: GroupSums, rows: Rows, labels: Ints, shared: SharedOutputs | None = None) -> None:
        """Add the contrasts of a chunk of rows to ``sums``.

        Parameters
        ----------
        sums
            Sums of the current draw, with one column per contrast, changed in place.
        rows
            At most :meth:`chunk_rows` rows.
        labels
            Groups (N,) of all points.
        shared
            Outputs of these rows at other levels, which several targets share.
        """
        sums.weights = rows.weights
        members = sums.one_hot(labels[rows.start : rows.start + len(rows)], self._cut.device)
        outputs = []
        with self._cut.viewed(View()), _explain_nan():
            for category, numeric in zip(self.categories, self._numeric, strict=True):
                values, slopes = self._at_levels(rows, category, [unit for unit, _ in numeric], shared)
                outputs.append(values.T)
                low, high = category.levels.ends
                if numeric:
                    # Contrasts of one category with numeric units are next to each other: (n, units, pairs of levels).
                    difference = self._without_rounding(slopes[high] - slopes[low], slopes)
                    sums.add(numeric[0][1], difference.permute(1, 2, 0).flatten(1), members)
            for i, j, start in self._pairs:
                sums.add(start, self._mixed(rows, self.categories[i], self.categories[j], shared), members)
        sums.add_slopes(torch.cat(outputs, dim=1), members)
        check_finite(sums.absolute, rows)

    def calls_and_rows(self, rows: Rows, n_points: int) -> tuple[int, int]:
        """Return the calls of the model for ``n_points`` points, and the rows of all of these calls.

        ``rows`` are a few points. Slopes are differences of outputs.
        """
        size = min(n_points, self.chunk_rows(rows))
        whole, rest = divmod(n_points, size)
        of_whole, of_rest = (self._calls_of_chunk(n) if n else (0, 0) for n in (size, rest))
        return whole * of_whole[0] + of_rest[0], whole * of_whole[1] + of_rest[1]

    def _calls_of_chunk(self, n_rows: int) -> tuple[int, int]:
        """Return the calls of the model for a chunk of ``n_rows`` rows, and the rows of these calls."""
        batch_size = self._engine.limits.batch_size
        at_once = max(1, (batch_size or _CALL_ROWS) // n_rows)
        calls = n_levels = 0
        for category, numeric in zip(self.categories, self._numeric, strict=True):
            n_levels += len(category) * (1 + len(numeric))
            for start in range(0, len(category), at_once):
                levels = min(at_once, len(category) - start)
                moves = 1 if batch_size is not None else max(1, _CALL_ROWS // (levels * n_rows))
                calls += 1 + -(-len(numeric) // moves)
        for i, j, _ in self._pairs:
            both = len(self.categories[i]) * len(self.categories[j])
            n_levels += both
            calls += -(-both // at_once)
        return calls, n_levels * n_rows

    @property
    def max_bytes(self) -> int:
        """Bytes that a chunk of rows may take."""
        return self._engine.chunk_bytes

    def by_target(self) -> list[tuple[LevelContrasts, Any]]:
        """Return the contrasts of each target, with the target; None is that of the rows."""
        return [(self, None)]

    def chunk_rows(self, rows: Rows) -> int:
        """Return the number of rows whose contrasts fit into memory."""
        sizes = [len(category.levels.weights) for category in self.categories]
        of_numbers = [size * len(numeric) for size, numeric in zip(sizes, self._numeric, strict=True)]
        widest = max(*of_numbers, *(sizes[i] * sizes[j] for i, j, _ in self._pairs), self._cut.n_units)
        return max(1, min(_MAX_ROWS, self._call_rows(rows), self._engine.chunk_bytes // (64 * widest)))

    def _call_rows(self, rows: Rows) -> int:
        """Return the number of rows of one call of the model, at most."""
        if self._engine.limits.batch_size is not None:
            return self._engine.limits.batch_size
        if isinstance(self._engine, (DifferenceRun, _NoNumericRun)):
            return _CALL_ROWS
        # The structured engine limits rows by its directions; the exact one by the memory of autograd's graph.
        engine = self._engine.exact if isinstance(self._engine, StructuredRun) else self._engine
        return min(_CALL_ROWS, engine.chunk_rows(rows))

    def _levels_per_call(self, rows: Rows) -> int:
        """Return how many copies of ``rows`` go through the model at once."""
        return max(1, self._call_rows(rows) // len(rows))

    def _at_levels(
        self, rows: Rows, category: ObservedCategory, units: list[int], shared: SharedOutputs | None
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs (L, n) and the slopes (L, n, k) of some units with all rows at each level."""
        values, slopes = [], []
        at_once = self._levels_per_call(rows)
        for start in range(0, len(category), at_once):
            levels = np.arange(start, min(start + at_once, len(category)))
            part = category.set_levels(rows, levels)
            if units:
                value, slope = self._slopes(part, rows, units)
                slopes.append(slope.reshape(len(levels), len(rows), -1))
            else:
                value = self._outputs(part, (category.where.name, start), shared)
            values.append(value.reshape(len(levels), len(rows)))
        return torch.cat(values), torch.cat(slopes) if slopes else torch.zeros(0)

    @torch.no_grad()
    def _outputs(self, rows: Rows, key: tuple[Any, ...], shared: SharedOutputs | None) -> Tensor:
        """Return the outputs (n,) in double precision; ``key`` says to which levels the rows of a chunk were set."""
        if shared is None:
            return self._read(self._cut.outputs(rows))
        outputs = shared.get(key, lambda: self._cut.all_outputs(rows))
        return self._read(self._cut.selected(outputs, rows))

    def _read(self, outputs: Tensor) -> Tensor:
        """Return outputs in double precision, and note the precision in which they were computed."""
        self._eps = torch.finfo(outputs.dtype).eps
        return outputs.detach().double()

    def _slopes(self, rows: Rows, original: Rows, units: list[int]) -> tuple[Tensor, Tensor]:
        """Return the outputs (n,) and their slopes (n, k) in some units, both in double precision.

        ``rows`` are copies of the ``original`` ones, with other levels.
        """
        cut = self._cut
        chosen = torch.as_tensor(units, device=cut.device)
        if isinstance(self._engine, DifferenceRun):
            # Steps of numeric units do not depend on the levels of categories.
            steps = self._engine.steps(original).repeat(len(rows) // len(original), 1)
            at_once = None if self._engine.limits.batch_size is None else 1
            with torch.no_grad():
                value = self._read(cut.outputs(rows))
                moved = outputs_after_moves(cut, rows, steps, chosen, chosen, at_once)
            return value, divide_by_steps((moved - value).T, steps[:, chosen].double())
        t = cut.zeros(rows).requires_grad_()
        value = cut.outputs(rows, t)
        gradient = torch.autograd.grad(value.sum(), t, allow_unused=True)[0] if value.requires_grad else None
        slopes = torch.zeros_like(t) if gradient is None else gradient
        return self._read(value), slopes[:, chosen].double()

    def _mixed(
        self, rows: Rows, first: ObservedCategory, second: ObservedCategory, shared: SharedOutputs | None
    ) -> Tensor:
        """Return the contrasts (n, q) of two categories."""
        pairs = np.stack(np.unravel_index(np.arange(len(first) * len(second)), (len(first), len(second))))
        at_once = self._levels_per_call(rows)
        names, found = (first.where.name, second.where.name), []
        for start in range(0, pairs.shape[1], at_once):
            of_first, of_second = pairs[:, start : start + at_once]
            moved = set_levels(rows, [(first, of_first), (second, of_second)])
            found.append(self._outputs(moved, (*names, start), shared).reshape(len(of_first), len(rows)))
        table = torch.cat(found).reshape(len(first), len(second), len(rows))
        (low, high), (left, right) = first.levels.ends, second.levels.ends
        by_first = table[high] - table[low]
        mixed = (by_first[:, right] - by_first[:, left]).flatten(0, 1)
        return self._without_rounding(mixed, table.flatten(0, 1)).T

    def _without_rounding(self, differences: Tensor, values: Tensor) -> Tensor:
        """Return ``differences`` (q, n, ...) of ``values`` (l, n, ...), 0 where they are rounding of these.

        Contrasts may be the same in all rows, so that rounding would look like an effect without any spread.
        """
        largest = values.abs().amax(dim=0)
        return torch.where(differences.abs() <= _ROUNDING * self._eps * largest, 0.0, differences)


class SharedOutputs:
    """All outputs of one chunk of rows at other levels, which the model computes once for several targets.

    At most ``max_bytes`` are kept; what does not fit is computed for each target.
    """

    def __init__(self, max_bytes: int) -> None:
        self._kept: dict[tuple[Any, ...], Tensor] = {}
        self._room = max_bytes

    def get(self, key: tuple[Any, ...], compute: Callable[[], Tensor]) -> Tensor:
        """Return the outputs (n, ...) of this key, which ``compute`` returns where they are not kept."""
        if key in self._kept:
            return self._kept[key]
        outputs = compute()
        size = outputs.numel() * outputs.element_size()
        if size <= self._room:
            self._kept[key] = outputs
            self._room -= size
        return outputs


class LevelContrastsOfTargets:
    """The contrasts of several targets: those of each target take their own columns of the sums.

    Parameters
    ----------
    parts
        The contrasts of the single targets.
    targets
        The targets, as in Captum.
    contrasts
        The contrasts of all targets, those of the first one first; unit i of target c has the number c D + i.

    Attributes
    ----------
    units, contrasts
        The units, and the contrasts of all targets.
    """

    def __init__(self, parts: Sequence[LevelContrasts], targets: Sequence[Any], contrasts: Contrasts) -> None:
        self.units = parts[0].units
        self.contrasts = contrasts
        self._parts = list(zip(parts, targets, strict=True))

    def by_target(self) -> list[tuple[LevelContrasts, Any]]:
        """Return the contrasts of each target, with the target."""
        return self._parts


class LevelSums:
    """The sums of contrasts of one draw, beside ``sums`` of pairs of numeric units; nothing without categories.

    Attributes
    ----------
    share
        Share of the work of a draw that is left to the engine, for the progress bar.
    """

    def __init__(self, levels: LevelContrasts | LevelContrastsOfTargets | None, sums: GroupSums) -> None:
        by_target = [] if levels is None else levels.by_target()
        self._parts = [(part, target, _sums_like(sums, part)) for part, target in by_target]
        self.share = 1.0 if levels is None else 0.5

    def add(self, rows: Rows, labels: Ints, report: Callable[[float], Any] = lambda rows: None) -> None:
        """Add the contrasts of some rows.

        Parameters
        ----------
        rows
            Any number of rows; they are split into chunks that fit into memory.
        labels
            Groups (N,) of all points.
        report
            Called after each chunk with half the number of its rows, the part of the work that is done here.
        """
        if not self._parts or not len(rows):
            return
        size = min(levels.chunk_rows(rows) for levels, *_ in self._parts)
        for chunk in rows.split(size):
            shared = SharedOutputs(self._parts[0][0].max_bytes) if len(self._parts) > 1 else None
            for levels, target, sums in self._parts:
                levels.add(sums, chunk if target is None else chunk.with_target(target), labels, shared)
            report(len(chunk) / 2)

    def after(self, sums: GroupSums) -> GroupSums:
        """Return ``sums``, with those of contrasts after them."""
        for *_, of_levels in self._parts:
            sums = sums.joined(of_levels)
        return sums


def _sums_like(sums: GroupSums, levels: LevelContrasts) -> GroupSums:
    """Return sums of no contrasts yet, for the groups of ``sums`` and one draw."""
    squared = 0 if sums.squares is None else len(sums.squares)
    n_units, n_contrasts = levels.contrasts.pairs.n_units, levels.contrasts.n_contrasts
    found = GroupSums.zeros(sums.signed.shape[1], n_units, 1, squared, n_contrasts)
    if sums.visited is not None:
        found.visit_sample()
    return found


@contextmanager
def _explain_nan() -> Iterator[None]:
    """Add to the error of an output that is not finite that rows were set to other levels."""
    try:
        yield
    except GEHRuntimeError as error:
        raise GEHRuntimeError(
            f"units=Categorical(...): with rows set to other levels, {error} A combination that the model cannot take "
            "may never occur: leave that pair out by pairs=[...], or join the categories to one."
        ) from error
