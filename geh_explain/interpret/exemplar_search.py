"""Search for the candidates that excite units most: activation maximisation with experts.

Activation maximisation (Erhan et al., 2009) looks for x* = argmax h_u(x) + log p(x), with the activation h_u of unit u
and the log density log p of an expert. Here x ranges over given candidates, so one pass finds the exact maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from tqdm.auto import tqdm

from geh_explain._validation import check_int
from geh_explain.data.loaders import in_order, is_ordered
from geh_explain.data.reader import Reader
from geh_explain.data.rows import Rows
from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError, warn
from geh_explain.interpret.diversity import check_cluster_count, cluster_codes
from geh_explain.interpret.exemplar_set import Exemplars
from geh_explain.interpret.responses import HiddenUnits, as_unit_set, check_finite, check_reduce, reduce_activations
from geh_explain.interpret.top_candidates import TopCandidates
from geh_explain.model.cut import Cut
from geh_explain.model.layers import Layer
from geh_explain.model.preserve import as_module, device_and_dtype, preserved
from geh_explain.units.base import Units

#: Log density of inputs: called with the model's inputs (n, ...), returns (n,).
Expert = Callable[..., Tensor]


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
    diverse: bool = False,
    clusters: Any = None,
    batch_size: int | None = None,
    progress: bool = True,
) -> Exemplars:
    """Find the candidates that excite units most, in one pass over the candidates.

    Parameters
    ----------
    model
        A network. It is used in eval mode and returned unchanged.
    layer
        The layer of the units: a dotted name, a module, or a :class:`~geh_explain.Layer`.
    units
        Index of a unit, several indices, a unit set, or None for all units of the layer (neurons, or channels of
        feature maps).
    candidates
        A tensor, ndarray, Dataset or DataLoader of inputs, or of tuples whose first entry is the inputs.
    k
        Number of candidates per unit. Ties are resolved in favour of the earlier candidate.
    reduce
        Reduction of a feature map to one number: ``"max"``, which also returns its position, or ``"mean"``.
    lowest
        Find the candidates with the lowest activations instead. They describe a unit with a negative effect.
    expert
        A function that returns the log density (n,) of inputs (n, ...), which is added to the activation. None:
        all candidates are equally likely.
    diverse
        Choose the k candidates among the 4 k best such that they differ in the layer's activations, instead of the k
        best ones, which may be parts of one photograph.
    clusters
        One label per candidate, such as the photograph it was cut from: the best candidate of each cluster is taken,
        then the second best, and so on.
    batch_size
        Rows per forward pass; None for 256.
    progress
        Whether to show a progress bar.

    Returns
    -------
    Exemplars
        Row numbers, scores and inputs of the k best candidates of each unit.

    Raises
    ------
    GEHValueError
        If there are fewer than k candidates, a unit or layer does not exist, or all units are dead.
    GEHRuntimeError
        If an activation is NaN or infinite.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    >>> with torch.no_grad():
    ...     _ = net[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])), net[0].bias.zero_()
    >>> candidates = torch.tensor([[1.0, 5.0], [2.0, 0.0], [3.0, 1.0]])
    >>> geh.interpret.exemplars(net, "0", [0, 2], candidates, k=2).indices.tolist()
    [[2, 1], [0, 2]]
    """
    if expert is not None and not callable(expert):
        raise GEHTypeError(f"expert={expert!r} is not callable; give a function of inputs that returns log densities.")
    search = CandidateSearch(
        check_int("k", k, 1),
        reduce,
        lowest,
        expert,
        batch_size,
        progress,
        diverse=diverse,
        clusters=cluster_codes(clusters),
    )
    module = as_module(model)
    with preserved(module):
        return search(HiddenUnits(module, layer, as_unit_set(units)), candidates).result()


@dataclass(frozen=True)
class CandidateSearch:
    """Options of a search among candidates; calling it runs the search.

    The score of candidate x for unit u is h_u(x) + log p(x), or -h_u(x) + log p(x) for the lowest, with the reduced
    activation h_u and the log density log p of the expert (0 without one).

    Attributes
    ----------
    k, reduce, lowest, expert, batch_size, progress
        As in :func:`exemplars`.
    keep_values
        Whether to keep the activations of all candidates.
    argument
        The user's name for the candidates, for messages.
    diverse
        As in :func:`exemplars`; None for diverse images, and the best of other inputs.
    clusters
        Codes of all candidates, from :func:`~geh_explain.interpret.diversity.cluster_codes`, or None.
    """

    k: int
    reduce: str = "max"
    lowest: bool = False
    expert: Expert | None = None
    batch_size: int | None = None
    progress: bool = True
    keep_values: bool = False
    argument: str = "candidates"
    diverse: bool | None = False
    clusters: Tensor | None = None

    @torch.no_grad()
    def __call__(self, hidden: HiddenUnits, candidates: Any) -> TopCandidates:
        """Search in one pass; call it inside ``preserved(model)``."""
        check_reduce(self.reduce)
        batch_size = None if self.batch_size is None else check_int("batch_size", self.batch_size, 1)
        n_candidates = _length(candidates)
        # Where the length is available, a wrong k is reported before the pass.
        self._check_k(n_candidates)
        if n_candidates is not None:
            check_cluster_count(self.clusters, n_candidates)
        self._check_order(candidates)
        device, dtype = device_and_dtype(hidden.model)
        reader = Reader(floating_only=False, device=device, dtype=dtype, argument=self.argument)
        top: TopCandidates | None = None
        with tqdm(total=n_candidates, desc="exemplars", unit="row", disable=not self.progress, leave=False) as bar:
            for rows in reader.stream(candidates, batch_size):
                if top is None:
                    # The shape of rows is known only now; two rows are enough to find the layer's shape.
                    cut = hidden.cut(rows[:2], self.argument)
                    top = self._start(cut, rows)
                activations = cut.activations(rows)
                responses = reduce_activations(cut, activations, self.reduce)
                check_finite(responses.values, rows, f"the activation of {cut.place}")
                top.add(responses, self._scores(responses.values, rows), rows, activations)
                bar.update(len(rows))
        if top is None:
            raise self._no_candidates()
        self._check_k(top.n_rows)
        check_cluster_count(self.clusters, top.n_rows)
        return top

    def _start(self, cut: Cut, rows: Rows) -> TopCandidates:
        """Return empty lists of candidates; images are chosen to differ unless ``diverse`` says otherwise."""
        is_image = rows.inputs[0].ndim == 4
        return TopCandidates(
            cut,
            self.k,
            lowest=self.lowest,
            keep_values=self.keep_values,
            diverse=is_image if self.diverse is None else self.diverse,
            clusters=self.clusters,
        )

    def _scores(self, values: Tensor, rows: Rows) -> Tensor:
        """Return the scores (n, U) of activations (n, U)."""
        values = -values if self.lowest else values
        if self.expert is None:
            return values
        density = self.expert(*rows.inputs)
        if not isinstance(density, Tensor) or density.shape != (len(rows),):
            shape = tuple(density.shape) if isinstance(density, Tensor) else type(density).__name__
            raise GEHTypeError(
                f"expert: it returned {shape} for {len(rows)} inputs; return one log density each, ({len(rows)},)."
            )
        if bool(torch.isnan(density).any()):
            row = rows.index_of(int(torch.isnan(density).nonzero()[0]))
            raise GEHRuntimeError(f"expert: its log density is NaN at candidate {row}; return -inf to exclude it.")
        return values + density[:, None].to(values)

    def _check_k(self, n_candidates: int | None) -> None:
        """Raise if there are no candidates, or fewer than are wanted."""
        if n_candidates == 0:
            raise self._no_candidates()
        if n_candidates is not None and self.k > n_candidates:
            raise GEHValueError(
                f"k={self.k}, but there are only {n_candidates} {self.argument}; use k={n_candidates} or less."
            )

    def _check_order(self, candidates: Any) -> None:
        """Warn if row numbers refer to the order of a sampler, which labels must then follow."""
        if isinstance(candidates, DataLoader) and not is_ordered(in_order(candidates)):
            warn(
                f"{self.argument}: the loader has a custom sampler; indices and labels refer to the order in which it "
                "yields rows. Pass the dataset itself for the order of the dataset."
            )

    def _no_candidates(self) -> GEHValueError:
        return GEHValueError(f"{self.argument} are empty; give at least k={self.k} rows.")


def _length(candidates: Any) -> int | None:
    """Return the number of candidates, or None if only a pass can count them."""
    if isinstance(candidates, DataLoader):
        candidates = candidates.dataset
    if isinstance(candidates, IterableDataset) or not hasattr(candidates, "__len__"):
        return None
    if isinstance(candidates, (tuple, dict)):
        # Several inputs of one model, with the same number of rows.
        parts = list(candidates.values()) if isinstance(candidates, dict) else list(candidates)
        return _length(parts[0]) if parts else 0
    try:
        return len(candidates)
    except TypeError:
        # A zero-dimensional tensor has __len__ and no length.
        return None
