"""Exemplars: the result of a search for the candidates that excite units most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.interpret.readings import Reading, reading
from geh_explain.plots.exemplars import draw_exemplars, first_input


@dataclass(frozen=True, repr=False)
class Exemplars:
    """The k candidates that excite each of U units most, strongest first.

    Attributes
    ----------
    indices
        Row numbers (U, k) of the exemplars among the candidates.
    scores
        Activations (U, k), plus the log density of the expert if there is one (minus it for the lowest).
    inputs
        Exemplars ``(U, k, *shape)``, or a tuple of such tensors if the model takes several inputs.
    names
        Names of the units.
    n_candidates
        Number of candidates searched.
    places
        Positions (U, k, r) of the maxima in feature maps; None if units are not channels or are reduced by the mean.
    map_shape
        Shape of these feature maps, with r dimensions; None where ``places`` is None.
    dead
        Mask (U,) of units with the same activation for all candidates.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3))
    >>> exemplars = geh.interpret.exemplars(net, "0", [0, 2], torch.randn(50, 2), k=4, progress=False)
    >>> exemplars
    Exemplars(2 units, 4 of 50 candidates each, inputs (2, 4, 2))
    >>> exemplars.indices.shape, exemplars.inputs.shape
    ((2, 4), torch.Size([2, 4, 2]))
    """

    indices: NDArray[np.int64]
    scores: NDArray[np.float64]
    inputs: Any
    names: list[str]
    n_candidates: int
    places: NDArray[np.int64] | None
    map_shape: tuple[int, ...] | None
    dead: NDArray[np.bool_]

    def reading(self, labels: Sequence[Any] | Tensor | NDArray[Any]) -> list[Reading]:
        """Return the majority label of each unit's exemplars.

        Parameters
        ----------
        labels
            One label per candidate, in the order of the candidates.

        Raises
        ------
        GEHTypeError
            If ``labels`` is a string or not iterable.
        GEHValueError
            If there are more or fewer labels than candidates.
        """
        if isinstance(labels, str) or not isinstance(labels, Iterable):
            raise GEHTypeError(f"labels={labels!r} is not a list; give one label for each candidate.")
        label_list = labels.tolist() if isinstance(labels, (Tensor, np.ndarray)) else list(labels)
        if len(label_list) != self.n_candidates:
            raise GEHValueError(
                f"labels has {len(label_list)} entries for {self.n_candidates} candidates; give one label for each."
            )
        return [reading(label_list[index] for index in row) for row in self.indices]

    def select(self, rows: Sequence[int]) -> Exemplars:
        """Return the exemplars of some units, given by their rows in ``indices``."""
        # A list selects rows of arrays and tensors alike; a tuple would index several dimensions.
        index = list(rows)
        has_several_inputs = isinstance(self.inputs, tuple)
        return Exemplars(
            self.indices[index],
            self.scores[index],
            tuple(x[index] for x in self.inputs) if has_several_inputs else self.inputs[index],
            [self.names[row] for row in index],
            self.n_candidates,
            None if self.places is None else self.places[index],
            self.map_shape,
            self.dead[index],
        )

    def plot(self, labels: Sequence[Any] | Tensor | NDArray[Any] | None = None) -> Any:
        """Draw the exemplars of each unit and return the figure.

        Parameters
        ----------
        labels
            One label per candidate, or None. With labels, the titles include the units' readings.
        """
        return draw_exemplars(self, labels)

    def __repr__(self) -> str:
        units, k = self.indices.shape
        shape = tuple(first_input(self.inputs).shape)
        return f"Exemplars({units} units, {k} of {self.n_candidates} candidates each, inputs {shape})"
