"""Covariates of the held-out test: what the rows contain beside the values of the units.

A unit moves the numbers of a layer's output along one direction; the units of a set need not determine the output.
Features that a :class:`~geh_explain.units.Subset` leaves out, differences between the members of a group, and positions
in a channel's map stay where they are while the units move. They are part of x without i and of x without j, so the
test must account for their effects as for those of other units.

With the layer's output a, the units' directions B and values u = (B'B)^-1 B'a, the covariates are the columns of
a - B u, which do not depend on the units' shifts, and the additional forward arguments of the rows, without those that
are linear functions of others. If there are more of them than the rows allow, their principal components are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats
from geh_explain.data.points import DEFAULT_BATCH_SIZE, Points
from geh_explain.data.rows import Rows
from geh_explain.model.cut import Cut

#: Numbers of a layer's output that are held for all rows at once (128 MB, a few times); of larger ones so many sums are
#: taken, each of a random part of the numbers with random signs.
_MAX_NUMBERS = 2**24
_SUMS = 256
#: Columns with a smaller standard deviation, in eps of their largest number, are constant up to rounding errors.
_ROUNDING = 100
#: Columns of which linear functions of others leave a smaller share of the variance are dropped: the members of a group
#: of two have the same difference with opposite signs.
_DEPENDENT = 1e-6


@dataclass(frozen=True)
class Covariates:
    """What rows contain beside the values of the units.

    Attributes
    ----------
    columns
        Covariates (n, E) with variance 1 that shifts of the units leave as they are.
    members
        The numbers (n, M) that the units move, where a unit moves several; their main effects are no interaction.
    share
        Share of the variance that ``columns`` retain.
    further
        Principal components (n, K) after ``columns``, from which units are predicted only; empty if none were left out.
    """

    columns: Floats
    members: Floats
    share: float = 1.0
    further: Floats | None = None

    @property
    def count(self) -> int:
        """Number of covariates E."""
        return int(self.columns.shape[1])

    def reduced(self, count: int, further: int = 0) -> Covariates:
        """Return at most ``count`` covariates: these, or their principal components, and ``further`` ones after them.

        >>> columns = np.random.default_rng(0).normal(size=(50, 3)) @ np.ones((3, 8))
        >>> reduced = Covariates(columns / columns.std(axis=0), columns[:, :0]).reduced(1)
        >>> reduced.columns.shape, round(reduced.share, 3)
        ((50, 1), 1.0)
        """
        if self.count <= count:
            return self
        centred = self.columns - self.columns.mean(axis=0)
        # Eigenvectors of the smaller of the two Gram matrices give the scores.
        if self.count <= len(centred):
            values, vectors = np.linalg.eigh(centred.T @ centred)
            scores = centred @ vectors[:, ::-1][:, : count + further]
        else:
            values, vectors = np.linalg.eigh(centred @ centred.T)
            scores = vectors[:, ::-1][:, : count + further]
        share = float(values[::-1][:count].sum() / max(values.sum(), 1e-300))
        # Components without variance are rounding errors.
        scores = _standardised(scores[:, values[::-1][: count + further] > _DEPENDENT * values[-1]])
        return Covariates(scores[:, :count], self.members[:, :0], self.share * share, scores[:, count:])


@torch.no_grad()
def read_covariates(cut: Cut, points: Points, batch_size: int | None) -> Covariates:
    """Return all covariates of some rows; of layers with very many numbers random sums."""
    size = cut.activations(points.first[:1]).numel()
    none = np.zeros((len(points), 0))
    if size == cut.n_units and not any(points.first.forward_args.per_row[1:]):
        # Each unit moves one number.
        return Covariates(none, none)
    sketch = _RandomSums(size) if size * len(points) > _MAX_NUMBERS else None
    rests, members, arguments = [], [], []
    for rows in points.split(batch_size or min(DEFAULT_BATCH_SIZE, max(1, _MAX_NUMBERS // size))):
        activations = cut.activations(rows)
        parts = _rest(cut, activations), activations
        if sketch is None:
            parts = _in_numbers(cut, parts[0]), _in_numbers(cut, parts[1])
        left, whole = (part.flatten(1).double().cpu() for part in parts)
        rests.append((left if sketch is None else sketch.of(left)).numpy())
        members.append((whole if sketch is None else sketch.of(whole)).numpy())
        arguments.append(np.concatenate([np.zeros((len(rows), 0)), *_argument_columns(rows)], axis=1))
    rest, member, argument = (np.concatenate(parts) for parts in (rests, members, arguments))
    # Column by column: the size of one feature says nothing about the rounding errors of another.
    varies = rest.std(axis=0) > _ROUNDING * torch.finfo(cut.dtype).eps * np.abs(member).max(axis=0)
    moved = varies & (member != rest).any(axis=0) & (sketch is None)
    columns = np.concatenate([rest[:, varies], argument[:, argument.std(axis=0) > 0]], axis=1)
    return Covariates(_independent(_standardised(columns)), member[:, moved])


class _RandomSums:
    """Sums of random parts of a layer's numbers, with random signs, which retain distances between rows on average.

    Every number is in one sum (count sketch; Charikar, Chen and Farach-Colton, 2002), so that there is no matrix with
    an entry for each number and sum.
    """

    def __init__(self, size: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._sums = torch.randint(_SUMS, (size,), generator=generator)
        self._signs = torch.randint(2, (size,), generator=generator).double() * 2 - 1

    def of(self, numbers: Tensor) -> Tensor:
        """Return the sums (n, _SUMS) of numbers (n, size)."""
        return numbers.new_zeros(len(numbers), _SUMS).index_add_(1, self._sums, numbers * self._signs)


def _rest(cut: Cut, activations: Tensor) -> Tensor:
    """Return activations minus the part that the units move."""
    return activations - cut.units.shift(cut.units.values(activations), tuple(activations.shape[1:]))


def _in_numbers(cut: Cut, activations: Tensor) -> Tensor:
    """Return activations with indicators of levels instead of codes of text, whose order means nothing."""
    if cut.frame is None or not cut.frame.coded:
        return activations
    return cut.frame.indicators(activations)


def _argument_columns(rows: Rows) -> Iterator[Floats]:
    """Yield the additional forward arguments that are numbers of the rows, as columns (n, k)."""
    arguments = rows.forward_args
    for value, belongs in zip(arguments.values[1:], arguments.per_row[1:], strict=True):
        if belongs and isinstance(value, (Tensor, np.ndarray)):
            array = torch.as_tensor(value).detach().cpu()
            if not array.is_complex():
                yield array.reshape(len(rows), -1).double().numpy()


def _independent(columns: Floats) -> Floats:
    """Return columns (n, k) of variance 1 without those that are linear functions of others.

    >>> first, second = np.random.default_rng(0).normal(size=(2, 50))
    >>> _independent(_standardised(np.column_stack([first, -first, second, first + second]))).shape
    (50, 2)
    """
    from scipy.linalg import qr

    if not 1 < columns.shape[1] <= len(columns):
        return columns
    triangle, pivots = qr(columns, mode="r", pivoting=True)
    kept = np.abs(triangle.diagonal()) > (_DEPENDENT * len(columns)) ** 0.5
    return np.asarray(columns[:, np.sort(pivots[kept])])


def _standardised(columns: Floats) -> Floats:
    """Return columns (n, k) with mean 0 and variance 1."""
    spread = columns.std(axis=0)
    return np.asarray((columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
