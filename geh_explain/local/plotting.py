"""The plots of an account as methods of ``local.plot``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from geh_explain._types import Floats
from geh_explain._validation import check_int
from geh_explain.local.account import Contributions
from geh_explain.plots.axes import compact, shorten_all
from geh_explain.plots.local_network import draw_local_network
from geh_explain.plots.pairs import pair_label
from geh_explain.plots.waterfall import Steps, draw_waterfall
from geh_explain.scores.pair_names import join_names

#: Characters of a unit's name beside a bar.
_MAX_NAME = 28


class Account(Protocol):
    """What the plots of an account read."""

    @property
    def names(self) -> list[str]:
        """Names of the units."""
        ...

    @property
    def prediction(self) -> float:
        """Output at the row."""
        ...

    @property
    def reference(self) -> float:
        """Output at the baseline."""
        ...

    @property
    def remainder(self) -> float:
        """What is left over."""
        ...

    @property
    def main_effects(self) -> Contributions:
        """Main effects."""
        ...

    @property
    def pair_effects(self) -> Contributions:
        """Effects of pairs."""
        ...

    @property
    def method(self) -> str:
        """Name of the account."""
        ...

    @property
    def baseline(self) -> str:
        """The baseline in words."""
        ...


class LocalPlots:
    """The plots of one account; ``local.plot`` returns an instance.

    Each method takes ``ax=`` (matplotlib axes, or None for a new figure) and returns the axes. None calls ``show``.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    >>> local = explainer.explain_row(torch.tensor([1.0, 2.0]), baseline=0, progress=False)
    >>> ax = local.plot.waterfall()
    >>> [label.get_text() for label in ax.get_yticklabels()][0]
    'x0 × x1'
    """

    def __init__(self, account: Account) -> None:
        self._account = account

    def waterfall(self, *, contributions: int = 10, level: float = 0.95, ax: Any = None) -> Any:
        """Draw the largest contributions as steps from the reference to the prediction; return the axes.

        Parameters
        ----------
        contributions
            How many main effects and pairs are drawn, the largest first; the others are one step together.
        level
            Level of the intervals, which are drawn as thin lines at the ends of the bars.
        ax
            Axes to draw into, or None.
        """
        account = self._account
        shown = waterfall_steps(account, check_int("contributions", contributions, 1), level)
        return draw_waterfall(shown, f"From the reference to the prediction ({_words(account)})", ax=ax)

    def network(self, *, max_units: int = 30, pairs: int = 40, level: float = 0.95, ax: Any = None) -> Any:
        """Draw units with their main effects on a circle, and the largest pairs as edges; return the axes.

        Parameters
        ----------
        max_units
            Maximum number of units; if there are more, those with the largest contributions are shown.
        pairs
            Maximum number of edges.
        level
            Level of the intervals; pairs whose interval holds 0 are dashed and pale.
        ax
            Axes to draw into, or None.
        """
        account = self._account
        main, effects = account.main_effects.mean, account.pair_effects.mean
        first, second = np.triu_indices(len(main), 1)
        size = np.abs(main)
        np.maximum.at(size, first, np.abs(effects))
        np.maximum.at(size, second, np.abs(effects))
        units = np.sort(np.argsort(-size, kind="stable")[: check_int("max_units", max_units, 2)])
        place = np.full(len(main), -1)
        place[units] = np.arange(len(units))
        order = np.argsort(-np.abs(effects), kind="stable")
        drawn = (place[first[order]] >= 0) & (place[second[order]] >= 0) & (effects[order] != 0)
        chosen = order[drawn][: check_int("pairs", pairs, 1)]
        low, high = account.pair_effects.interval(level)
        unsure = (low[chosen] <= 0) & (high[chosen] >= 0)  # False for NaN
        title = f"Main effects and pairs of one prediction ({_words(account)})"
        names = [compact(account.names[unit]) for unit in units]
        ends = place[first[chosen]], place[second[chosen]]
        return draw_local_network(names, main[units], ends, effects[chosen], title, unsure=unsure, ax=ax)

    def __repr__(self) -> str:
        return "LocalPlots(waterfall, network)"


def waterfall_steps(account: Account, count: int, level: float, names: Sequence[str] | None = None) -> Steps:
    """Return the ``count`` largest contributions, then the sum of the others, then the remainder where it shows.

    ``names`` (D,) is how units are called in labels; None for shortened names.
    """
    n_units = len(account.names)
    effects = np.concatenate([account.main_effects.mean, account.pair_effects.mean])
    half_widths = np.concatenate([(high - low) / 2 for low, high in (part.interval(level) for part in _parts(account))])
    first, second = np.triu_indices(n_units, 1)
    order = np.argsort(-np.abs(effects), kind="stable")
    # A contribution that is 0 makes no step.
    order = order[np.abs(effects[order]) > 0] if effects.any() else order
    shown, others = order[:count], order[count:]
    full = [compact(name) for name in account.names]
    short, join = (shorten_all(full, _MAX_NAME), pair_label) if names is None else (names, join_names)
    in_pairs = full if names is None else names
    labels = [
        short[k] if k < n_units else join(in_pairs[first[k - n_units]], in_pairs[second[k - n_units]]) for k in shown
    ]
    values, halves, plain = list(effects[shown]), list(half_widths[shown]), [False] * len(shown)
    sums: Sequence[tuple[str, float]] = [
        *([(f"{len(others)} others", float(effects[others].sum()))] if len(others) else []),
        *([("remainder", account.remainder)] if _shows(account.remainder, effects) else []),
    ]
    for label, value in sums:
        labels.append(label)
        values.append(value)
        halves.append(np.nan)
        plain.append(True)
    return Steps(labels, np.array(values), np.array(halves), plain, account.reference, account.prediction)


def _shows(remainder: float, effects: Floats) -> bool:
    """Return whether a remainder is more than a hundredth of the largest contribution."""
    return abs(remainder) > 0.01 * float(np.abs(effects).max(initial=0.0))


def _parts(account: Account) -> tuple[Contributions, Contributions]:
    return account.main_effects, account.pair_effects


def _words(account: Account) -> str:
    return f"{account.method}; baseline: {account.baseline}"
