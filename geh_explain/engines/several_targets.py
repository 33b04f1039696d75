"""Several outputs of the model in one run: each row is read once, and explained for one target after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from geh_explain._types import Ints
from geh_explain.data.rows import Rows
from geh_explain.engines.base import EngineRun
from geh_explain.engines.structured.engine import StructuredRun
from geh_explain.engines.structured.recorder import UnsupportedOp
from geh_explain.engines.sums import GroupSums
from geh_explain.errors import GEHRuntimeError

#: Arrays of sums whose last dimension are pairs.
_OVER_PAIRS = ("signed", "absolute", "squares", "visited")


class SeveralTargetsRun(EngineRun):
    """Engine of C targets: that of each target adds to its own part of the sums.

    Sums have room for C P pairs, those of the first target first, and slopes for C D units. The structured engine
    pushes directions through the network once for all targets, whose Hessians differ in the output's gradients only.

    Parameters
    ----------
    runs
        The engines of the targets, of one kind.
    targets
        The targets, as in Captum.
    """

    takes_pairs = True

    def __init__(self, runs: Sequence[EngineRun], targets: Sequence[Any]) -> None:
        first = runs[0]
        super().__init__(first.engine, first.cut, first.limits)
        self._runs = list(runs)
        self._targets = list(targets)
        self._parts: list[GroupSums] = []

    @property
    def batches_draws(self) -> bool:  # type: ignore[override]
        """Whether rows may be repeated, once for each of several draws."""
        return all(run.batches_draws for run in self._runs)

    @property
    def refuted(self) -> bool:  # type: ignore[override]
        """Whether a check found that the interactions of a target are wrong."""
        return any(run.refuted for run in self._runs)

    @property
    def doubtful(self) -> bool:  # type: ignore[override]
        """Whether autograd's second derivatives of a target contradict differences of its gradients."""
        return any(run.doubtful for run in self._runs)

    @property
    def n_eah_points(self) -> int:
        """Number of points per draw from which absolute interactions are measured."""
        return self._runs[0].n_eah_points

    def begin_draw(self, seed: int) -> None:
        """Start a draw, with the same seed for all targets."""
        self._parts = []
        for run in self._runs:
            run.begin_draw(seed)

    def adapt(self, rows: Rows) -> None:
        """Examine the network of a draw."""
        for run, target in zip(self._runs, self._targets, strict=True):
            run.adapt(rows.with_target(target))

    def fall_back(self) -> None:
        """Use the other engine for all targets."""
        for run in self._runs:
            run.fall_back()

    def chunk_rows(self, rows: Rows) -> int:
        """Return the smallest number of rows that the engines ask for, and for which the Hessians of all fit."""
        pairs = zip(self._runs, self._targets, strict=True)
        smallest = min(run.chunk_rows(rows.with_target(target)) for run, target in pairs)
        runs = self._structured
        if runs is None or self.limits.batch_size is not None:
            return smallest
        return max(1, min(smallest, self.chunk_bytes // (8 * len(runs) * runs[0].hessian_width ** 2)))

    @property
    def _structured(self) -> list[StructuredRun] | None:
        """The engines of the targets, if the structured engine takes the network for all of them; else None."""
        runs = [run for run in self._runs if isinstance(run, StructuredRun) and not run.unsupported]
        return runs if len(runs) == len(self._runs) else None

    def add(self, sums: GroupSums, rows: Rows, labels: Ints) -> None:
        """Add the local interactions of a chunk of rows for all targets."""
        self._make_parts(sums)
        for part in self._parts:
            part.weights = sums.weights
        if self._structured is not None and self._add_structured(self._structured, rows, labels):
            return
        for run, target, part in zip(self._runs, self._targets, self._parts, strict=True):
            run.add(part, rows.with_target(target), labels)

    def _add_structured(self, runs: list[StructuredRun], rows: Rows, labels: Ints) -> bool:
        """Add a chunk of rows by one pass of directions; return False for rows that the engine does not take."""
        try:
            found = runs[0].local_hessians(rows, self._targets)
        except UnsupportedOp:
            return False
        for run, target, part, of_target in zip(runs, self._targets, self._parts, found, strict=True):
            run.add_found(part, rows.with_target(target), labels, of_target)
        return True

    def end_draw(self, sums: GroupSums) -> None:
        """Finish a draw: put the parts together."""
        self._make_parts(sums)
        for run, part in zip(self._runs, self._parts, strict=True):
            run.end_draw(part)
        first, width = self._parts[0], len(self.pairs)
        if any(part.skipped != first.skipped for part in self._parts):
            raise GEHRuntimeError(
                "targets: EAH is measured at some of the points for one target and at all of them for another; explain "
                "the targets in calls of their own, or pass eah_points= all points."
            )
        sums.skipped = first.skipped
        if first.visited is not None:
            sums.visit_sample()
        for number, (run, part) in enumerate(zip(self._runs, self._parts, strict=True)):
            chosen = part if run.takes_pairs or self.pairs.complete else part.select(self.pairs.positions)
            place = slice(number * width, (number + 1) * width)
            for name in _OVER_PAIRS:
                total, own = getattr(sums, name), getattr(chosen, name)
                # Most parts are views of the sums.
                if total is not None and own is not None and own.data_ptr() != total[..., place].data_ptr():
                    total[..., place] = own
        if sums.counts is not None and first.counts is not None:
            sums.counts += first.counts
        sums.slopes = _joined([part.slopes for part in self._parts])
        sums.variance = _joined([part.variance for part in self._parts])
        self._parts = []

    def _make_parts(self, sums: GroupSums) -> None:
        """Make sums for each target, at the begin of a draw: parts of all sums, or of their own for all pairs."""
        draws, groups, _ = sums.signed.shape
        squared = 0 if sums.squares is None else len(sums.squares)
        while len(self._parts) < len(self._runs):
            start, width = len(self._parts) * len(self.pairs), len(self.pairs)
            if self._runs[len(self._parts)].takes_pairs:
                views: dict[str, Any] = {
                    name: total[..., start : start + width] for name, total in _arrays(sums).items()
                }
                part = GroupSums(**views, counts=None if sums.counts is None else torch.zeros_like(sums.counts))
            else:
                part = GroupSums.zeros(groups, self.cut.n_units, draws, squared)
                if sums.visited is not None:
                    part.visit_sample()
            self._parts.append(part)


def _arrays(sums: GroupSums) -> dict[str, Tensor]:
    """Return the arrays of sums whose last dimension are pairs, as far as there are any."""
    return {name: total for name in _OVER_PAIRS if (total := getattr(sums, name)) is not None}


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    """Return arrays (B, M, ...) of all targets next to each other; None if a target has none."""
    known = [part for part in parts if part is not None]
    return torch.cat(known, dim=2) if len(known) == len(parts) else None
