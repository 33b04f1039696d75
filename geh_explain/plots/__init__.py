"""Pictures of a result: one file per picture. Each takes ``ax=`` and returns it, and none calls show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from geh_explain.errors import GEHTypeError

if TYPE_CHECKING:
    from geh_explain.analyses.surface import Surface
    from geh_explain.groups.number import GroupChoice
    from geh_explain.inference import PermutationTest
    from geh_explain.interpret.gallery import Gallery
    from geh_explain.results.interactions import Interactions


class Plots:
    """The pictures of one result, as methods; what ``result.plot`` is."""

    def __init__(self, result: Interactions) -> None:
        self._result = result

    def heatmap(
        self, measure: str = "geh", *, level: float = 0.95, most: int = 40, order: str = "given", ax: Any = None
    ) -> Any:
        """Draw the mean score of every pair; the ones that are not significant are hatched.

        With more than ``most`` units, the ones with the strongest pairs are shown. ``order="cluster"`` puts units that
        interact side by side.
        """
        from geh_explain.plots.heatmap import heatmap

        return heatmap(self._result, measure, level=level, most=most, order=order, ax=ax)

    def intervals(self, measure: str = "geh", *, pairs: int = 15, level: float = 0.95, ax: Any = None) -> Any:
        """Draw mean, 50 % interval (thick) and credible interval (thin) of the strongest pairs.

        ``measure="all"`` draws all three measures of the pairs that GEH finds strongest.
        """
        from geh_explain.plots.intervals import intervals

        return intervals(self._result, measure, pairs=pairs, level=level, ax=ax)

    def network(
        self,
        measure: str = "geh",
        *,
        level: float = 0.95,
        most: int = 30,
        pairs: int = 60,
        main: Any = None,
        images: Mapping[str, Any] | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw units on a circle, and their strongest ``pairs`` as edges.

        The width of an edge is the strength of the pair, its colour the sign in most regions (weighted by their
        points), its opacity how certain it is; an edge is dashed if the pair is not significant at ``level``. The area
        of a unit is its ``main`` effect (D,), by default that of the result (``result.main.strength``). ``images`` has
        pictures (H, W) or (H, W, 3) of units, by name. With more than ``most`` units, the ones with the strongest pairs
        are shown.
        """
        from geh_explain.plots.network import network

        return network(self._result, measure, level=level, most=most, pairs=pairs, main=main, images=images, ax=ax)

    def regions(self, i: int | str, j: int | str, *, level: float = 0.95, ax: Any = None) -> Any:
        """Draw the signed effect of a pair in each region, with its credible interval."""
        from geh_explain.plots.regions import regions

        return regions(self._result, i, j, level=level, ax=ax)

    def draws(self, measure: str = "geh", *, pairs: int = 8, ax: Any = None) -> Any:
        """Draw the density of the posterior draws of the strongest pairs, with their means marked."""
        from geh_explain.plots.draws import draws

        return draws(self._result, measure, pairs=pairs, ax=ax)

    def delta(self, choice: GroupChoice, ax: Any = None) -> Any:
        """Draw how ``explainer.choose_groups`` chose the number of groups."""
        from geh_explain.groups.number import GroupChoice

        return _checked("choice", choice, GroupChoice, "explainer.choose_groups(inputs)").plot(ax=ax)

    def null(self, test: PermutationTest, *, pairs: int = 3, ax: Any = None) -> Any:
        """Draw what chance alone makes of the strongest pair in ``inference.permutation_test``."""
        from geh_explain.inference import PermutationTest

        return _checked("test", test, PermutationTest, "inference.permutation_test(fit, X, y)").plot(pairs=pairs, ax=ax)

    def surface(self, surface: Surface, *, ax: Any = None) -> Any:
        """Draw the joint effect of two units that ``explainer.surface`` found."""
        from geh_explain.analyses.surface import Surface

        return _checked("surface", surface, Surface, "explainer.surface(inputs, pair=(i, j))").plot(ax=ax)

    def gallery(self, gallery: Gallery, labels: Any = None) -> Any:
        """Draw what ``explainer.interpret`` found to excite the strongest pairs, and return the figure."""
        from geh_explain.interpret.gallery import Gallery

        return _checked("gallery", gallery, Gallery, "explainer.interpret(result, candidates)").plot(labels)


def _checked(name: str, value: Any, kind: type, source: str) -> Any:
    """Return ``value`` if it is of that kind."""
    if not isinstance(value, kind):
        raise GEHTypeError(f"{name}={value!r} must be a {kind.__name__}, which {source} returns.")
    return value
