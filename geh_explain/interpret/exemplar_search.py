"""The inputs, among given ones, that excite units most (activation maximisation with experts, Erhan et al., 2009)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from tqdm.auto import tqdm

from geh_explain._validation import check_int
from geh_explain.data.loaders import in_order, is_ordered
from geh_explain.data.reader import Reader
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError, warn
from geh_explain.interpret.readings import Reading, reading
from geh_explain.interpret.responses import (
    Responses,
    check_reduce,
    choose_units,
    cut_at,
    map_shape,
    refuse_not_finite,
    report_dead,
    respond,
)
from geh_explain.model.borrow import as_module, borrow, device_and_dtype
from geh_explain.model.cut import Cut
from geh_explain.model.layers import Layer
from geh_explain.units.base import Units

#: A log density of inputs: (n, ...) to (n,).
Expert = Callable[..., Tensor]


@dataclass(frozen=True)
class Exemplars:
    """For each of U units the k candidates that excite it most, the strongest first.

    ``indices`` and ``scores`` are (U, k), ``inputs`` (U, k, ...), a tuple of such tensors where a model takes several.
    ``scores`` are activations, plus what the expert says (minus, for the lowest). ``candidates`` counts the candidates.
    ``places`` (U, k, r) tells where in a map of ``map_shape`` the maximum is; None where units are no channels.
    ``dead`` (U,) marks units that answer the same to everything.

    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3))
    >>> found = geh.interpret.exemplars(net, "0", [0, 2], torch.randn(50, 2), k=4, progress=False)
    >>> found.indices.shape, found.inputs.shape
    ((2, 4), torch.Size([2, 4, 2]))
    """

    indices: NDArray[np.int64]
    scores: NDArray[np.float64]
    inputs: Any
    names: list[str]
    candidates: int
    places: NDArray[np.int64] | None
    map_shape: tuple[int, ...] | None
    dead: NDArray[np.bool_] = field(repr=False)

    def reading(self, labels: Sequence[Any] | Tensor | NDArray[Any]) -> list[Reading]:
        """Return for each unit the label that most of its exemplars have; ``labels`` has one entry per candidate."""
        if isinstance(labels, str) or not isinstance(labels, Iterable):
            raise GEHTypeError(f"labels={labels!r} is not a list; give one label for each candidate.")
        known = labels.tolist() if isinstance(labels, (Tensor, np.ndarray)) else list(labels)
        if len(known) != self.candidates:
            raise GEHValueError(f"labels has {len(known)} entries for {self.candidates} candidates; give one for each.")
        return [reading(known[index] for index in of_unit) for of_unit in self.indices]

    def part(self, rows: Sequence[int]) -> Exemplars:
        """Return the exemplars of some of the units, by their row."""
        chosen = list(rows)
        several = isinstance(self.inputs, tuple)
        return Exemplars(
            self.indices[chosen],
            self.scores[chosen],
            tuple(x[chosen] for x in self.inputs) if several else self.inputs[chosen],
            [self.names[row] for row in chosen],
            self.candidates,
            None if self.places is None else self.places[chosen],
            self.map_shape,
            self.dead[chosen],
        )

    def plot(self, labels: Sequence[Any] | Tensor | NDArray[Any] | None = None) -> Any:
        """Draw the exemplars of each unit, read if there are ``labels`` of the candidates, and return the figure."""
        from geh_explain.plots.exemplars import draw_exemplars

        return draw_exemplars(self, labels)


def exemplars(
    model: nn.Module,
    layer: str | nn.Module | Layer,
    units: int | Sequence[int] | Units | None,
    candidates: Any,
    k: int = 9,
    *,
    reduce: str = "max",
    lowest: bool = False,
    expert: Expert | None = None,
    batch_size: int | None = None,
    progress: bool = True,
) -> Exemplars:
    """Find, in one pass over ``candidates``, those that excite units most.

    Parameters
    ----------
    model, layer
        A network, and the layer whose units are meant: a dotted name, a module, or a :class:`~geh_explain.Layer`.
    candidates
        A tensor, ndarray, Dataset or DataLoader of inputs (or of tuples whose first entry is the inputs).
    units
        Numbers of units, a unit set, or None for all units of the layer (neurons, or channels of maps).
    k
        How many candidates to keep for each unit. Of equal ones the first are kept.
    reduce
        What stands for a unit that is a map: its ``"max"``, whose place is told, or its ``"mean"``.
    lowest
        Find the candidates that excite the units least: what a unit with a negative effect stands for.
    expert
        A log density that is added to the activation. Without one, all candidates are as likely: the set is the expert.
    batch_size
        Rows at a time (256).
    progress
        Show a progress bar.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    >>> with torch.no_grad():
    ...     _ = net[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])), net[0].bias.zero_()
    >>> found = geh.interpret.exemplars(net, "0", [0, 2], torch.tensor([[1.0, 5.0], [2.0, 0.0], [3.0, 1.0]]), k=2)
    >>> found.indices.tolist()
    [[2, 1], [0, 2]]
    """
    if expert is not None and not callable(expert):
        raise GEHTypeError(f"expert={expert!r} is not callable; give a function of inputs that returns log densities.")
    search = Search(check_int("k", k, 1), reduce, lowest, expert, batch_size, progress)
    module = as_module(model)
    with borrow(module):
        return search(module, layer, choose_units(units), candidates).result()


@dataclass(frozen=True)
class Search:
    """How candidates are searched; see :func:`exemplars`. ``keep`` keeps the values of all candidates."""

    k: int
    reduce: str = "max"
    lowest: bool = False
    expert: Expert | None = None
    batch_size: int | None = None
    progress: bool = True
    keep: bool = False
    #: What the user calls the candidates.
    argument: str = "candidates"

    @torch.no_grad()
    def __call__(self, model: nn.Module, layer: Any, units: Units | None, candidates: Any) -> Best:
        """Search in one pass, in a borrowed model."""
        check_reduce(self.reduce)
        size = None if self.batch_size is None else check_int("batch_size", self.batch_size, 1)
        count = _length(candidates)
        self._check_k(count)
        if isinstance(candidates, DataLoader) and not is_ordered(in_order(candidates)):
            warn(
                f"{self.argument}: the loader picks its rows by a sampler of its own; indices, and labels, count them "
                "in the order in which they come."
            )
        device, dtype = device_and_dtype(model)
        reader = Reader(floating_only=False, device=device, dtype=dtype, argument=self.argument)
        best: Best | None = None
        with tqdm(total=count, desc="exemplars", unit="row", disable=not self.progress, leave=False) as bar:
            for rows in reader.stream(candidates, size):
                if best is None:
                    cut = cut_at(model, layer, units, rows[:2], self.argument)
                    best = Best(self, cut)
                found = respond(cut, rows, self.reduce)
                refuse_not_finite(found.values, rows, f"the activation of {cut.place}")
                best.add(found, rows)
                bar.update(len(rows))
        self._check_k(best.seen if best else 0)
        assert best is not None
        return best

    def _check_k(self, count: int | None) -> None:
        if count == 0:
            raise GEHValueError(f"{self.argument} are empty: there is nothing to choose from.")
        if count is not None and self.k > count:
            raise GEHValueError(f"k={self.k}, but there are only {count} {self.argument}; take at most as many.")


class Best:
    """The k best rows so far of each unit, and all that belongs to them."""

    def __init__(self, search: Search, cut: Cut) -> None:
        self.search, self.units, self.names, self.map_shape = search, cut.units, cut.unit_names(), map_shape(cut)
        self.seen = 0
        #: The values (n, U) of all rows, a piece for each batch, if the search keeps them.
        self.values: list[Tensor] = []
        self._scores = torch.empty(len(self.names), 0, dtype=torch.double)
        self._indices = torch.empty(len(self.names), 0, dtype=torch.long)
        self._places: Tensor | None = None
        self._inputs = _Kept()
        self._low, self._high = torch.tensor(torch.inf), torch.tensor(-torch.inf)

    def add(self, found: Responses, rows: Rows) -> None:
        """See some more rows."""
        if self.search.keep:
            self.values.append(found.values.double().cpu())
        self._low = torch.minimum(self._low, found.values.amin(dim=0).cpu())
        self._high = torch.maximum(self._high, found.values.amax(dim=0).cpu())
        values = _scores(found.values, rows, self.search).T.double().cpu()
        # Rows that were seen earlier stand first, so that a stable sort leaves ties in the order of their numbers.
        hopeful = torch.arange(len(rows))
        if self.seen >= self.search.k:
            hopeful = (values > self._scores[:, -1:]).any(dim=0).nonzero()[:, 0]
        if not len(hopeful):
            self.seen += len(rows)
            return
        new = (self.seen + hopeful).expand(len(values), -1)
        scores, indices = torch.cat([self._scores, values[:, hopeful]], dim=1), torch.cat([self._indices, new], dim=1)
        self._scores, order = (
            part[:, : self.search.k] for part in torch.sort(scores, dim=1, descending=True, stable=True)
        )
        self._indices = indices.gather(1, order)
        if found.places is not None:
            places = found.places.transpose(0, 1).cpu()[:, hopeful]
            places = places if self._places is None else torch.cat([self._places, places], dim=1)
            self._places = places.gather(1, order[..., None].expand(-1, -1, places.shape[2]))
        self._inputs.add(_different(self._indices[self._indices >= self.seen]), rows, self.seen)
        self._inputs.trim(self._indices)
        self.seen += len(rows)

    def result(self) -> Exemplars:
        """Return what was found."""
        # Rounding depends on the batch, so that equal values may differ in their last digits.
        dead = (self._high - self._low <= 1e-6 * self._high.abs()).numpy() & (self.seen > 1)
        if not bool(torch.isfinite(self._scores).all()):
            raise GEHValueError(
                f"expert: its log density is -inf for so many candidates that fewer than k={self.search.k} are left."
            )
        report_dead(dead, self.names, "gave the same value for every candidate")
        shape = self._indices.shape
        inputs = tuple(x.reshape(*shape, *x.shape[1:]) for x in self._inputs.take(self._indices.flatten()))
        return Exemplars(
            self._indices.numpy(),
            (-self._scores if self.search.lowest else self._scores).numpy(),
            inputs[0] if len(inputs) == 1 else inputs,
            self.names,
            self.seen,
            None if self._places is None else self._places.numpy(),
            None if self._places is None else self.map_shape,
            dead,
        )


class _Kept:
    """The inputs of some rows, by their numbers, which only grow."""

    def __init__(self) -> None:
        self._numbers: list[Tensor] = []
        self._inputs: list[tuple[Tensor, ...]] = []

    def add(self, numbers: Tensor, rows: Rows, start: int) -> None:
        """Keep some of these rows, the first of which has the number ``start``."""
        self._numbers.append(numbers)
        self._inputs.append(tuple(x[(numbers - start).to(x.device)] for x in rows.inputs))

    def trim(self, wanted: Tensor) -> None:
        """Let go of all but the wanted ones, once there are twice as many."""
        if sum(map(len, self._numbers)) > 2 * wanted.numel():
            numbers = _different(wanted)
            self._inputs, self._numbers = [self.take(numbers)], [numbers]

    def take(self, numbers: Tensor) -> tuple[Tensor, ...]:
        """Return the inputs of these rows."""
        places = torch.searchsorted(torch.cat(self._numbers), numbers)
        return tuple(torch.cat(parts)[places.to(parts[0].device)] for parts in zip(*self._inputs, strict=True))


def _different(numbers: Tensor) -> Tensor:
    return torch.from_numpy(np.unique(numbers.numpy()))


def _scores(values: Tensor, rows: Rows, search: Search) -> Tensor:
    """Return what is to be large, (n, U)."""
    values = -values if search.lowest else values
    if search.expert is None:
        return values
    density = search.expert(*rows.inputs)
    if not isinstance(density, Tensor) or density.shape != (len(rows),):
        shape = tuple(density.shape) if isinstance(density, Tensor) else type(density).__name__
        raise GEHTypeError(f"expert: it returned {shape} for {len(rows)} inputs; one log density each is wanted.")
    if bool(torch.isnan(density).any()):
        row = rows.index_of(int(torch.isnan(density).nonzero()[0]))
        raise GEHRuntimeError(f"expert: its log density is NaN at candidate {row}.")
    return values + density[:, None].to(values)


def _length(candidates: Any) -> int | None:
    """Return how many rows there are, None if that is not known."""
    if isinstance(candidates, DataLoader):
        candidates = candidates.dataset
    if isinstance(candidates, IterableDataset) or not hasattr(candidates, "__len__"):
        return None
    if isinstance(candidates, (tuple, dict)):
        parts = list(candidates.values()) if isinstance(candidates, dict) else list(candidates)
        return _length(parts[0]) if parts else 0
    try:
        return len(candidates)
    except TypeError:
        return None
