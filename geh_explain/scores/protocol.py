"""The part of a result that plots, the report and the exports read.

They come before :class:`geh_explain.Interactions` in the import order, so they are typed by these protocols, which
``Interactions`` and its record of the run satisfy structurally.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats, Ints
from geh_explain.scores.cluster_spread import ClusterErrors
from geh_explain.scores.decisions import Decisions
from geh_explain.scores.draws import LevelDraws
from geh_explain.scores.evidence import Evidence
from geh_explain.scores.main_effects import MainEffects
from geh_explain.scores.pair_cells import PairCells
from geh_explain.scores.pair_scores import Scores
from geh_explain.units.pair_set import PairSet

if TYPE_CHECKING:
    import pandas as pd


class RunDescription(Protocol):
    """What is read of the record of a run; see :class:`geh_explain.run.record.RunRecord`."""

    @property
    def model(self) -> str:
        """Class name of the model."""

    @property
    def place(self) -> str:
        """Where the units are, in words: "the inputs" or "layer 'conv2'"."""

    @property
    def posterior(self) -> str:
        """Repr of the posterior."""

    @property
    def scale(self) -> Any:
        """The argument ``scale`` of the run; None if units were not scaled."""

    @property
    def eah_points(self) -> int | None:
        """Number of points per draw from which EAH is measured, None if unknown."""

    @property
    def pair_request(self) -> str | None:
        """The argument that chose the pairs, as text; None for all of them."""

    @property
    def row_search(self) -> str | None:
        """What a search for rows or for the strongest pairs found, in words; None without one."""

    @property
    def warnings(self) -> list[str]:
        """Warnings of the run."""


class GroupMeans(Protocol):
    """Means over groups and their errors: what is read of a result's pairs, or of its differences between levels."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """Group of each point (N,); -1 for points of weight 0."""

    @property
    def n_points(self) -> int:
        """Number of points that count."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of points of each group (M,); (M, P) where each pair has groups of its own."""

    @property
    def group_shares(self) -> Floats:
        """Share of each group (M,) in the case weights, or in the points; (M, P) for groups of each pair."""

    @property
    def sample_weight(self) -> Floats | None:
        """Case weights (N,); None where all points count alike."""

    @property
    def effective_counts(self) -> Floats | Ints:
        """Effective number of points (M,), or of clusters of points, that the error of each group's mean rests on."""

    @property
    def weight_moments(self) -> Floats | None:
        """Sums (M, P) beside ``point_errors`` where points have case weights, else None."""

    @property
    def record(self) -> RunDescription:
        """The record of the run."""

    @property
    def signed_means(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation over draws of each group's mean interaction, both (M, P)."""

    @property
    def point_errors(self) -> Floats | None:
        """Standard errors (M, P) of the group means due to the finite choice of points, None if unknown."""

    @property
    def cluster_errors(self) -> ClusterErrors | None:
        """Covariance of the groups' shares where points come in clusters, else None."""

    def scores(self, measure: str = "geh") -> Scores:
        """Return the scores of ``"geh"``, ``"aeh"`` or ``"eah"``."""


class PairResult(GroupMeans, Protocol):
    """Pairwise interactions of D units over N points in M groups; see :class:`geh_explain.Interactions`."""

    @property
    def names(self) -> list[str]:
        """Names of the units (D)."""

    @property
    def pairs(self) -> PairSet:
        """The P pairs that were computed, which all arrays (P,) are about."""

    @property
    def settings(self) -> dict[str, Any]:
        """The record of the run as a plain dict."""

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measures that were computed."""

    @property
    def group_names(self) -> list[str]:
        """Names of the groups (M)."""

    @property
    def pair_cells(self) -> PairCells | None:
        """The groups of each pair, None where all pairs have the same groups."""

    @property
    def group_descriptions(self) -> list[str] | None:
        """What the groups are, in words (M); None if this is not known."""

    @property
    def weight_sums(self) -> Floats | Ints:
        """Sum of the case weights of each group (M,); its number of points without weights."""

    @property
    def main(self) -> MainEffects:
        """Main effects; raises if there are none."""

    @property
    def has_main(self) -> bool:
        """Whether there are main effects."""

    @property
    def level_draws(self) -> LevelDraws | None:
        """Draws of the differences between levels of categories, None without categories."""

    @property
    def evidence(self) -> Evidence | None:
        """Outcome of the test on held-out labels, None if there is none."""

    def decisions(
        self,
        measure: str | None = None,
        level: float = 0.95,
        fdr: float | None = None,
        *,
        rule: str | None = None,
        source: str | None = None,
    ) -> Decisions:
        """Return the scores, intervals and decisions of all pairs by one rule."""

    def table(
        self,
        measure: str | None = None,
        level: float = 0.95,
        fdr: float | None = None,
        *,
        rule: str | None = None,
        unit: int | str | None = None,
        source: str | None = None,
    ) -> pd.DataFrame:
        """Return one row per pair, the strongest first."""

    def regions(self, i: int | str, j: int | str, level: float = 0.95) -> pd.DataFrame:
        """Return one row per group with the signed effect of the pair (i, j)."""

    def levels(self, i: int | str, j: int | str, level: float = 0.95) -> pd.DataFrame:
        """Return one row per difference between levels of a pair with a category, the strongest first."""

    def group_half_widths(self, level: float, pairs: Ints) -> Floats:
        """Return half the widths (M, p) of the intervals of the group means of p pairs; NaN where nothing is known."""

    def pair(self, i: int | str, j: int | str) -> int:
        """Return the index of the pair (i, j)."""

    def sign_p_values(self) -> Floats:
        """Return the p-value (P,) of each pair by the sign rule; NaN if its uncertainty is unknown."""

    def majority_signs(self) -> NDArray[np.int64]:
        """Return the sign (P,) of each pair's effect in most of the data: 1, -1 or 0."""

    @property
    def output_std(self) -> float | None:
        """Standard deviation of the explained output over the points; None where it was not measured."""

    def findings(self) -> list[str]:
        """Return what was measured of the network beside the pairs, one sentence each."""

    def interaction_share(self, level: float = 0.95) -> tuple[float, float, float] | None:
        """Return the share of all interactions in the output's variance with its interval; None if not measured."""

    def pair_shares(self, level: float = 0.95) -> dict[int, tuple[float, float, float]]:
        """Return the share of pairs in the output's variance with its interval, by their index; those measured."""

    def open_questions(self) -> list[str]:
        """Return what was not measured yet and can be, with the call that does it."""

    def measure_for_page(self, share: bool | None) -> None:
        """Measure the share of interactions for the page: True, False, or None if that is fast."""
