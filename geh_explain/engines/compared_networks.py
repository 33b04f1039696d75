"""Networks whose Hessians were compared with double backward, and what a row of them costs the structured engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from geh_explain.model.cut import Cut

#: Bytes of directions or Hessians of a chunk at most, so that they stay in the caches.
_CACHE_BYTES = 8 * 2**20


@dataclass(frozen=True)
class RowCost:
    """What a row takes while its Hessian is computed.

    Attributes
    ----------
    row_bytes
        Bytes that a row takes.
    cache_rows
        Number of rows whose directions fit into the caches.
    narrow_width
        Number of entries d of a narrow layer; 0 if the Hessians are taken at the units.
    """

    row_bytes: int
    cache_rows: int
    narrow_width: int

    @classmethod
    def of(cls, cut: Cut, largest_step: int, n_entries: int, narrow_width: int) -> RowCost:
        """Return the cost for a network with ``n_entries`` numbers per row in all steps, at most so many in one."""
        item, n_directions = torch.finfo(cut.dtype).bits // 8, narrow_width or cut.n_units
        per_direction = 4 * largest_step + 2 * n_directions
        row_bytes = item * (n_directions * per_direction + 8 * n_entries) + 8 * n_directions**2
        cache_rows = max(1, _CACHE_BYTES // (item * n_directions * max(n_directions, largest_step)))
        return cls(row_bytes, cache_rows, narrow_width)


class ComparedNetworks:
    """Networks for which structured engine and double backward agreed, by their layers.

    An explainer that is called again, and members of an ensemble with the same layers, are not compared again in their
    first chunk of rows: what the engine records of torch's own smooth layers does not depend on the weights. The cost
    of a row is known, too. Networks of other layers have ``cut.layers`` None and are compared in every run.
    """

    def __init__(self) -> None:
        self._costs: dict[Any, RowCost] = {}

    def cost(self, cut: Cut) -> RowCost | None:
        """Return the cost of a row of the network at the cut if it was compared, else None."""
        return None if cut.layers is None else self._costs.get(_key(cut))

    def add(self, cut: Cut, cost: RowCost) -> None:
        """Remember that the network at the cut was compared."""
        if cut.layers is not None:
            self._costs[_key(cut)] = cost

    def discard(self, cut: Cut) -> None:
        """Forget a network at which the engines differed after all."""
        self._costs.pop(_key(cut), None)


def _key(cut: Cut) -> Any:
    """Return what determines the steps from the units to the output."""
    return cut.layers, cut.shape, cut.dtype, cut.device
