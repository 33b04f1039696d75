"""The result: which pairs of units act together, how strongly, and how sure we are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geh_explain._validation import check_int
from geh_explain.errors import GEHValueError, warn
from geh_explain.run.record import RunRecord
from geh_explain.scores.draws import MEASURES, DrawMoments, Draws
from geh_explain.scores.main_effects import MainEffects
from geh_explain.scores.moments import Moments
from geh_explain.scores.pair_scores import Scores
from geh_explain.scores.ranking import PairRanking, find_unit

if TYPE_CHECKING:
    import pandas as pd

    from geh_explain.analyses.ablation import AblationCheck as Check
    from geh_explain.analyses.surface import Surface
    from geh_explain.explainer import GEHExplainer
    from geh_explain.interpret.gallery import Gallery
    from geh_explain.plots import Plots
from geh_explain._types import Floats
from geh_explain._validation import check_level, check_rate
from geh_explain.results.files import read, write
from geh_explain.scores.measures import pair_index
from geh_explain.statistics.intervals import gaussian_interval
from geh_explain.statistics.p_values import bayesian_p_value, benjamini_hochberg, sign_p_value


class Interactions:
    """Pairwise interactions of units, with their uncertainty.

    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
    >>> result = geh.GEHExplainer(net).explain(torch.randn(60, 3), groups=2, draws=20, progress=False)
    >>> result.geh.mean.shape, result.table().shape, list(result.regions("x0", "x1").columns[:2])
    ((3, 3), (3, 8), ['size', 'mean'])
    """

    def __init__(
        self,
        draws: Draws | DrawMoments,
        labels: NDArray[np.int64],
        names: list[str],
        group_names: list[str],
        record: RunRecord,
    ) -> None:
        self._draws = draws
        self.labels, self.names, self.group_names = labels, names, group_names
        self.record = record
        self.settings = record.to_settings()
        self.sizes = np.bincount(labels, minlength=len(group_names))

    @property
    def signed(self) -> Floats:
        """The mean local interaction of each draw, group and pair (K, M, P)."""
        return self._kept.signed

    @property
    def absolute(self) -> Floats:
        """The mean absolute local interaction of each draw and pair (K, P)."""
        return self._kept.absolute

    @property
    def noise(self) -> Floats | None:
        """Standard errors of ``signed`` where the engine estimates it, else None."""
        return self._draws.noise if isinstance(self._draws, Draws) else None

    @property
    def _kept(self) -> Draws:
        if isinstance(self._draws, Draws):
            return self._draws
        self.geh.draws  # noqa: B018, raises with the remedy
        raise AssertionError

    def _scores(self, measure: str) -> Scores:
        if isinstance(self._draws, Draws):
            return Scores(self._draws.scores(measure, self.sizes), len(self.names))
        return Scores(getattr(self._draws, measure), len(self.names))

    @cached_property
    def geh(self) -> Scores:
        """Group expected Hessian: signs cancel within a group, not between groups."""
        return self._scores("geh")

    @cached_property
    def aeh(self) -> Scores:
        """Absolute expected Hessian: signs cancel over all points."""
        return self._scores("aeh")

    @cached_property
    def eah(self) -> Scores:
        """Expected absolute Hessian: nothing cancels."""
        some = self.settings.get("eah_points", len(self.labels))
        if some < len(self.labels):
            warn(
                f"eah: measured on {some} of {len(self.labels)} points in each draw, as every point needs all pairs of "
                f"{len(self.names)} units; explain(eah_points={len(self.labels)}) takes all points."
            )
        return self._scores("eah")

    @property
    def main(self) -> MainEffects:
        """What each unit does by itself: expected gradients, with intervals from the same draws."""
        slopes = self._draws.slopes
        if slopes is None or not self.has_main:
            raise GEHValueError(
                "main: this result has no main effects; its engine gives no first derivatives, or it was saved by an "
                "older version. Explain again with one of the engines of geh_explain.engines."
            )
        return MainEffects(slopes, self.sizes, self.names)

    @property
    def has_main(self) -> bool:
        """Whether there are main effects: engines of a user's own may give none."""
        slopes = self._draws.slopes
        return slopes.count > 0 if isinstance(slopes, Moments) else slopes is not None

    def scores(self, measure: str = "geh") -> Scores:
        """Return the scores of a measure by its name."""
        if measure not in MEASURES:
            raise GEHValueError(f"measure={measure!r} is unknown; use 'geh', 'aeh' or 'eah'.")
        scores: Scores = getattr(self, measure)
        return scores

    def table(
        self, measure: str = "geh", level: float = 0.95, fdr: float | None = None, *, rule: str = "interval"
    ) -> pd.DataFrame:
        """Return all pairs as a DataFrame, the strongest first.

        A pair is significant if its Gaussian interval at ``level`` excludes 0 (``rule="interval"``, the paper's), or
        if the signed means of its regions are too far from 0 (``rule="sign"``, see
        :func:`geh_explain.inference.sign_p_value`), which tells whether there is an interaction at all. With ``fdr``
        the Benjamini-Hochberg procedure decides, at that false discovery rate, on the p-values of the rule; it may call
        more pairs significant than the interval does. With a single draw the uncertainty columns are missing values.
        """
        import pandas as pd

        scores = self.scores(measure)
        check_level(level)
        if rule not in ("interval", "sign"):
            raise GEHValueError(f"rule={rule!r} is unknown; use 'interval' or 'sign'.")
        if fdr is not None:
            check_rate(fdr)
        mean, std = scores.pair_mean(), scores.pair_std()
        if scores.count < 2:
            low = high = p_value = np.full(len(mean), np.nan)
            significant: Any = pd.array([pd.NA] * len(mean), dtype="boolean")
        else:
            low, high = scores.pair_interval(level)
            p_value = bayesian_p_value(mean, std) if rule == "interval" else self.sign_p_values()
            significant = low > 0 if rule == "interval" else p_value < 1 - level
            if fdr is not None:
                significant = benjamini_hochberg(p_value, fdr)
        first, second = np.triu_indices(len(self.names), 1)
        table = pd.DataFrame(
            {
                "unit_i": [self.names[i] for i in first],
                "unit_j": [self.names[j] for j in second],
                "mean": mean,
                "std": std,
                "low": low,
                "high": high,
                "p_value": p_value,
                "significant": significant,
            }
        )
        return table.sort_values("mean", ascending=False, kind="stable", ignore_index=True)

    def sign_p_values(self) -> Floats:
        """Return a p-value (P,) per pair that all its regions' mean interactions are 0."""
        if self.geh.count < 2:
            raise GEHValueError(
                "the sign rule needs at least 2 posterior draws; explain with draws=100 and a posterior."
            )
        return sign_p_value(*self.signed_means, self.geh.count)

    @cached_property
    def signed_means(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation over draws of each group's mean interaction, both (M, P)."""
        if isinstance(self._draws, DrawMoments):
            return self._draws.signed.mean, self._draws.signed.std
        signed = self._draws.signed
        mean = signed.mean(axis=0)
        return mean, signed.std(axis=0, ddof=1) if len(signed) > 1 else np.full_like(mean, np.nan)

    def majority_signs(self) -> NDArray[np.int64]:
        """Return the sign (P,) that a pair's effect has in most of the data: 1, -1, or 0 where neither leads."""
        return np.sign(self.sizes @ np.sign(self.signed_means[0])).astype(np.int64)

    def ranking(self, measure: str = "geh") -> PairRanking:
        """Return the pairs in the order of a measure's posterior mean, to compare with other methods."""
        return PairRanking(measure.upper(), self.scores(measure).pair_mean(), self.names)

    def monte_carlo(self, measure: str = "geh") -> pd.DataFrame:
        """Return how well the draws settle each pair: standard errors of its mean and std, strongest first."""
        import pandas as pd

        scores = self.scores(measure)
        table = self.table(measure)[["unit_i", "unit_j", "mean", "std"]]
        count = scores.count
        errors = {
            "mean_error": table["std"] / np.sqrt(count),
            "std_error": table["std"] / np.sqrt(max(2 * count - 2, 1)),
        }
        return pd.concat([table, pd.DataFrame(errors)], axis=1)

    def top(self, pairs: int = 10, measure: str = "geh") -> pd.DataFrame:
        """Return the strongest ``pairs`` of the table."""
        return self.table(measure).head(check_int("pairs", pairs, 1))

    def regions(self, i: int | str, j: int | str, level: float = 0.95) -> pd.DataFrame:
        """Return the signed interaction of one pair, group by group.

        The columns are size, mean (over draws, of the group's mean interaction), std, low and high.
        """
        import pandas as pd

        pair = self.pair(i, j)
        check_level(level)
        mean, std = (each[:, pair] for each in self.signed_means)
        low, high = gaussian_interval(mean, std, level)
        columns = {"size": self.sizes, "mean": mean, "std": std, "low": low, "high": high}
        return pd.DataFrame(columns, index=pd.Index(self.group_names, name="group"))

    def pair(self, i: int | str, j: int | str) -> int:
        """Return the number of the pair of two units, given by name or index."""
        first, second = find_unit(i, self.names), find_unit(j, self.names)
        if first == second:
            raise GEHValueError(f"i={i!r} and j={j!r} are the same unit; an interaction needs two.")
        return pair_index(first, second, len(self.names))

    @property
    def plot(self) -> Plots:
        """Pictures: ``result.plot.heatmap()``, ``.intervals()``, ``.network()``, ``.regions(i, j)`` and more."""
        from geh_explain.plots import Plots

        return Plots(self)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        title: str | None = None,
        level: float = 0.95,
        main: Any = None,
        surfaces: Sequence[Surface] = (),
        gallery: Gallery | None = None,
    ) -> Path:
        """Write one interactive page that opens offline, and return its path.

        Parameters
        ----------
        path
            Where to write it; it ends in ``.html``.
        title
            The page's title; None names the network.
        level
            The level of intervals and decisions.
        main
            The size (D,) of each unit's main effect, shown in the network: any attribution, by Captum for instance.
            None shows :attr:`main`.
        surfaces
            What :meth:`GEHExplainer.surface` returned, shown with its pair.
        gallery
            What :meth:`GEHExplainer.interpret` returned: its images are shown with their units.

        Examples
        --------
        >>> import tempfile, torch, geh_explain as geh
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        >>> explainer, x = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate()), torch.randn(100, 3)
        >>> result = explainer.explain(x, groups=2, progress=False)
        >>> surface = explainer.surface(x, pair=(0, 1), result=result, progress=False)
        >>> result.report(f"{tempfile.mkdtemp()}/page.html", surfaces=[surface]).stat().st_size < 1_200_000
        True
        """
        from geh_explain.report import write

        return write(self, path, title=title, level=level, main=main, surfaces=surfaces, gallery=gallery)

    def check(self, explainer: GEHExplainer, inputs: Any, *arguments: Any, **options: Any) -> Check:
        """See whether strong pairs really act jointly, at inputs that were not explained.

        The explainer that made this result has the network; see :meth:`GEHExplainer.check`.
        """
        return explainer.check(self, inputs, *arguments, **options)

    def to_networkx(self, measure: str = "geh", level: float = 0.95) -> Any:
        """Return a networkx graph: units are nodes; edges have the columns of :meth:`table`, weight and sign.

        >>> import torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> graph = explainer.explain(torch.rand(20, 2), groups=1, progress=False).to_networkx()
        >>> graph.edges["x0", "x1"]["sign"], round(graph.edges["x0", "x1"]["weight"], 6)
        (1, 1.0)
        """
        from geh_explain.results.exports import to_networkx

        return to_networkx(self, measure, level)

    def to_xarray(self) -> Any:
        """Return the draws of all three measures as an xarray.Dataset (chain, draw, pair), which ArviZ takes too."""
        from geh_explain.results.exports import to_xarray

        return to_xarray(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to a ``.npz`` file of arrays and JSON, and return its path."""
        return write(self, self._draws, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Interactions:
        """Read a file written by :meth:`save`. Nothing in it is executed; a damaged file is an error."""
        return cls(**read(path))

    def __repr__(self) -> str:
        return f"{self._summary()}\n{self.top(8).to_string(float_format='{:.4g}'.format)}"

    def _repr_html_(self) -> str:
        from geh_explain.report.words import sentences

        table = self.top(8).to_html(float_format="{:.4g}".format, border=0, na_rep="")
        return f"<p>{escape(' '.join(sentences(self)))}</p>{table}"

    def _summary(self) -> str:
        draws, groups, pairs = self.geh.count, len(self.group_names), len(self.geh.pair_mean())
        place, posterior = self.settings.get("place", "units"), self.settings.get("posterior", "unknown")
        text = (
            f"Interactions between {len(self.names)} units of {place}: {pairs} pairs, {len(self.labels)} points in "
            f"{groups} group{'s' * (groups > 1)}, {draws} draw{'s' * (draws > 1)} of {posterior}"
        )
        if draws < 2:
            return text + "; no intervals"
        return text + f"; {int(self.table()['significant'].sum())} significant at 95 %"
