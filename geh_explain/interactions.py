"""The result: which pairs of units act together, how strongly, and how sure we are."""

from __future__ import annotations

import json
import os
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geh_explain import inference, measures
from geh_explain.errors import GEHTypeError, GEHValueError, whole

if TYPE_CHECKING:
    import pandas as pd

    from geh_explain.plots import Plots

Floats = NDArray[np.float64]

_FORMAT = "geh_explain.Interactions/1"
_MEASURES = ("geh", "aeh", "eah")


class Scores:
    """One measure of all pairs: its posterior draws, and what follows from them.

    ``draws`` (K, P) holds one row per draw; pairs are in row-major order i < j. Matrices (D, D) are
    symmetric with a zero diagonal.
    """

    def __init__(self, draws: Floats, units: int) -> None:
        self.draws = draws
        self._units = units

    @cached_property
    def mean(self) -> Floats:
        """Posterior mean (D, D)."""
        return measures.matrix(self.draws.mean(axis=0), self._units)

    @cached_property
    def std(self) -> Floats:
        """Posterior standard deviation (D, D); NaN where there is a single draw."""
        return measures.matrix(self.pair_std(), self._units)

    def interval(self, level: float = 0.95, kind: str = "gaussian") -> tuple[Floats, Floats]:
        """Return the ends (low, high), each (D, D), of the credible intervals.

        ``kind`` is "gaussian" (mean -+ 2 standard deviations for 95 %, as in the paper) or "quantile".
        """
        low, high = self.pair_interval(level, kind)
        return measures.matrix(low, self._units), measures.matrix(high, self._units)

    def pair_std(self) -> Floats:
        """Return the posterior standard deviation (P,)."""
        if len(self.draws) < 2:
            return np.full(self.draws.shape[1], np.nan)
        return np.asarray(self.draws.std(axis=0, ddof=1))

    def pair_interval(self, level: float = 0.95, kind: str = "gaussian") -> tuple[Floats, Floats]:
        """Return the ends (low, high), each (P,), of the credible intervals."""
        if kind not in ("gaussian", "quantile"):
            raise GEHValueError(f"kind={kind!r} is unknown; use 'gaussian' or 'quantile'.")
        if len(self.draws) < 2:
            raise GEHValueError(
                f"an interval needs at least 2 posterior draws, and this result has {len(self.draws)}; explain with "
                "draws=100 and a posterior (MCDropout, Ensemble, WeightSamples, Stochastic)."
            )
        interval = inference.gaussian_interval if kind == "gaussian" else inference.quantile_interval
        return interval(self.draws, level)

    def __repr__(self) -> str:
        return f"Scores(draws={self.draws.shape[0]}, units={self._units})"


class Interactions:
    """Pairwise interactions of units, with their uncertainty.

    ``signed`` (K, M, P) holds the mean local interaction of each draw, group and pair; ``absolute`` (K, P)
    the mean absolute one. Everything else follows from these two. ``noise`` (K, M, P) holds the standard errors
    of ``signed`` where the engine estimates it (Stein's), else None; scores are corrected for it.
    """

    def __init__(
        self,
        signed: Floats,
        absolute: Floats,
        labels: NDArray[np.int64],
        names: list[str],
        group_names: list[str],
        settings: dict[str, Any],
        noise: Floats | None = None,
    ) -> None:
        self.signed, self.absolute = signed, absolute
        self.labels, self.names, self.group_names = labels, names, group_names
        self.settings, self.noise = settings, noise
        self.sizes = np.bincount(labels, minlength=len(group_names))

    @cached_property
    def _sums(self) -> tuple[Floats, int, Floats | float]:
        sizes = self.sizes[:, None]
        return self.signed * sizes, len(self.labels), 0.0 if self.noise is None else (self.noise * sizes) ** 2

    @cached_property
    def geh(self) -> Scores:
        """Group expected Hessian: signs cancel within a group, not between groups."""
        return Scores(measures.geh(*self._sums), len(self.names))

    @cached_property
    def aeh(self) -> Scores:
        """Absolute expected Hessian: signs cancel over all points."""
        return Scores(measures.aeh(*self._sums), len(self.names))

    @cached_property
    def eah(self) -> Scores:
        """Expected absolute Hessian: nothing cancels."""
        return Scores(self.absolute, len(self.names))

    def scores(self, measure: str = "geh") -> Scores:
        """Return the scores of a measure by its name."""
        if measure not in _MEASURES:
            raise GEHValueError(f"measure={measure!r} is unknown; use 'geh', 'aeh' or 'eah'.")
        scores: Scores = getattr(self, measure)
        return scores

    def table(self, measure: str = "geh", level: float = 0.95, fdr: float | None = None) -> pd.DataFrame:
        """Return all pairs as a DataFrame, the strongest first.

        A pair is significant if its Gaussian interval at ``level`` excludes 0 or, with ``fdr``, by the
        Benjamini-Hochberg rule on its one-sided p-value at that false discovery rate, which may call more pairs
        significant than the interval does. With a single draw the uncertainty columns are missing values.
        """
        import pandas as pd

        scores = self.scores(measure)
        inference.check_level(level)
        if fdr is not None:
            inference.check_rate(fdr)
        mean, std = scores.draws.mean(axis=0), scores.pair_std()
        if len(scores.draws) < 2:
            low = high = p_value = np.full(len(mean), np.nan)
            significant: Any = pd.array([pd.NA] * len(mean), dtype="boolean")
        else:
            low, high = scores.pair_interval(level)
            p_value = inference.bayesian_p_value(mean, std)
            significant = low > 0 if fdr is None else inference.benjamini_hochberg(p_value, fdr)
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

    def top(self, pairs: int = 10, measure: str = "geh") -> pd.DataFrame:
        """Return the strongest ``pairs`` of the table."""
        return self.table(measure).head(whole("pairs", pairs, 1))

    def regions(self, i: int | str, j: int | str, level: float = 0.95) -> pd.DataFrame:
        """Return the signed interaction of one pair, group by group.

        The columns are size, mean (over draws, of the group's mean interaction), std, low and high.
        """
        import pandas as pd

        draws = self.signed[:, :, self.pair(i, j)]
        inference.check_level(level)
        if len(draws) < 2:
            std = low = high = np.full(draws.shape[1], np.nan)
        else:
            std = draws.std(axis=0, ddof=1)
            low, high = inference.gaussian_interval(draws, level)
        columns = {"size": self.sizes, "mean": draws.mean(axis=0), "std": std, "low": low, "high": high}
        return pd.DataFrame(columns, index=pd.Index(self.group_names, name="group"))

    def pair(self, i: int | str, j: int | str) -> int:
        """Return the number of the pair of two units, given by name or index."""
        first, second = self._unit(i), self._unit(j)
        if first == second:
            raise GEHValueError(f"i={i!r} and j={j!r} are the same unit; an interaction needs two.")
        return measures.pair_index(first, second, len(self.names))

    def _unit(self, unit: int | str) -> int:
        if isinstance(unit, str):
            if unit in self.names:
                return self.names.index(unit)
            known = f"{self.names[:8]}{' ...' if len(self.names) > 8 else ''}"
            raise GEHValueError(f"unit {unit!r} is not among the names {known}.")
        if isinstance(unit, bool) or not isinstance(unit, (int, np.integer)):
            raise GEHTypeError(f"unit {unit!r} must be a name or an index.")
        if not -len(self.names) <= unit < len(self.names):
            raise GEHValueError(f"unit {unit} is out of range; there are {len(self.names)} units.")
        return int(unit) % len(self.names)

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
        arrays: dict[str, Any] = {"signed": self.signed, "absolute": self.absolute, "labels": self.labels}
        np.savez_compressed(path, about=text, **arrays if self.noise is None else arrays | {"noise": self.noise})
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Interactions:
        """Read a file written by :meth:`save`. Nothing in it is executed; a damaged file is an error."""
        if not isinstance(path, (str, os.PathLike)) or not Path(path).is_file():
            raise GEHValueError(f"path={path!r} is not a file.")
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                names = ("signed", "absolute", "labels", "about", *(["noise"] if "noise" in stored else []))
                arrays = {name: stored[name] for name in names}
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
        draws, groups, pairs = len(self.signed), len(self.group_names), self.absolute.shape[1]
        place, posterior = self.settings.get("place", "units"), self.settings.get("posterior", "unknown")
        text = (
            f"Interactions between {len(self.names)} units of {place}: {pairs} pairs, {len(self.labels)} points in "
            f"{groups} group{'s' * (groups > 1)}, {draws} draw{'s' * (draws > 1)} of {posterior}"
        )
        if draws < 2:
            return text + "; no intervals"
        return text + f"; {int(self.table()['significant'].sum())} significant at 95 %"


def _checked(about: Any, signed: Any, absolute: Any, labels: Any, noise: Any = None) -> dict[str, Any]:
    """Check that the parts of a file belong together, and return them as arguments."""
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise ValueError(f"its format is not {_FORMAT!r}")
    names, group_names, settings = about["names"], about["group_names"], about["settings"]
    if not (isinstance(names, list) and isinstance(group_names, list) and isinstance(settings, dict)):
        raise ValueError("its names or settings are malformed")
    if not all(isinstance(name, str) for name in (*names, *group_names)) or len(set(names)) < len(names):
        raise ValueError("its names are not text, or not all different")
    pairs, groups = len(names) * (len(names) - 1) // 2, len(group_names)
    fits = signed.ndim == 3 and signed.shape[1:] == (groups, pairs) and absolute.shape == (len(signed), pairs)
    if not fits or len(signed) < 1 or labels.ndim != 1 or len(labels) < 1:
        raise ValueError("its arrays do not fit together")
    if signed.dtype != np.float64 or absolute.dtype != np.float64 or labels.dtype != np.int64:
        raise ValueError("its arrays have other types than saved ones")
    if not (np.isfinite(signed).all() and np.isfinite(absolute).all() and (absolute >= 0).all()):
        raise ValueError("its scores are not finite, or negative where they cannot be")
    if noise is not None and (noise.shape != signed.shape or noise.dtype != np.float64 or not (noise >= 0).all()):
        raise ValueError("its standard errors do not fit")
    if labels.min() < 0 or labels.max() >= groups:
        raise ValueError("its labels name unknown groups")
    return {"signed": signed, "absolute": absolute, "labels": labels, "noise": noise} | {
        key: about[key] for key in ("names", "group_names", "settings")
    }
