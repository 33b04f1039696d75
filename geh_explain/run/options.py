"""Options of a run: the arguments of ``explain()``, checked once."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geh_explain._validation import check_int
from geh_explain.data.case_weights import CaseWeights
from geh_explain.data.targets import Target
from geh_explain.errors import GEHValueError
from geh_explain.groups.assignment import MAX_GROUPS
from geh_explain.groups.clusters import check_clusters
from geh_explain.groups.grouping import check_groups, from_labels
from geh_explain.groups.pairwise import PAIRWISE
from geh_explain.run.pair_request import ALL_PAIRS, PairRequest
from geh_explain.scores.draws import MEASURES

#: The word for a number that the run itself decides on.
AUTO = "auto"
#: Draws of ``draws="auto"`` at most.
MAX_AUTO_DRAWS = 400
#: The word for ranks that have rows of their own.
SHARDS = "shards"
#: Values that ``scale`` takes.
Scale = str | Sequence[float] | NDArray[np.floating[Any]] | None


@dataclass(frozen=True)
class RunOptions:
    """The keyword arguments of :meth:`~geh_explain.GEHExplainer.explain`, with the same names and meanings.

    ``request`` holds those that choose pairs.
    ``max_groups`` and ``pilot_draws`` are set by :meth:`~geh_explain.GEHExplainer.choose_groups`: the largest number of
    groups that is tried (None for a default that fits into memory), and the number of draws that decide (None for a
    default).
    """

    target: Target = None
    additional_forward_args: Any = None
    groups: Any = "auto"
    clusters: Any = None
    sample_weight: Any = None
    draws: int | str = 100
    scale: Scale = None
    batch_size: int | None = None
    eah_points: int | None = None
    measures: Sequence[str] | None = None
    memory: float | None = None
    seed: int = 0
    progress: bool = True
    checkpoint: str | os.PathLike[str] | None = None
    distributed: bool | str | None = None
    names: Sequence[str] | None = None
    request: PairRequest = ALL_PAIRS
    max_groups: int | None = None
    pilot_draws: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.draws, str) and self.draws != AUTO:
            raise GEHValueError(f"draws={self.draws!r} is unknown; give a number, or 'auto'.")
        _check_ints(self, seed=0, batch_size=1, eah_points=1, max_groups=2)
        if self.draws != AUTO:
            _check_ints(self, draws=1)
        check_groups(self.groups)
        check_clusters(self.clusters)
        self._check_measures()
        if self.pairwise:
            self._check_pairwise()

    def _check_measures(self) -> None:
        """Check the names of measures, and store them as a tuple."""
        if self.measures is None:
            return
        wrong = isinstance(self.measures, str) or not isinstance(self.measures, Collection) or not self.measures
        if wrong or not set(self.measures) <= set(MEASURES):
            raise GEHValueError(
                f"measures={self.measures!r}: give names among {', '.join(map(repr, MEASURES))}, such as "
                "('aeh', 'geh'); or None, which measures EAH at as many points as do not slow the rest down."
            )
        object.__setattr__(self, "measures", tuple(name for name in MEASURES if name in self.measures))
        if self.eah_points is not None and not self.measures_eah:
            raise GEHValueError(
                f"eah_points={self.eah_points} is for EAH, and measures={self.measures!r} leaves it out."
            )

    @property
    def measures_eah(self) -> bool:
        """Whether EAH is among the measures."""
        return self.measures is None or "eah" in self.measures

    def _check_pairwise(self) -> None:
        """Refuse options that need groups which all pairs have in common."""
        for name in ("clusters", "sample_weight"):
            if getattr(self, name) is not None:
                raise GEHValueError(f"groups={PAIRWISE!r} does not go with {name}=; use a number of groups, or labels.")
        if self.request.automatic or self.request.top is not None:
            searching = "rows='auto'" if self.request.automatic else "search()"
            raise GEHValueError(
                f"groups={PAIRWISE!r} does not go with {searching}, which searches in groups that all pairs have in "
                "common; use a number of groups, or give units, for instance rows=explainer.screen(inputs)."
            )

    def counted(self, weights: CaseWeights) -> RunOptions:
        """Return the options of a run without the rows of weight 0: labels of groups and clusters of the others."""
        labels = {"clusters": self.clusters}
        if not isinstance(self.groups, (str, int, np.integer)) and not hasattr(self.groups, "fit_predict"):
            labels["groups"] = self.groups
        if weights.kept is None:
            return self
        for name, entries in labels.items():
            if entries is not None:
                from_labels(entries, weights.rows, name)  # raises if there is not one label per row
        return replace(
            self, **{name: weights.select(entries) for name, entries in labels.items() if entries is not None}
        )

    @property
    def max_draws(self) -> int:
        """How many draws are computed at most."""
        return MAX_AUTO_DRAWS if isinstance(self.draws, str) else self.draws

    @property
    def stops_when_settled(self) -> bool:
        """Whether draws end as soon as the order of the strongest pairs is settled."""
        return self.draws == AUTO

    @property
    def groups_are_chosen(self) -> bool:
        """Whether the package chooses the number of groups."""
        return isinstance(self.groups, str) and not self.pairwise

    @property
    def shards(self) -> bool:
        """Whether each rank has rows of its own."""
        return self.distributed == SHARDS

    @property
    def pairwise(self) -> bool:
        """Whether each pair has groups of its own."""
        return isinstance(self.groups, str) and self.groups == PAIRWISE

    def largest_group_number(self, bytes_per_pair: int) -> int:
        """Return how many groups are tried where their number is open, with so many bytes of memory per pair."""
        # Scores of every number of groups are held at once, with some copies: about 112 bytes per pair and group.
        return self.max_groups or min(MAX_GROUPS, max(2, bytes_per_pair // 112))


@dataclass(frozen=True)
class AnalysisOptions:
    """Options that the analyses of an explainer share: posterior draws, rows per batch, seed, progress bar."""

    draws: int = 1
    batch_size: int | None = None
    seed: int = 0
    progress: bool = True

    def __post_init__(self) -> None:
        _check_ints(self, draws=1, seed=0, batch_size=1)


def _check_ints(options: RunOptions | AnalysisOptions, **minimum: int) -> None:
    """Check integer fields against their minimum, and store them as plain ints; None stays None where it is allowed."""
    for name, least in minimum.items():
        value = getattr(options, name)
        if value is not None or name in ("draws", "seed"):
            # The dataclasses are frozen; this runs while they are constructed.
            object.__setattr__(options, name, check_int(name, value, least))
