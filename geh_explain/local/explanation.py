"""The account of one prediction: what users hold."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from geh_explain._types import Floats
from geh_explain._validation import check_level
from geh_explain.errors import GEHValueError
from geh_explain.local.account import Contributions
from geh_explain.local.files import read_accounts, write_accounts
from geh_explain.local.plotting import LocalPlots
from geh_explain.scores.pair_names import join_names

if TYPE_CHECKING:
    import pandas as pd

#: Names of the two accounts.
INTEGRATED = "integrated Hessians"
DIFFERENCES = "differences"
#: Remainders up to this share of what is to explain are printed as 0.
_ROUNDING = 1e-6
#: Contributions that the text shows.
_SHOWN = 8


@dataclass(frozen=True, repr=False)
class LocalExplanation:
    """The account of one prediction, by main effects of units and effects of pairs.

    ::

        prediction = reference + sum of main effects + sum of pairs + remainder.

    The path from a baseline b to the row x is b + s (x - b), s from 0 to 1. With f the output, H its second derivatives
    and g its gradient at the places of the path, integrated Hessians (Janizek, Sturmfels & Lee, 2021) are ::

        Gamma_ij = (x_i - b_i) (x_j - b_j) int_0^1 -s ln(s) H_ij(s) ds,    i != j,
        Gamma_ii = (x_i - b_i) int_0^1 -ln(s) g_i(s) ds  +  (x_i - b_i)^2 int_0^1 -s ln(s) H_ii(s) ds.

    The double integral of the authors, int int a b H(a b) da db, is that of -s ln(s) H(s) by s = a b. The main effect
    of unit i is Gamma_ii, the effect of a pair 2 Gamma_ij. For a smooth network they sum to f(x) - f(b) exactly; row
    sums of Gamma are integrated gradients. The remainder holds the errors of integration. Of a product
    (x_i - b_i) (x_j - b_j) the pair gets one half, and each unit one quarter as its main effect: either unit alone
    changes the slope of the other along the path.

    Networks with kinks have no second derivatives. There H is that of the smoothed network, as in ``explain``, and g
    that of the network itself: Gamma_ii is the integrated gradient of unit i minus Gamma_ij of all j, which is the same
    for smooth networks. The contributions sum to f(x) - f(b) of the network itself.

    A unit of several numbers (a channel, a group of columns) moves along the differences of all its members at once.
    What belongs to no unit, and what bypasses a hidden layer, keeps the values of the row: the reference is the output
    with all units at the baseline and everything else at the row.

    The account by differences needs no derivatives. With f(A) the output where the units A have the values of the row,
    and the others those of the baseline ::

        main_i = f({i}) - f({}),    pair_ij = f({i, j}) - f({i}) - f({j}) + f({}),

    and the remainder is what three and more units do together.

    :meth:`GEHExplainer.explain_row` returns an instance.

    Attributes
    ----------
    names
        Names of the D units.
    prediction, reference
        Output at the row, and with the units at the baseline; means over draws and baselines.
    remainder
        What the contributions leave over.
    method
        ``"integrated Hessians"`` or ``"differences"``: the account that was made.
    baseline
        The baseline in words.
    steps
        Nodes of the Gauss rule on the path; 0 for differences.
    error
        Estimated error of integration of a contribution.
    smoothed
        Which functions were smoothed, their sharpness, and by how much that changes the difference of prediction and
        reference, as a part of :attr:`scale`; None where nothing was.
    warnings
        Warnings that were raised.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> model = lambda x: 2 * x[:, 0] * x[:, 1] + x[:, 2] ** 2
    >>> explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
    >>> local = explainer.explain_row(torch.tensor([1.0, 3.0, 2.0]), baseline=0, progress=False)
    >>> local.pairs[["unit_i", "unit_j", "mean"]].round(4).values.tolist()[0]
    ['x0', 'x1', 3.0]
    >>> parts = local.reference, local.main["mean"].sum(), local.pairs["mean"].sum(), local.remainder
    >>> float(sum(parts).round(4)) == local.prediction
    True
    """

    names: list[str]
    prediction: float
    reference: float
    remainder: float
    main_effects: Contributions
    pair_effects: Contributions
    row_values: Floats
    baseline_values: Floats
    method: str
    baseline: str
    place: str
    steps: int
    error: float
    smoothed: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()

    @property
    def main(self) -> pd.DataFrame:
        """Main effects, the largest first: unit, mean, std, low, high, and the unit's values row and baseline.

        ``mean`` is over draws and baselines; std and the 95 % interval low, high are NaN where there is one of each.
        Values of units with several members are their means.
        """
        return self._main_table(0.95)

    @property
    def pairs(self) -> pd.DataFrame:
        """Effects of pairs, the largest first: unit_i, unit_j, mean, std, low, high, as in :attr:`main`."""
        return self._pair_table(0.95)

    @property
    def n_draws(self) -> int:
        """Number of draws of the posterior."""
        return self.main_effects.n_draws

    @property
    def n_baselines(self) -> int:
        """Number of baselines."""
        return self.main_effects.n_baselines

    @property
    def has_intervals(self) -> bool:
        """Whether draws or baselines give intervals; a point estimate with one baseline has none."""
        return self.n_draws > 1 or self.n_baselines > 1

    @property
    def matrix(self) -> Floats:
        """Gamma (D, D): main effects on the diagonal, half the effect of a pair at each of its two places."""
        matrix = np.diag(self.main_effects.mean)
        first, second = np.triu_indices(len(self.names), 1)
        matrix[first, second] = matrix[second, first] = self.pair_effects.mean / 2
        return matrix

    @property
    def scale(self) -> float:
        """The size of what is to explain: the larger of ``|prediction - reference|`` and the largest contribution."""
        effects = np.concatenate([self.main_effects.mean, self.pair_effects.mean])
        return max(abs(self.prediction - self.reference), float(np.abs(effects).max(initial=0.0)))

    @property
    def remainder_share(self) -> float:
        """``|remainder|`` as a part of :attr:`scale`."""
        return abs(self.remainder) / self.scale if self.scale > 0 else 0.0

    @property
    def plot(self) -> LocalPlots:
        """Plots: ``local.plot.waterfall()`` and ``local.plot.network()``."""
        return LocalPlots(self)

    def table(self, level: float = 0.95) -> pd.DataFrame:
        """Return all contributions, the largest first: contribution, kind, mean, std, low, high.

        ``kind`` is ``"main"``, ``"pair"`` or ``"remainder"``; ``level`` is that of the intervals. The means sum to
        prediction - reference.
        """
        import pandas as pd

        main, pairs = self._main_table(level), self._pair_table(level)
        labels = [join_names(i, j) for i, j in zip(pairs["unit_i"], pairs["unit_j"], strict=True)]
        numbers = ["mean", "std", "low", "high"]
        parts = [
            pd.DataFrame({"contribution": main["unit"], "kind": "main"}).join(main[numbers]),
            pd.DataFrame({"contribution": labels, "kind": "pair"}).join(pairs[numbers]),
            pd.DataFrame({"contribution": ["remainder"], "kind": ["remainder"], "mean": [self.remainder]}),
        ]
        table = pd.concat([part for part in parts if len(part)], ignore_index=True)
        order = np.argsort(-table["mean"].abs().to_numpy(), kind="stable")
        return table.iloc[order].reset_index(drop=True)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the account to a ``.npz`` file of arrays and JSON, and return its path.

        >>> import tempfile, torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> local = explainer.explain_row(torch.tensor([1.0, 2.0]), baseline=0, progress=False)
        >>> geh.LocalExplanation.load(local.save(f"{tempfile.mkdtemp()}/local.npz")).table().equals(local.table())
        True
        """
        return write_accounts([self], path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LocalExplanation:
        """Read a file written by :meth:`save`. Nothing in it is executed; a damaged file raises ``GEHValueError``."""
        accounts = read_accounts(path)
        if len(accounts) > 1:
            raise GEHValueError(
                f"path={str(path)!r} holds {len(accounts)} accounts; read it by LocalExplanations.load(path)."
            )
        return cls(**accounts[0])

    def _main_table(self, level: float) -> pd.DataFrame:
        table = _table({"unit": self.names}, self.main_effects, level)
        order = np.argsort(-np.abs(self.main_effects.mean), kind="stable")
        return table.assign(row=self.row_values[order], baseline=self.baseline_values[order])

    def _pair_table(self, level: float) -> pd.DataFrame:
        first, second = np.triu_indices(len(self.names), 1)
        units = {"unit_i": [self.names[i] for i in first], "unit_j": [self.names[j] for j in second]}
        return _table(units, self.pair_effects, level)

    def __repr__(self) -> str:
        main, pairs = (_signed(part.mean.sum()) for part in (self.main_effects, self.pair_effects))
        lines = [
            f"prediction {self.prediction:.4g} = reference {self.reference:.4g} {main} (main effects) {pairs} (pairs) "
            f"{_signed(self._shown_remainder)} (remainder)",
            f"{self.method} of {self.place}; baseline: {self.baseline}; {self._uncertainty()}",
        ]
        table = self.table().head(_SHOWN)
        shown = table if self.has_intervals else table.drop(columns=["std", "low", "high"])
        return "\n".join([*lines, shown.to_string(index=False, float_format=lambda value: f"{value:.4g}", na_rep="")])

    def _repr_html_(self) -> str:
        from html import escape

        lines = repr(self).split("\n")[:2]
        shown = self.table().head(_SHOWN)
        table = shown if self.has_intervals else shown.drop(columns=["std", "low", "high"])
        return "".join(f"<p>{escape(line)}</p>" for line in lines) + table.to_html(
            index=False, border=0, float_format=lambda value: f"{value:.4g}", na_rep=""
        )

    @property
    def _shown_remainder(self) -> float:
        """The remainder, 0 where it is rounding."""
        return self.remainder if self.remainder_share > _ROUNDING else 0.0

    def _uncertainty(self) -> str:
        """Return where intervals come from, in words."""
        if not self.has_intervals:
            return "a point estimate without intervals"
        sources = [f"{self.n_draws} draws"] * (self.n_draws > 1) + [f"{self.n_baselines} baselines"] * (
            self.n_baselines > 1
        )
        return f"intervals over {' and '.join(sources)}"


def _table(units: dict[str, list[str]], effects: Contributions, level: float) -> pd.DataFrame:
    """Return contributions with their units, the largest first."""
    import pandas as pd

    low, high = effects.interval(check_level(level))
    columns: dict[str, Any] = {**units, "mean": effects.mean, "std": effects.std, "low": low, "high": high}
    order = np.argsort(-np.abs(effects.mean), kind="stable")
    return pd.DataFrame(columns).iloc[order].reset_index(drop=True)


def _signed(value: float) -> str:
    """Return a number with its sign as an operator."""
    return f"{'-' if value < 0 else '+'} {abs(value):.4g}"


class LocalExplanations(Sequence[LocalExplanation]):
    """Accounts of several predictions, in the order of the rows.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    >>> accounts = explainer.explain_row(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), baseline=0, progress=False)
    >>> len(accounts), round(accounts[1].prediction, 4), len(accounts.table())
    (2, 12.0, 8)
    """

    def __init__(self, accounts: Sequence[LocalExplanation]) -> None:
        self._accounts = tuple(accounts)

    def __len__(self) -> int:
        return len(self._accounts)

    @overload
    def __getitem__(self, index: int) -> LocalExplanation: ...

    @overload
    def __getitem__(self, index: slice) -> LocalExplanations: ...

    def __getitem__(self, index: int | slice) -> LocalExplanation | LocalExplanations:
        """Return the account of a row, or those of a slice of the rows."""
        found = self._accounts[index]
        return found if isinstance(found, LocalExplanation) else LocalExplanations(found)

    def __iter__(self) -> Iterator[LocalExplanation]:
        return iter(self._accounts)

    def table(self, level: float = 0.95) -> pd.DataFrame:
        """Return the tables of all accounts below each other; the first column, ``row``, numbers the rows from 0."""
        import pandas as pd

        tables = {number: account.table(level) for number, account in enumerate(self)}
        return pd.concat(tables, names=["row"]).reset_index(level="row").reset_index(drop=True)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the accounts to one ``.npz`` file of arrays and JSON, and return its path.

        >>> import tempfile, torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> accounts = explainer.explain_row(torch.ones(3, 2), baseline=0, progress=False)
        >>> len(geh.LocalExplanations.load(accounts.save(f"{tempfile.mkdtemp()}/rows.npz")))
        3
        """
        return write_accounts(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LocalExplanations:
        """Read a file written by :meth:`save`, or by that of a single account."""
        return cls([LocalExplanation(**account) for account in read_accounts(path)])

    def __repr__(self) -> str:
        lines = [f"row {number}: {repr(account).splitlines()[0]}" for number, account in enumerate(self[:_SHOWN])]
        more = len(self) - _SHOWN
        return "\n".join([f"accounts of {len(self)} predictions", *lines, *[f"and {more} more"] * (more > 0)])
