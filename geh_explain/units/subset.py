"""TODO."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geh_explain._types import Shape
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.units.base import Units
from geh_explain.units.channels import Channels
from geh_explain.units.neurons import Neurons


class Subset(Units):
    """Some units of another set (by default of the layer's usual one), by index.

    >>> Subset([3, 1, 4]).count((10,))
    3
    """

    def __init__(
        self,
        indices: Sequence[int] | Tensor | np.ndarray[Any, Any],
        of: Units | None = None,
        importance: np.ndarray[Any, Any] | None = None,
    ) -> None:
        if not isinstance(indices, (Tensor, np.ndarray, Iterable)) or isinstance(indices, str):
            raise GEHTypeError(f"units=Subset({indices!r}): give at least one index, in a list.")
        given = indices.tolist() if isinstance(indices, (Tensor, np.ndarray)) else list(indices)
        numbers = all(isinstance(i, (int, np.integer)) and not isinstance(i, bool) for i in given)
        if not given or not numbers or len(set(given)) < len(given):
            raise GEHValueError(f"units=Subset({given!r}): give at least one index, each a whole number and only once.")
        self.indices = [int(i) for i in given]
        self.of = of
        #: What the units were chosen by, where ``explainer.screen`` did.
        self.importance = importance

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Subset:
        of = (self.of or default_units(shape, module)).bind(shape, module, columns)
        total = of.count(shape)
        wrong = [i for i in self.indices if not 0 <= i < total]
        if wrong:
            raise GEHValueError(
                f"units=Subset(...): there are {total} units, numbered 0 to {total - 1}; "
                f"remove {wrong[:5]}{' and others' if len(wrong) > 5 else ''}."
            )
        return Subset(self.indices, of)

    def _of(self) -> Units:
        return self.of or Neurons()

    def count(self, shape: Shape) -> int:
        return len(self.indices)

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        full = t.new_zeros(len(t), self._of().count(shape))
        return self._of().shift(full.index_copy(1, torch.tensor(self.indices, device=t.device), t), shape)

    def members(self, activations: Tensor) -> Tensor:
        return self._of().members(activations)[:, self.indices]

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        names = self._of().names(shape, prefix, columns)
        return [names[i] for i in self.indices]

    def __repr__(self) -> str:
        of = "" if self.of is None else f", of={self.of!r}"
        return f"Subset({self.indices!r}{of})"


def default_units(shape: Shape, module: nn.Module | None) -> Units:
    """Return what ``units=None`` means: features at the inputs, else neurons, or channels of maps."""
    return Neurons() if module is None or len(shape) <= 1 else Channels()
