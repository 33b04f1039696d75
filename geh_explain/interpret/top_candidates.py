"""Running top-k of candidates for each unit, updated batch by batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from geh_explain.data.rows import Rows
from geh_explain.errors import GEHValueError
from geh_explain.interpret.diversity import (
    POOL_FACTOR,
    Features,
    check_cluster_count,
    choose_diverse,
    one_per_cluster,
)
from geh_explain.interpret.exemplar_set import Exemplars
from geh_explain.interpret.responses import Responses, map_shape, report_dead
from geh_explain.model.cut import Cut

#: A unit is dead if its activations differ by less than this share of the largest. Rounding depends on the batch, so
#: equal values may differ in their last digits.
_DEAD_TOLERANCE = 1e-6


class TopCandidates:
    """The k rows with the highest score of each of U units, over the batches added so far.

    Memory grows with U * k inputs, not with the number of candidates, unless ``keep_values`` or ``diverse`` is set.

    Parameters
    ----------
    cut
        The model cut at the layer of the units.
    k
        Rows per unit.
    lowest
        Whether the scores that are added are negative activations; the result has the sign reversed.
    keep_values
        Whether to keep the activations of all rows, see :meth:`values`.
    diverse
        Whether the k rows are chosen among the 4 k best such that they differ, see
        :func:`~geh_explain.interpret.diversity.choose_diverse`. Features of all rows are kept then.
    clusters
        Codes of all rows, or None. The k rows are the best of each cluster, then the second best, and so on.
    """

    def __init__(
        self,
        cut: Cut,
        k: int,
        *,
        lowest: bool = False,
        keep_values: bool = False,
        diverse: bool = False,
        clusters: Tensor | None = None,
    ) -> None:
        self.units = cut.units
        self.names = cut.unit_names()
        self.map_shape = map_shape(cut)
        #: Number of rows added so far.
        self.n_rows = 0
        self._clusters = clusters
        self._describe = Features() if diverse and clusters is None else None
        self._features: list[Tensor] = []
        self._n_chosen = k
        self._k = k if self._describe is None else POOL_FACTOR * k
        self._lowest = lowest
        self._keeps_values = keep_values
        self._values: list[Tensor] = []
        # Scores (U, k) in descending order, or (U, 4 k) of a pool for diverse rows, with the rows' numbers and the
        # positions of their maxima.
        self._scores = torch.empty(len(self.names), 0, dtype=torch.double)
        self._indices = torch.empty(len(self.names), 0, dtype=torch.long)
        self._places: Tensor | None = None
        self._inputs = _InputStore()
        # Range of the activations (U,), by which dead units are recognised.
        self._low = torch.tensor(torch.inf)
        self._high = torch.tensor(-torch.inf)

    def add(self, responses: Responses, scores: Tensor, rows: Rows, activations: Tensor) -> None:
        """Add a batch of n rows.

        Parameters
        ----------
        responses
            Activations of the U units.
        scores
            Numbers (n, U) by which rows are ranked.
        rows
            The rows themselves.
        activations
            Output of the layer, which describes the rows where diverse ones are chosen.
        """
        if self._describe is not None:
            self._features.append(self._describe(activations))
        if self._clusters is not None and len(self._clusters) < self.n_rows + len(rows):
            check_cluster_count(self._clusters, self.n_rows + len(rows))
        if self._keeps_values:
            self._values.append(responses.values.double().cpu())
        self._low = torch.minimum(self._low, responses.values.amin(dim=0).cpu())
        self._high = torch.maximum(self._high, responses.values.amax(dim=0).cpu())
        new_scores = scores.T.double().cpu()
        contenders = self._contenders(new_scores)
        if len(contenders):
            self._merge(contenders, new_scores[:, contenders], responses.places, rows)
        self.n_rows += len(rows)

    def _contenders(self, scores: Tensor) -> Tensor:
        """Return the rows of a batch, with scores (U, n), that enter the top k of at least one unit."""
        # The best row of a new cluster counts whatever its score.
        if self.n_rows < self._k or self._clusters is not None:
            return torch.arange(scores.shape[1])
        return (scores > self._scores[:, -1:]).any(dim=0).nonzero()[:, 0]

    def _merge(self, contenders: Tensor, scores: Tensor, places: Tensor | None, rows: Rows) -> None:
        """Merge the contenders of a batch, with scores (U, contenders), into the top k."""
        new_indices = (self.n_rows + contenders).expand(len(scores), -1)
        # Earlier rows come first, so that a stable sort keeps ties in the order of their numbers.
        all_scores = torch.cat([self._scores, scores], dim=1)
        all_indices = torch.cat([self._indices, new_indices], dim=1)
        ordered = torch.sort(all_scores, dim=1, descending=True, stable=True)
        order = ordered.indices
        if self._clusters is not None:
            order = order.gather(1, one_per_cluster(self._clusters[all_indices.gather(1, order)], self._k))
        order = order[:, : self._k]
        self._scores = all_scores.gather(1, order)
        self._indices = all_indices.gather(1, order)
        if places is not None:
            new_places = places.transpose(0, 1).cpu()[:, contenders]
            all_places = new_places if self._places is None else torch.cat([self._places, new_places], dim=1)
            self._places = all_places.gather(1, order[..., None].expand(-1, -1, all_places.shape[2]))
        self._inputs.add(_unique(self._indices[self._indices >= self.n_rows]), rows, self.n_rows)
        self._inputs.trim(self._indices)

    def values(self) -> Tensor:
        """Return the activations (n, U) of all rows; requires ``keep_values``."""
        return torch.cat(self._values)

    def choose(self, scores: Tensor, k: int) -> Tensor:
        """Return the numbers (k,) of rows for scores (n,) of all rows, by the rule of this search, best first."""
        order = torch.sort(scores, descending=True, stable=True).indices
        if self._clusters is not None:
            return order[one_per_cluster(self._clusters[order][None], k)[0]]
        if self._describe is None:
            return order[:k]
        pool = order[: POOL_FACTOR * k]
        return pool[choose_diverse(scores[pool], torch.cat(self._features)[pool], k)]

    def _choose_from_pool(self) -> None:
        """Reduce the pool of each unit to the k rows that differ."""
        if self._describe is None or self._k == self._n_chosen:
            return
        features = torch.cat(self._features)
        chosen = torch.stack(
            [
                choose_diverse(scores[is_allowed], features[indices[is_allowed]], self._n_chosen)
                for scores, indices, is_allowed in zip(
                    self._scores, self._indices, torch.isfinite(self._scores), strict=True
                )
            ]
        )
        self._scores, self._indices = self._scores.gather(1, chosen), self._indices.gather(1, chosen)
        if self._places is not None:
            self._places = self._places.gather(1, chosen[..., None].expand(-1, -1, self._places.shape[2]))
        self._k = self._n_chosen

    def result(self) -> Exemplars:
        """Return the exemplars of all units, and warn about dead ones.

        Raises
        ------
        GEHValueError
            If all units are dead, or an expert leaves fewer than k candidates with a finite score.
        """
        dead = (self._high - self._low <= _DEAD_TOLERANCE * self._high.abs()).numpy() & (self.n_rows > 1)
        if not bool(torch.isfinite(self._scores[:, : self._n_chosen]).all()):
            raise GEHValueError(
                f"expert: its log density is -inf for so many candidates that fewer than k={self._n_chosen} are left; "
                "use a smaller k, or more candidates."
            )
        self._choose_from_pool()
        report_dead(dead, self.names, "gave the same value for every candidate")
        shape = self._indices.shape
        inputs = tuple(x.reshape(*shape, *x.shape[1:]) for x in self._inputs.take(self._indices.flatten()))
        return Exemplars(
            self._indices.numpy(),
            (-self._scores if self._lowest else self._scores).numpy(),
            inputs[0] if len(inputs) == 1 else inputs,
            self.names,
            self.n_rows,
            None if self._places is None else self._places.numpy(),
            None if self._places is None else self.map_shape,
            dead,
        )


class _InputStore:
    """Inputs of selected rows, looked up by row number; numbers are added in ascending order."""

    def __init__(self) -> None:
        self._numbers: list[Tensor] = []
        self._inputs: list[tuple[Tensor, ...]] = []

    def add(self, numbers: Tensor, rows: Rows, start: int) -> None:
        """Store the rows with these numbers; the first of ``rows`` has the number ``start``."""
        self._numbers.append(numbers)
        self._inputs.append(tuple(x[(numbers - start).to(x.device)] for x in rows.inputs))

    def trim(self, needed: Tensor) -> None:
        """Drop all rows but those with the ``needed`` numbers, if the store is more than twice as large."""
        # Trimming copies the inputs, so it waits until the copy pays off.
        if sum(map(len, self._numbers)) > 2 * needed.numel():
            numbers = _unique(needed)
            self._inputs = [self.take(numbers)]
            self._numbers = [numbers]

    def take(self, numbers: Tensor) -> tuple[Tensor, ...]:
        """Return the inputs (len(numbers), ...) of these rows, one tensor per input of the model."""
        positions = torch.searchsorted(torch.cat(self._numbers), numbers)
        return tuple(torch.cat(parts)[positions.to(parts[0].device)] for parts in zip(*self._inputs, strict=True))


def _unique(numbers: Tensor) -> Tensor:
    """Return the distinct numbers in ascending order."""
    return torch.from_numpy(np.unique(numbers.numpy()))
