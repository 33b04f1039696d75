"""A selection of the units of another set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geh_explain._types import Shape
from geh_explain.data.frames import FrameLayout
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.units.base import Units
from geh_explain.units.categorical import refuse_categories
from geh_explain.units.default import default_units
from geh_explain.units.neurons import Neurons
from geh_explain.units.unit_lookup import find_unit


class Subset(Units):
    """Some units of another set, selected by index or name.

    B has the columns ``indices`` of the B of the other set, in that order. ``explainer.screen`` returns one with the
    units that have the largest effects.

    Parameters
    ----------
    indices
        Distinct whole numbers from 0 to the number of units - 1; at the inputs also names: columns of a data frame, or
        those of ``of``.
    of
        The unit set to select from; None for the default of the layer.
    importance
        The quantity by which the units were selected, one number per unit, set by ``explainer.screen``.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> units = geh.units.Subset([3, 1], of=geh.units.Channels(dim=1))
    >>> units.count((4, 2, 2)), units.names((4, 2, 2), "conv1")
    (2, ['conv1[3]', 'conv1[1]'])
    >>> units.shift(torch.eye(2), (4, 2, 2)).flatten(1)
    tensor([[0., 0., 0., 1.],
            [0., 1., 0., 0.]])
    """

    def __init__(
        self,
        indices: Sequence[int | str] | Tensor | np.ndarray[Any, Any],
        of: Units | None = None,
        importance: np.ndarray[Any, Any] | None = None,
    ) -> None:
        if not isinstance(indices, (Tensor, np.ndarray, Iterable)) or isinstance(indices, str):
            raise GEHTypeError(f"units=Subset({indices!r}): give at least one index, in a list.")
        entries = indices.tolist() if isinstance(indices, (Tensor, np.ndarray)) else list(indices)
        all_whole = all(isinstance(i, (int, np.integer, str)) and not isinstance(i, bool) for i in entries)
        if not entries or not all_whole or len(set(entries)) < len(entries):
            raise GEHValueError(
                f"units=Subset({entries!r}): give at least one index, each a whole number or a name, and only once."
            )
        #: Indices of the units; names stay names until the set is bound to inputs.
        self.indices: list[Any] = [i if isinstance(i, str) else int(i) for i in entries]
        self.of = of
        self.importance = importance

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Subset:
        refuse_categories(self.of, "units=Subset(...)", "Choose units by explain(unit=...), pairs= or rows=.")
        of = (self.of or default_units(shape, module)).bind(shape, module, columns)
        if any(isinstance(i, str) for i in self.indices):
            return Subset(self._find(of, shape, module, columns), of, self.importance)
        total = of.count(shape)
        wrong = [i for i in self.indices if not 0 <= i < total]
        if wrong:
            raise GEHValueError(
                f"units=Subset(...): there are {total} units, numbered 0 to {total - 1}; "
                f"remove {wrong[:5]}{' and others' if len(wrong) > 5 else ''}."
            )
        return Subset(self.indices, of)

    def _find(self, of: Units, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> list[int]:
        """Return the indices of the units, of which some are given by name."""
        if module is not None:
            raise GEHValueError(
                f"units=Subset({self.indices!r}): units of a layer are selected by index; names are those of inputs."
            )
        names = of.names(shape, "x", columns)
        return [find_unit(i, names, "units=Subset(...)") for i in self.indices]

    def count(self, shape: Shape) -> int:
        return len(self.indices)

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        """Return the shift of the whole set of units, 0 for those left out."""
        # Out of place, so that it works under the transforms of torch.func too.
        zeros = t.new_zeros(len(t), self._source.count(shape))
        all_shifts = zeros.index_copy(1, torch.tensor(self.indices, device=t.device), t)
        return self._source.shift(all_shifts, shape)

    def members(self, activations: Tensor) -> Tensor:
        return self._source.members(activations)[:, self.indices]

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        names = self._source.names(shape, prefix, columns)
        return [names[i] for i in self.indices]

    @property
    def _source(self) -> Units:
        """The unit set that is selected from; before :meth:`bind` the default of a layer is not known yet."""
        return self.of or Neurons()

    def __repr__(self) -> str:
        of = "" if self.of is None else f", of={self.of!r}"
        return f"Subset({self.indices!r}{of})"


def columns_of_numbers(frame: FrameLayout) -> Units:
    """Return the units of a data frame where the user does not choose: its columns of numbers and booleans.

    Raises
    ------
    GEHValueError
        If there are none.
    """
    if not frame.coded:
        return Neurons()
    if not frame.numeric:
        raise GEHValueError(
            f"inputs: none of the columns {frame.names(frame.coded)} is numeric; name those that are to jump between "
            "their values, units=Subset([...])."
        )
    return Subset(frame.numeric)
