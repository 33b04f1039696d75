"""The columns of the sums of a run: its pairs, or differences between levels for pairs of categories."""

from __future__ import annotations

from dataclasses import dataclass, replace

from geh_explain._types import Floats
from geh_explain.engines.base import EngineRun, Limits
from geh_explain.engines.level_contrasts import LevelContrasts
from geh_explain.model.cut import Cut
from geh_explain.run.options import RunOptions
from geh_explain.units.categorical import Categorical, refuse_categories
from geh_explain.units.contrasts import Contrasts
from geh_explain.units.pair_set import PairSet


@dataclass(frozen=True)
class Columns:
    """What the sums of a run have columns for; ``len(columns)`` is their number.

    Attributes
    ----------
    pairs
        The P pairs of the run: one column each, unless there are categories.
    units
        The units, if they have categories, else None.
    contrasts
        The differences between levels of categories, None without categories.
    """

    pairs: PairSet
    units: Categorical | None = None
    contrasts: Contrasts | None = None

    def __len__(self) -> int:
        return len(self.pairs) if self.contrasts is None else self.contrasts.n_columns

    @property
    def numeric(self) -> PairSet:
        """The pairs that an engine computes: those of numeric units."""
        return self.pairs if self.contrasts is None else self.contrasts.numeric

    @property
    def n_slopes(self) -> int:
        """Number of first derivatives: one per unit, and with categories the outputs at each of their levels."""
        levels = () if self.contrasts is None else self.contrasts.levels.values()
        return self.pairs.n_units + sum(map(len, levels))

    def limited(self, limits: Limits) -> Limits:
        """Return the limits of the engine; with categories absolute interactions are measured at all points."""
        return limits if self.contrasts is None else replace(limits, eah_points=limits.n_points)

    def factors(self, std: Floats) -> Floats:
        """Return the factors (D,) of ``scale="std"`` from the standard deviations (D,) of the units' values."""
        return std if self.units is None else self.units.factors(std)

    def start(self, engine: EngineRun) -> LevelContrasts | None:
        """Return what computes the differences between levels beside ``engine``, None without categories."""
        if self.contrasts is None or self.units is None:
            return None
        return LevelContrasts(engine, self.units, self.contrasts)


def plan_columns(cut: Cut, pairs: PairSet, options: RunOptions) -> Columns:
    """Return the columns of the ``pairs`` that a call asks for.

    Raises
    ------
    GEHValueError
        If there are categories, and options that do not take them.
    """
    if not isinstance(cut.units, Categorical):
        return Columns(pairs)
    if options.request.automatic:
        refuse_categories(cut.units, "rows='auto'", "Give units by name or index, rows=['ocean', 'income'].")
    if options.request.top is not None:
        refuse_categories(cut.units, "search()", "explain(pairs=[...]) and explain(unit=...) take categories.")
    return Columns(pairs, cut.units, cut.units.contrasts(pairs))
