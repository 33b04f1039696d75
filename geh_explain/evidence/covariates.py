"""Covariates of the held-out test: what the rows contain beside the values of the units.

A unit moves the numbers of a layer's output along one direction; the units of a set need not determine the output.
Features that a :class:`~geh_explain.units.Subset` leaves out, differences between the members of a group, and positions
in a channel's map stay where they are while the units move. They are part of x without i and of x without j, so the
test must account for their effects as for those of other units.

With the layer's output a, the units' directions B and values u = (B'B)^-1 B'a, the covariates are the columns of
a - B u, which do not depend on the units' shifts, and the additional forward arguments of the rows. If there are more
of them than the rows allow, their principal components are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.model.cut import Cut

#: Numbers of a layer's output that are held for all rows at once (512 MB); larger ones are projected on random
#: directions, as many as this.
_MAX_NUMBERS = 2**26
_PROJECTIONS = 256
#: Columns with a smaller standard deviation, in eps of their largest number, are constant up to rounding errors.
_ROUNDING = 100


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
    """

    columns: Floats
    members: Floats
    share: float = 1.0

    @property
    def count(self) -> int:
        """Number of covariates E."""
        return int(self.columns.shape[1])

    def reduced(self, count: int) -> Covariates:
        """Return at most ``count`` covariates: these, or their principal components.

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
            scores = centred @ vectors[:, ::-1][:, :count]
        else:
            values, vectors = np.linalg.eigh(centred @ centred.T)
            scores = vectors[:, ::-1][:, :count]
        share = float(values[::-1][:count].sum() / max(values.sum(), 1e-300))
        return Covariates(_standardised(scores), self.members[:, :0], self.share * share)


@torch.no_grad()
def read_covariates(cut: Cut, points: Points, batch_size: int | None) -> Covariates:
    """Return all covariates of some rows; of layers with very many numbers random projections."""
    size = cut.activations(points.first[:1]).numel()
    none = np.zeros((len(points), 0))
    if size == cut.n_units and not any(points.first.forward_args.per_row[1:]):
        # Each unit moves one number.
        return Covariates(none, none)
    project = None
    if size * len(points) > _MAX_NUMBERS:
        generator = torch.Generator().manual_seed(0)
        project = torch.randn(size, _PROJECTIONS, generator=generator, dtype=torch.float64) / _PROJECTIONS**0.5
    rests, members, arguments = [], [], []
    for rows in points.split(batch_size):
        activations = cut.activations(rows)
        left, whole = (part.flatten(1).double().cpu() for part in (_rest(cut, activations), activations))
        rests.append((left if project is None else left @ project).numpy())
        members.append((whole if project is None else whole @ project).numpy())
        arguments.append(np.concatenate([np.zeros((len(rows), 0)), *_argument_columns(rows)], axis=1))
    rest, member, argument = (np.concatenate(parts) for parts in (rests, members, arguments))
    # Column by column: the size of one feature says nothing about the rounding errors of another.
    varies = rest.std(axis=0) > _ROUNDING * torch.finfo(cut.dtype).eps * np.abs(member).max(axis=0)
    moved = varies & (member != rest).any(axis=0) & (project is None)
    columns = np.concatenate([rest[:, varies], argument[:, argument.std(axis=0) > 0]], axis=1)
    return Covariates(_standardised(columns), member[:, moved])


def _rest(cut: Cut, activations: Tensor) -> Tensor:
    """Return activations minus the part that the units move."""
    return activations - cut.units.shift(cut.units.values(activations), tuple(activations.shape[1:]))


def _argument_columns(rows: Rows) -> Iterator[Floats]:
    """Yield the additional forward arguments that are numbers of the rows, as columns (n, k)."""
    arguments = rows.forward_args
    for value, belongs in zip(arguments.values[1:], arguments.per_row[1:], strict=True):
        if belongs and isinstance(value, (Tensor, np.ndarray)):
            array = torch.as_tensor(value).detach().cpu()
            if not array.is_complex():
                yield array.reshape(len(rows), -1).double().numpy()


def _standardised(columns: Floats) -> Floats:
    """Return columns (n, k) with mean 0 and variance 1."""
    spread = columns.std(axis=0)
    return np.asarray((columns - columns.mean(axis=0)) / np.where(spread > 0, spread, 1.0))
