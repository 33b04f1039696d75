"""The comparison of two results, pair by pair: two networks, two populations, two checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geh_explain._process import cached_property
from geh_explain._types import Floats, Ints
from geh_explain._validation import check_int
from geh_explain.errors import GEHValueError
from geh_explain.plots.comparison import draw_comparison
from geh_explain.scores.decisions import percent
from geh_explain.scores.pair_names import join_names
from geh_explain.scores.ranking import find_unit
from geh_explain.units.pair_set import PairSet

if TYPE_CHECKING:
    import pandas as pd

#: How many pairs that differ are named in the text.
_NAMED_PAIRS = 3


@dataclass(frozen=True)
class GroupDifferences:
    """Means of P pairs in the M common groups of two results, and their differences.

    Attributes
    ----------
    names
        Names of the groups (M).
    weights
        Share (M,) of the points in each group; where the points differ, the mean of both shares.
    mean_a, mean_b
        Signed means (M, P) of the local interactions in both results.
    half_width
        Half the widths (M, P) of the intervals of ``mean_a - mean_b``; NaN where nothing is known of them.
    p_value
        Two-sided p-values (M, P) of the single differences.
    descriptions
        What the groups are, in words (M); None if this is not known.
    """

    names: list[str]
    weights: Floats
    mean_a: Floats
    mean_b: Floats
    half_width: Floats
    p_value: Floats
    descriptions: list[str] | None = None


@dataclass(frozen=True)
class Comparison:
    """Differences of P pairs between two results A and B, with their uncertainty; :meth:`Interactions.compare`.

    With the mean local interaction theta_m in group m of the points, of weight w_m, and delta_m = theta_m(A) -
    theta_m(B), the difference of a pair is by ``measure`` ::

        "groups"    sum_m w_m |delta_m|                  hypothesis: all delta_m are 0
        "mean"      mean over all points of A minus B    hypothesis: it is 0
        "geh", "aeh", "eah"      score of A minus score of B

    Attributes
    ----------
    measure
        What is compared, see above.
    labels
        What A and B are called in text and plots.
    names
        Names of the units (D).
    pairs
        The P pairs that both results have.
    mean_a, mean_b
        Scores (P,) of both results, means over draws; for the measure ``"mean"`` their signed means.
    difference
        Difference (P,) of each pair; not negative for the measure ``"groups"``.
    low, high
        Ends (P,) of its intervals; NaN where its uncertainty is unknown.
    p_value
        P-values (P,) of the hypothesis that there is no difference.
    different
        Pairs (P,) that are discoveries at the false discovery rate ``fdr``; None if nothing is known of errors.
    level, fdr
        Level of the intervals, and false discovery rate.
    same_points
        Whether both results are about the same points.
    sources
        What the intervals count: ``"draws"``, ``"points"``, both or none.
    groups
        The common groups; None for the measures ``"geh"``, ``"aeh"`` and ``"eah"``.
    notes
        What must be known about the comparison, one sentence each.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> def explained(network):
    ...     explainer = geh.GEHExplainer(network, posterior=geh.posterior.PointEstimate())
    ...     return explainer.explain(x, groups=2, progress=False)
    >>> before = explained(lambda x: x[:, 0] * x[:, 1] + torch.sin(x[:, 1] * x[:, 2]))
    >>> after = explained(lambda x: 3 * x[:, 0] * x[:, 1] + torch.sin(x[:, 1] * x[:, 2]))
    >>> comparison = before.compare(after)
    >>> comparison.table().head(1)[["unit_i", "unit_j", "difference", "different"]].round(3).values.tolist()
    [['x0', 'x1', 2.0, True]]
    """

    measure: str
    labels: tuple[str, str]
    names: list[str]
    pairs: PairSet
    mean_a: Floats
    mean_b: Floats
    difference: Floats
    low: Floats
    high: Floats
    p_value: Floats
    different: NDArray[np.bool_] | None
    level: float
    fdr: float
    same_points: bool
    sources: tuple[str, ...]
    groups: GroupDifferences | None = None
    notes: list[str] = field(default_factory=list)

    @cached_property
    def order(self) -> Ints:
        """Indices (P,) of the pairs, the largest absolute difference first."""
        return np.argsort(-np.abs(self.difference), kind="stable")

    def table(self, unit: int | str | None = None) -> pd.DataFrame:
        """Return one row per pair, the largest difference first.

        Parameters
        ----------
        unit
            Name or index of a unit whose pairs are returned; None for all pairs. Decisions are the same.

        Returns
        -------
        DataFrame
            unit_i, unit_j, mean_a, mean_b, difference, low, high, p_value, different. Unknown numbers are NaN,
            unknown decisions missing values.
        """
        import pandas as pd

        first, second = self.pairs.ends
        columns: dict[str, Any] = {
            "unit_i": [self.names[i] for i in first],
            "unit_j": [self.names[j] for j in second],
            **{name: getattr(self, name) for name in ("mean_a", "mean_b", "difference", "low", "high", "p_value")},
        }
        unknown = self.different is None
        columns["different"] = pd.array([pd.NA] * len(first), dtype="boolean") if unknown else self.different
        order = self.order
        if unit is not None:
            order = order[self.pairs.has_unit(find_unit(unit, self.names))[order]]
        return pd.DataFrame(columns).iloc[order].reset_index(drop=True)

    def regions(self, i: int | str, j: int | str) -> pd.DataFrame:
        """Return one row per common group of points with the signed effects of a pair in both results.

        Parameters
        ----------
        i, j
            The two units, by name or index.

        Returns
        -------
        DataFrame
            Indexed by the names of the groups: share (of the points), mean_a, mean_b, difference, low, high, p_value,
            and description where the groups have one. Intervals and p-values are those of single groups.
        """
        import pandas as pd

        groups = self.groups
        if groups is None:
            raise GEHValueError(
                f"regions: measure={self.measure!r} compares scores; compare(other, measure='groups') compares groups."
            )
        first, second = find_unit(i, self.names), find_unit(j, self.names)
        if first == second:
            raise GEHValueError(f"i={i!r} and j={j!r} are the same unit; an interaction needs two.")
        pair = self.pairs.index(first, second, self.names)
        difference, half = (groups.mean_a - groups.mean_b)[:, pair], groups.half_width[:, pair]
        columns: dict[str, Any] = {
            "share": groups.weights,
            "mean_a": groups.mean_a[:, pair],
            "mean_b": groups.mean_b[:, pair],
            "difference": difference,
            "low": difference - half,
            "high": difference + half,
            "p_value": groups.p_value[:, pair],
        }
        if groups.descriptions is not None:
            columns["description"] = groups.descriptions
        return pd.DataFrame(columns, index=pd.Index(groups.names, name="group"))

    def plot(self, *, pairs: int = 12, ax: Any = None) -> Any:
        """Draw the scores in A and B of the pairs that differ most, with their differences and intervals.

        Parameters
        ----------
        pairs
            Number of pairs.
        ax
            Axes to draw into, or None for a new figure.

        Returns
        -------
        Axes
            The axes; pairs that do not differ at the false discovery rate are grey.
        """
        return draw_comparison(self, pairs=check_int("pairs", pairs, 1), ax=ax)

    def __repr__(self) -> str:
        return " ".join([self._describe_outcome(), self._describe_method(), *self.notes])

    def _describe_outcome(self) -> str:
        """Return how many pairs differ, and which most, as a sentence."""
        a, b = self.labels
        total = len(self.difference)
        pairs = "1 pair" if total == 1 else f"{total:,} pairs"
        if self.different is None:
            return f"{pairs} of {a} and {b} compared; with one draw and unknown errors of points no test is possible."
        found = [pair for pair in self.order if self.different[pair]]
        verb = "differs" if len(found) == 1 else "differ"
        if not found:
            return f"None of {pairs} differs between {a} and {b} (false discovery rate {percent(self.fdr)})."
        first, second = self.pairs.ends
        named = [join_names(self.names[first[pair]], self.names[second[pair]]) for pair in found[:_NAMED_PAIRS]]
        most = "" if len(found) <= _NAMED_PAIRS else "most of all "
        return (
            f"{len(found):,} of {pairs} {verb} between {a} and {b} (false discovery rate {percent(self.fdr)}): "
            f"{most}{', '.join(named)}."
        )

    def _describe_method(self) -> str:
        """Return what was compared, over which points and with which errors, as a sentence."""
        points = "at the same points" if self.same_points else "at different points"
        count = 0 if self.groups is None else len(self.groups.names)
        what = {
            "groups": f"mean interactions in {count} group{'s' * (count != 1)} of points",
            "mean": "mean interactions over all points",
        }.get(self.measure, f"{self.measure.upper()} scores")
        errors = f"; intervals are over {' and '.join(self.sources)}" if self.sources else ""
        return f"Compared are {what}, {points}{errors}."
