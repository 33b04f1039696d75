"""The result: which pairs of units act together, how strongly, and how sure we are."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geh_explain import inference, measures
from geh_explain.errors import GEHValueError, warn, whole
from geh_explain.ranking import PairRanking, find_unit
from geh_explain.scores import Moments, Scores

if TYPE_CHECKING:
    import pandas as pd

    from geh_explain.plots import Plots

Floats = NDArray[np.float64]

_FORMAT = "geh_explain.Interactions/1"
_MEASURES = ("geh", "aeh", "eah")
_FORMULAS = {"geh": measures.geh, "aeh": measures.aeh}
#: The arrays of a file: of all draws, or of their moments.
_DRAW_ARRAYS = ("signed", "absolute", "noise")
_MOMENT_ARRAYS = ("count", *(f"{name}_{part}" for name in (*_MEASURES, "signed") for part in ("mean", "squares")))


@dataclass(frozen=True)
class Draws:
    """All that was computed: everything in a result follows from it.

    ``signed`` (K, M, P) holds the mean local interaction of each draw, group and pair; ``absolute`` (K, P)
    the mean absolute one. ``noise`` (K, M, P) holds the standard errors of ``signed`` where the engine estimates it
    (Stein's), else None; scores are corrected for it.
    """

    signed: Floats
    absolute: Floats
    noise: Floats | None = None

    def scores(self, measure: str, sizes: NDArray[np.int64]) -> Floats:
        """Return the draws (K, P) of a measure."""
        if measure == "eah":
            return self.absolute
        weights = sizes[:, None]
        variance = 0.0 if self.noise is None else (self.noise * weights) ** 2
        return _FORMULAS[measure](self.signed * weights, int(sizes.sum()), variance)


@dataclass(frozen=True)
class DrawMoments:
    """What is left of the draws where they do not fit into memory: means and standard deviations over them.

    They are those of the three measures (P,) and of the signed group means (M, P).
    """

    geh: Moments = field(default_factory=Moments)
    aeh: Moments = field(default_factory=Moments)
    eah: Moments = field(default_factory=Moments)
    signed: Moments = field(default_factory=Moments)

    def add(self, draws: Draws, sizes: NDArray[np.int64]) -> None:
        """See one more draw, or several."""
        for measure in _MEASURES:
            for scores in draws.scores(measure, sizes):
                getattr(self, measure).add(scores)
        for signed in draws.signed:
            self.signed.add(signed)


class Interactions:
    """Pairwise interactions of units, with their uncertainty."""

    def __init__(
        self,
        draws: Draws | DrawMoments,
        labels: NDArray[np.int64],
        names: list[str],
        group_names: list[str],
        settings: dict[str, Any],
    ) -> None:
        self._draws = draws
        self.labels, self.names, self.group_names = labels, names, group_names
        self.settings = settings
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

    def scores(self, measure: str = "geh") -> Scores:
        """Return the scores of a measure by its name."""
        if measure not in _MEASURES:
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
        inference.check_level(level)
        if rule not in ("interval", "sign"):
            raise GEHValueError(f"rule={rule!r} is unknown; use 'interval' or 'sign'.")
        if fdr is not None:
            inference.check_rate(fdr)
        mean, std = scores.pair_mean(), scores.pair_std()
        if scores.count < 2:
            low = high = p_value = np.full(len(mean), np.nan)
            significant: Any = pd.array([pd.NA] * len(mean), dtype="boolean")
        else:
            low, high = scores.pair_interval(level)
            p_value = inference.bayesian_p_value(mean, std) if rule == "interval" else self.sign_p_values()
            significant = low > 0 if rule == "interval" else p_value < 1 - level
            if fdr is not None:
                significant = inference.benjamini_hochberg(p_value, fdr)
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
        if isinstance(self._draws, Draws):
            mean, std = self._draws.signed.mean(axis=0), self._draws.signed.std(axis=0, ddof=1)
        else:
            mean, std = self._draws.signed.mean, self._draws.signed.std
        return inference.sign_p_value(mean, std, self.geh.count)

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
        return self.table(measure).head(whole("pairs", pairs, 1))

    def regions(self, i: int | str, j: int | str, level: float = 0.95) -> pd.DataFrame:
        """Return the signed interaction of one pair, group by group.

        The columns are size, mean (over draws, of the group's mean interaction), std, low and high.
        """
        import pandas as pd

        pair = self.pair(i, j)
        inference.check_level(level)
        if isinstance(self._draws, Draws):
            # A group is to its draws what a pair is.
            regions = Scores(self._draws.signed[:, :, pair], len(self.names))
            mean, std = regions.pair_mean(), regions.pair_std()
        else:
            mean, std = self._draws.signed.mean[:, pair], self._draws.signed.std[:, pair]
        low, high = inference.gaussian_interval(mean, std, level)
        columns = {"size": self.sizes, "mean": mean, "std": std, "low": low, "high": high}
        return pd.DataFrame(columns, index=pd.Index(self.group_names, name="group"))

    def pair(self, i: int | str, j: int | str) -> int:
        """Return the number of the pair of two units, given by name or index."""
        first, second = find_unit(i, self.names), find_unit(j, self.names)
        if first == second:
            raise GEHValueError(f"i={i!r} and j={j!r} are the same unit; an interaction needs two.")
        return measures.pair_index(first, second, len(self.names))

    @property
    def plot(self) -> Plots:
        """Pictures: ``result.plot.heatmap()``, ``result.plot.intervals()``."""
        from geh_explain.plots import Plots

        return Plots(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to a ``.npz`` file of arrays and JSON, and return its path."""
        path = Path(path)
        path = path if path.suffix == ".npz" else path.with_name(path.name + ".npz")
        about = {"format": _FORMAT, "names": self.names, "group_names": self.group_names, "settings": self.settings}
        text = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
        np.savez_compressed(path, about=text, labels=self.labels, **_arrays(self._draws))
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Interactions:
        """Read a file written by :meth:`save`. Nothing in it is executed; a damaged file is an error."""
        if not isinstance(path, (str, os.PathLike)) or not Path(path).is_file():
            raise GEHValueError(f"path={path!r} is not a file.")
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                known = ("labels", "about", *_DRAW_ARRAYS, *_MOMENT_ARRAYS)
                arrays = {name: stored[name] for name in known if name in stored}
            about = json.loads(arrays.pop("about").tobytes().decode())
            return cls(**_checked(about, **arrays))
        except Exception as error:  # zip, zlib, numpy and JSON each have several kinds for damaged data
            raise GEHValueError(
                f"path={str(path)!r} is not an intact file of saved interactions ({error}); save the result again."
            ) from error

    def __repr__(self) -> str:
        return f"{self._summary()}\n{self.top(8).to_string(float_format='{:.4g}'.format)}"

    def _repr_html_(self) -> str:
        table = self.top(8).to_html(float_format="{:.4g}".format, border=0)
        return f"<p>{escape(self._summary())}</p>{table}"

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


def _arrays(draws: Draws | DrawMoments) -> dict[str, Any]:
    """Return the arrays of a file."""
    if isinstance(draws, Draws):
        return {name: value for name in _DRAW_ARRAYS if (value := getattr(draws, name)) is not None}
    moments = {name: getattr(draws, name) for name in (*_MEASURES, "signed")}
    return {
        "count": np.array(draws.geh.count),
        **{f"{name}_mean": each.mean for name, each in moments.items()},
        **{f"{name}_squares": each.squares for name, each in moments.items()},
    }


def _checked(about: Any, labels: Any, **arrays: Any) -> dict[str, Any]:
    """Check that the parts of a file belong together, and return them as arguments."""
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise ValueError(f"its format is not {_FORMAT!r}")
    names, group_names, settings = about["names"], about["group_names"], about["settings"]
    if not (isinstance(names, list) and isinstance(group_names, list) and isinstance(settings, dict)):
        raise ValueError("its names or settings are malformed")
    if not all(isinstance(name, str) for name in (*names, *group_names)) or len(set(names)) < len(names):
        raise ValueError("its names are not text, or not all different")
    pairs, groups = len(names) * (len(names) - 1) // 2, len(group_names)
    draws = _checked_draws(groups, pairs, **arrays) if "signed" in arrays else _checked_moments(groups, pairs, **arrays)
    if labels.ndim != 1 or len(labels) < 1 or labels.dtype != np.int64:
        raise ValueError("its labels are malformed")
    if labels.min() < 0 or labels.max() >= groups:
        raise ValueError("its labels name unknown groups")
    return {"draws": draws, "labels": labels} | {key: about[key] for key in ("names", "group_names", "settings")}


def _checked_draws(groups: int, pairs: int, signed: Any, absolute: Any, noise: Any = None) -> Draws:
    fits = signed.ndim == 3 and signed.shape[1:] == (groups, pairs) and absolute.shape == (len(signed), pairs)
    if not fits or len(signed) < 1:
        raise ValueError("its arrays do not fit together")
    if signed.dtype != np.float64 or absolute.dtype != np.float64:
        raise ValueError("its arrays have other types than saved ones")
    if not (np.isfinite(signed).all() and np.isfinite(absolute).all() and (absolute >= 0).all()):
        raise ValueError("its scores are not finite, or negative where they cannot be")
    if noise is not None and (noise.shape != signed.shape or noise.dtype != np.float64 or not (noise >= 0).all()):
        raise ValueError("its standard errors do not fit")
    return Draws(signed, absolute, noise)


def _checked_moments(groups: int, pairs: int, count: Any, **arrays: Any) -> DrawMoments:
    if count.shape != () or count.dtype != np.int64 or count < 1 or set(arrays) != set(_MOMENT_ARRAYS) - {"count"}:
        raise ValueError("its arrays do not fit together")
    for name, array in arrays.items():
        if array.shape != ((groups, pairs) if name.startswith("signed") else (pairs,)) or array.dtype != np.float64:
            raise ValueError("its arrays do not fit together")
        if not np.isfinite(array).all() or (not name == "signed_mean" and not (array >= 0).all()):
            raise ValueError("its scores are not finite, or negative where they cannot be")
    parts = {
        name: Moments(int(count), arrays[f"{name}_mean"], arrays[f"{name}_squares"]) for name in (*_MEASURES, "signed")
    }
    return DrawMoments(**parts)
