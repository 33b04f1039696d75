"""What a rule decides about each pair, in numbers and in words. Tables, plots, the report and exports all read this."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geh_explain._process import cached_property
from geh_explain._types import Floats, Ints

#: Rules, and the false discovery rate of those that have one by default.
RULES = ("evidence", "sign", "interval")
DEFAULT_FDR = 0.05
#: The measure that orders pairs by the part of their GEH that held-out labels support.
SUPPORTED = "supported"

#: For each rule the column of its decisions.
_COLUMNS = {"evidence": "significant", "sign": "stable", "interval": "significant"}


@dataclass(frozen=True)
class Decisions:
    """Scores of P pairs in one measure, their intervals, and the decision of one rule about each pair.

    Attributes
    ----------
    rule
        ``"evidence"``: held-out labels support the pair, at the false discovery rate ``fdr``. ``"sign"``: the sign of
        the interaction holds over draws and points in this network, at ``fdr``. ``"interval"``: the interval of the
        score over draws excludes 0, and if ``fdr`` is given, the pair is also a discovery by its Bayesian p-value.
    measure
        ``"geh"``, ``"aeh"``, ``"eah"`` or ``"supported"``; it orders the pairs.
    level
        Level of the intervals.
    fdr
        False discovery rate, None if the rule used none.
    mean, std
        Mean and standard deviation (P,) of the score over draws; the score is GEH if the measure is ``"supported"``.
    low, high
        Ends (P,) of the intervals of the score; NaN where its uncertainty is unknown.
    sources
        What the intervals count: ``"draws"``, ``"points"``, both or none.
    p_value
        P-values (P,) of the rule; NaN for pairs that were not tested.
    supported
        ``mean`` (P,) times the expected share that held-out labels contain, which is 1/2 for pairs that were not
        tested; None without evidence.
    accepted
        The decisions (P,): significant or stable. None if the rule cannot decide, with a single draw.
    true_interval
        Ends (P,) of the intervals of the true GEH, from held-out labels; None where there are none.
    """

    rule: str
    measure: str
    level: float
    fdr: float | None
    mean: Floats
    std: Floats
    low: Floats
    high: Floats
    sources: tuple[str, ...]
    p_value: Floats
    supported: Floats | None
    accepted: NDArray[np.bool_] | None
    true_interval: tuple[Floats, Floats] | None = None

    @property
    def column(self) -> str:
        """Name of the column of the decisions: ``"significant"`` or ``"stable"``."""
        return _COLUMNS[self.rule]

    @property
    def label(self) -> str:
        """What an accepted pair is, in the words of a legend."""
        if self.rule == "interval":
            return "interval excludes 0 (paper's rule)" + (f", FDR {percent(self.fdr)}" if self.fdr else "")
        return f"significant, FDR {percent(self.fdr)}" if self.rule == "evidence" and self.fdr else self.column

    @property
    def other_label(self) -> str:
        """What a pair is that was not accepted, in the words of a legend."""
        return "interval contains 0" if self.rule == "interval" and self.fdr is None else f"not {self.column}"

    @property
    def score_name(self) -> str:
        """Name of the score of which ``mean``, ``low`` and ``high`` are: ``"GEH"``, ``"AEH"`` or ``"EAH"``."""
        return "GEH" if self.measure == SUPPORTED else self.measure.upper()

    @property
    def strength_name(self) -> str:
        """Name of :attr:`strength`."""
        return "supported GEH" if self.measure == SUPPORTED else self.score_name

    @property
    def strength(self) -> Floats:
        """What orders the pairs (P,): the mean score, or its supported part."""
        return self.supported if self.measure == SUPPORTED and self.supported is not None else self.mean

    @cached_property
    def order(self) -> Ints:
        """Indices (P,) of the pairs, the strongest first; those of equal strength are in the order of their mean."""
        return np.lexsort((-self.mean, -self.strength))

    @property
    def unsure(self) -> NDArray[np.bool_]:
        """Pairs (P,) that the rule did not accept; none where it cannot decide."""
        return np.zeros(len(self.mean), dtype=bool) if self.accepted is None else ~self.accepted

    @property
    def has_intervals(self) -> bool:
        """Whether the uncertainty of the scores is known."""
        return bool(self.sources)


def percent(level: float | None) -> str:
    """Return a level or rate as a percentage.

    >>> percent(0.95), percent(0.999), percent(0.05)
    ('95 %', '99.9 %', '5 %')
    """
    return "" if level is None else f"{100 * level:.3g} %"
