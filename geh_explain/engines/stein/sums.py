"""Sums over groups from Stein's samples."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain._types import Ints
from geh_explain.engines.pair_blocks import PairBlock, split_pairs
from geh_explain.engines.stein.control import ControlHessians
from geh_explain.engines.stein.products import Samples, SummedSamples
from geh_explain.engines.sums import GroupSums, add_by_group, scale_points
from geh_explain.errors import GEHRuntimeError
from geh_explain.units.pair_set import PairSet

#: Rows of a Hessian per block.
_BLOCK_ROWS = 256
#: Numbers of the Hessians of several points that are computed at a time.
_MAX_NUMBERS = 2**20


class SteinSums:
    """Adds samples to :class:`GroupSums`, block by block of the Hessian.

    Parameters
    ----------
    sums
        The sums of one draw; ``variance`` is an array.
    pairs
        The pairs of units.
    n_samples
        Number S of samples per point.
    max_bytes
        Bytes that sums over groups of one block may take.
    device
        Where the samples are.
    """

    def __init__(self, sums: GroupSums, pairs: PairSet, n_samples: int, max_bytes: int, device: torch.device) -> None:
        assert sums.variance is not None
        self._sums, self._pairs, self._device = sums, pairs, device
        self._n_samples, self._max_bytes = n_samples, max_bytes
        self._signed, self._variance = sums.signed[0], sums.variance[0]

    def add_groups(self, samples: Samples, labels: Ints) -> None:
        """Add the means of points, and their variances, by one matrix product per group.

        The variance of a sample is half the mean squared difference of consecutive samples of one point.

        Parameters
        ----------
        samples
            Samples of n points, all of them or a part of those of each point.
        labels
            Groups (n,) of the points.
        """
        n_pairs = len(samples.w) // 2
        # The last sample of an odd number has no partner.
        scale = len(samples.w) / (2 * max(1, n_pairs) * self._n_samples**2)
        for group in np.unique(labels).tolist():
            part = samples.of_points(self._members(labels, group))
            for block in split_pairs(self._pairs, _BLOCK_ROWS, self._device):
                total = part.first_total(block.rows, block.columns) / self._n_samples
                _add(self._signed[group], block, total)
                squares = part.difference_total(block.rows, block.columns).clamp_min_(0) * scale
                _add(self._variance[group], block, squares)

    def check_range(self, problem: str) -> None:
        """Raise an error that starts with the ``problem`` if sums are infinite or NaN."""
        if not bool(torch.isfinite(self._signed).all() and torch.isfinite(self._variance).all()):
            raise GEHRuntimeError(
                f"{problem}; use a larger scale of the noise, units in another measure, or inputs and a model in "
                "double precision."
            )

    def _members(self, labels: Ints, group: int) -> Tensor:
        """Return the indices of the points of a group."""
        return torch.as_tensor(np.flatnonzero(labels == group), device=self._device)

    def add_control(self, control: ControlHessians, labels: Ints) -> None:
        """Add what was subtracted from the samples."""
        for group in np.unique(labels).tolist():
            total = control.of_points(self._members(labels, group)).total()
            for block in split_pairs(self._pairs, _BLOCK_ROWS, self._device):
                _add(self._signed[group], block, total.block(block.rows, block.columns)[0])

    def add_points(
        self,
        points: Samples | SummedSamples,
        control: ControlHessians | None,
        labels: Ints,
        measured: NDArray[np.bool_] | None,
    ) -> None:
        """Add absolute interactions and squares of points; without ``measured`` also their means and variances.

        Parameters
        ----------
        points
            All samples of n points.
        control
            What was subtracted from them; None for nothing.
        labels
            Groups (n,) of the points.
        measured
            Which of the points (n,) count; None if all do.
        """
        sums, everything = self._sums, measured is None
        chosen = np.arange(len(labels)) if measured is None else np.flatnonzero(measured)
        sums.skipped += len(labels) - len(chosen)
        if not len(chosen):
            return
        present, groups = np.unique(labels[chosen], return_inverse=True)
        weights = sums.weights
        if weights is not None:
            weights = sums.weights = weights[torch.as_tensor(chosen)]
        compact = torch.nn.functional.one_hot(torch.as_tensor(groups, device=self._device), len(present)).T
        n_units, names = self._pairs.n_units, self._names(everything)
        block_rows = max(1, min(_BLOCK_ROWS, self._max_bytes // (8 * (1 + len(names)) * len(present) * n_units)))
        for block in split_pairs(self._pairs, block_rows, self._device):
            totals: dict[str, Tensor] = {}
            for part in self._tiles(chosen, block):
                some = torch.as_tensor(chosen[part], device=self._device)
                mean, variance = self._estimate(points.of_points(some), block)
                if control is not None:
                    mean += control.of_points(some).block(block.rows, block.columns)
                # E[mean^2] exceeds the squared interaction by the variance of the mean.
                absolute = (mean**2 - variance).clamp_min_(0).sqrt_().sum(dim=0)
                totals["absolute"] = absolute + totals.get("absolute", 0.0)
                values = {"signed": mean, "variance": variance, "squares": mean**2}
                values["visited"] = scale_points(mean.flatten(1), None if weights is None else weights[part])
                for name in names:
                    shape = len(present), *mean.shape[1:]
                    total = totals.setdefault(name, mean.new_zeros(shape))
                    add_by_group(total.flatten(1), values[name].flatten(1), compact[:, part])
            self._add_totals(totals, block, present)
        sums.visit(sums.one_hot(labels[chosen], self._device))

    def _names(self, everything: bool) -> list[str]:
        """Return the arrays of sums over groups that points are added to."""
        squares = ["squares"] if self._sums.squares is not None else []
        visited = ["visited"] if self._sums.visited is not None else []
        return [*(["signed", "variance"] if everything else []), *squares, *visited]

    def _tiles(self, chosen: Ints, block: PairBlock) -> list[slice]:
        """Return parts of the points whose blocks fit into the caches."""
        step = max(1, _MAX_NUMBERS // (block.n_rows * self._pairs.n_units))
        return [slice(start, min(start + step, len(chosen))) for start in range(0, len(chosen), step)]

    def _estimate(self, points: Samples | SummedSamples, block: PairBlock) -> tuple[Tensor, Tensor]:
        """Return the mean (n, rows, columns) over the samples of each point, and its variance."""
        n_samples = self._n_samples
        mean = points.first_sum(block.rows, block.columns) / n_samples
        squares = points.second_sum(block.rows, block.columns) / n_samples
        return mean, (squares - mean**2).clamp_min_(0) / (n_samples - 1)

    def _add_totals(self, totals: dict[str, Tensor], block: PairBlock, present: Ints) -> None:
        """Add sums over the points of the groups ``present``, and over all points, to the sums of the draw."""
        _add(self._sums.absolute[0], block, totals.pop("absolute"))
        arrays = {"signed": self._signed, "variance": self._variance}
        for name in ("squares", "visited"):
            if name in totals:
                arrays[name] = getattr(self._sums, name)[0]
        for name, total in totals.items():
            for number, group in enumerate(present.tolist()):
                _add(arrays[name][group], block, total[number])


def _add(values: Tensor, block: PairBlock, matrix: Tensor) -> None:
    """Add the entries of a block (rows, columns) that belong to pairs to their ``values`` (P,)."""
    values[block.places] += block.pick(matrix).double().cpu()
