"""The share of a network's output that is interaction: what was measured, as numbers, tables, a sentence and a plot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain._types import Floats
from geh_explain._validation import check_int, check_level
from geh_explain.errors import GEHValueError
from geh_explain.plots import palette
from geh_explain.plots.shares import Bars, draw_shares
from geh_explain.scores.pair_names import join_names
from geh_explain.statistics.intervals import predictive_half_width

if TYPE_CHECKING:
    import pandas as pd

#: Shares below this are written with a decimal.
_SMALL = 0.1


@dataclass(frozen=True)
class ShareEstimate:
    """Estimated shares of E parts, with their uncertainty over draws of the network and over rows.

    The ends of an interval are mean -+ sqrt(v^2 + (t error)^2), with the half-width v of the interval over draws, that
    of one more draw, and t a quantile of Student's distribution.

    Attributes
    ----------
    draws
        Share (K, E) in each draw.
    errors
        Standard error (E,) of the mean over draws, over the choice of rows.
    freedom
        Degrees of freedom of the errors.
    """

    draws: Floats
    errors: Floats
    freedom: int

    @property
    def mean(self) -> Floats:
        """Mean (E,) over draws."""
        return np.asarray(self.draws.mean(axis=0))

    def half_widths(self, level: float) -> tuple[Floats, Floats]:
        """Return half the widths (E,) of the intervals at ``level`` over draws, and over rows."""
        from scipy.special import stdtrit

        check_level(level)
        count = len(self.draws)
        std = self.draws.std(axis=0, ddof=1) if count > 1 else np.zeros(self.draws.shape[1])
        over_rows = stdtrit(self.freedom, (1 + level) / 2) * self.errors
        return predictive_half_width(std, count, level), np.asarray(over_rows)

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Return the ends (low, high), each (E,), of the intervals at ``level``."""
        half_width = np.hypot(*self.half_widths(level))
        return self.mean - half_width, self.mean + half_width

    def part(self, start: int, stop: int) -> ShareEstimate:
        """Return the estimates of the parts from ``start`` to ``stop``."""
        return ShareEstimate(self.draws[:, start:stop], self.errors[start:stop], self.freedom)


@dataclass(frozen=True, repr=False)
class InteractionShare:
    """Share of the variance of a network's output that no additive function of its units explains.

    With V the variance of the output f, V_i that of the main effect of unit i, V_ij that of the interaction of i and j
    alone and V_Ti that of all terms which contain i ::

        overall     = 1 - sum_i V_i / V
        unit i      = (V_Ti - V_i) / V          the part of the interactions that i takes part in
        pair (i, j) = V_ij / V

    The shares of units add up to more than ``overall``, as an interaction of two units is part of both; those of pairs
    add up to less where there are interactions of three units and more, or pairs that were not measured. Estimates are
    unbiased and not clipped, so that a share near 0 may be estimated below it.

    Attributes
    ----------
    names
        Names of the units (D).
    pair_names
        Names of both units of the measured pairs.
    background
        ``"permuted"``: units take values of their own marginal distributions, independently. ``"conditional"``: the
        rows as they are.
    all_interactions, of_pairs
        Estimates of ``overall`` and of the pairs.
    of_units, main_effects
        Estimates of the units, and of the shares V_i / V of their main effects; None for ``"conditional"``.
    of_rest
        Estimate of the main effect of what rows hold beside the units, such as other columns; None for
        ``"conditional"``. It counts neither as interaction nor as a unit.
    n_rows, evaluations
        Number of rows whose values were used, and of rows that the network was evaluated at.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> model = lambda x: x[:, 0] + x[:, 1] + x[:, 0] * x[:, 1]  # variances 1, 1 and 1 for standard normal inputs
    >>> explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
    >>> x = torch.randn(2000, 2, generator=torch.Generator().manual_seed(0))
    >>> share = explainer.explain(x, groups=1, progress=False).share(progress=False)
    >>> share.low < 1 / 3 < share.high
    True
    """

    names: list[str]
    pair_names: list[tuple[str, str]]
    background: str
    all_interactions: ShareEstimate
    of_pairs: ShareEstimate
    of_units: ShareEstimate | None
    main_effects: ShareEstimate | None
    of_rest: ShareEstimate | None
    n_rows: int
    evaluations: int

    @property
    def overall(self) -> float:
        """Share of all interactions."""
        return float(self.all_interactions.mean[0])

    @property
    def low(self) -> float:
        """Low end of the 95 % interval of ``overall``."""
        return self.interval()[0]

    @property
    def high(self) -> float:
        """High end of the 95 % interval of ``overall``."""
        return self.interval()[1]

    @property
    def n_draws(self) -> int:
        """Number of draws of the network K."""
        return len(self.all_interactions.draws)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return both ends of the interval of ``overall``, over draws of the network and over rows like these."""
        low, high = self.all_interactions.interval(level)
        return float(low[0]), float(high[0])

    def units(self, level: float = 0.95) -> pd.DataFrame:
        """Return one row per unit, the largest share first: unit, main, share, low, high.

        ``main`` is the share of the unit's main effect, ``share`` that of all interactions with it, ``low`` and
        ``high`` are the ends of the interval of the latter.
        """
        import pandas as pd

        if self.of_units is None or self.main_effects is None:
            raise GEHValueError(
                "background='conditional' has no shares of single units, as units that depend on each other have no "
                "effects of their own; use share(background='permuted')."
            )
        low, high = self.of_units.interval(level)
        columns = {"unit": self.names, "main": self.main_effects.mean, "share": self.of_units.mean}
        table = pd.DataFrame({**columns, "low": low, "high": high})
        return table.sort_values("share", ascending=False, kind="stable", ignore_index=True)

    def pairs(self, level: float = 0.95) -> pd.DataFrame:
        """Return one row per measured pair, the largest share first: unit_i, unit_j, share, low, high."""
        import pandas as pd

        low, high = self.of_pairs.interval(level)
        first, second = ([pair[end] for pair in self.pair_names] for end in (0, 1))
        table = pd.DataFrame({"unit_i": first, "unit_j": second, "share": self.of_pairs.mean, "low": low, "high": high})
        return table.sort_values("share", ascending=False, kind="stable", ignore_index=True)

    def plot(self, *, units: int = 8, level: float = 0.95, ax: Any = None) -> Any:
        """Draw the shares of all interactions, of the pairs and of the ``units`` with the largest ones as bars.

        Lines are intervals at ``level``. Returns the axes.
        """
        pairs = self.pairs(level)
        labels = [join_names(*pair) for pair in zip(pairs["unit_i"], pairs["unit_j"], strict=True)]
        parts = [Bars("all interactions", [""], np.array([[self.overall, *self.interval(level)]]), palette.SURE)]
        parts.append(Bars("pairs", labels, pairs[["share", "low", "high"]].to_numpy(), palette.MARK))
        if self.of_units is not None:
            table = self.units(level).head(check_int("units", units, 1))
            values = table[["share", "low", "high"]].to_numpy()
            parts.append(Bars("all interactions of a unit", list(table["unit"]), values, palette.UNSURE))
        return draw_shares(parts, level=level, ax=ax)

    def describe(self, level: float = 0.95) -> str:
        """Return the main finding as a sentence: the share of all interactions, and that of the strongest pair.

        Estimates and interval ends beyond 0 and 100 % are written as 0 and 100 %; a share cannot be outside.
        """
        if np.isnan(self.overall):
            return "the output does not vary, so that interactions carry no share of it"
        low, high = self.interval(level)
        decimals = 0 if max(self.overall, high) >= _SMALL else 1
        ends = f"{_percent(low, decimals)}–{_percent(high, decimals)} %"
        text = f"interactions carry {_percent(self.overall, decimals)} % ({ends}) of the variance of the output"
        if self.of_rest is not None and self.of_rest.mean[0] > _SMALL**2:
            rest = _percent(float(self.of_rest.mean[0]), decimals)
            text += f"; what rows hold beside the units carries {rest} % by itself"
        best = int(np.argmax(self.of_pairs.mean)) if self.pair_names else None
        if best is None or round(100 * self.of_pairs.mean[best], decimals) <= 0:
            return text
        share = _percent(float(self.of_pairs.mean[best]), decimals)
        return f"{text}; {join_names(*self.pair_names[best])} carries {share} %"

    def __float__(self) -> float:
        return self.overall

    def __repr__(self) -> str:
        kind = f"{self.background} background, {self.n_rows:,} rows"
        draws = f"{self.n_draws} draw{'s' * (self.n_draws > 1)}"
        return f"InteractionShare({self.describe()}; {kind}, {draws})"


def _percent(share: float, decimals: int) -> str:
    """Return a share in per cent, at least 0 and at most 100.

    >>> _percent(0.234, 0), _percent(-0.0001, 1), _percent(1.2, 0)
    ('23', '0.0', '100')
    """
    return f"{100 * min(max(share, 0.0), 1.0):.{decimals}f}"
