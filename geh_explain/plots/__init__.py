"""Pictures of a result: one file per picture. Each takes ``ax=`` and returns it, and none calls show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geh_explain.interactions import Interactions


class Plots:
    """The pictures of one result, as methods; what ``result.plot`` is."""

    def __init__(self, result: Interactions) -> None:
        self._result = result

    def heatmap(self, measure: str = "geh", *, level: float = 0.95, most: int = 40, ax: Any = None) -> Any:
        """Draw the mean score of every pair; a dot marks the significant ones."""
        from geh_explain.plots.heatmap import heatmap

        return heatmap(self._result, measure, level=level, most=most, ax=ax)

    def intervals(self, measure: str = "geh", *, pairs: int = 15, level: float = 0.95, ax: Any = None) -> Any:
        """Draw mean and credible interval of the strongest pairs."""
        from geh_explain.plots.intervals import intervals

        return intervals(self._result, measure, pairs=pairs, level=level, ax=ax)
