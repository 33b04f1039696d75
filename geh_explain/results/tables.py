"""Tables of a result as DataFrames.

Pandas is imported inside functions, so that explaining does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain.scores.decisions import SUPPORTED, Decisions
from geh_explain.scores.evidence import Evidence
from geh_explain.units.pair_set import PairSet

if TYPE_CHECKING:
    import pandas as pd


def pair_table(
    decisions: Decisions, evidence: Evidence | None, names: list[str], pairs: PairSet, unit: int | None
) -> pd.DataFrame:
    """Return one row per pair, the strongest first.

    Parameters
    ----------
    decisions
        Scores, intervals and decisions of all pairs.
    evidence
        Outcome of the held-out test, None if there is none.
    names
        Names of the units.
    pairs
        The pairs.
    unit
        Index of a unit whose pairs are returned; None for all pairs.

    Returns
    -------
    DataFrame
        Columns unit_i, unit_j, mean, std, low, high, and those of the rule, the decision last. Numbers that are unknown
        are NaN, decisions that are unknown are missing values.
    """
    import pandas as pd

    first, second = pairs.ends
    columns: dict[str, Any] = {
        "unit_i": [names[i] for i in first],
        "unit_j": [names[j] for j in second],
        **{name: getattr(decisions, name) for name in ("mean", "std", "low", "high")},
    }
    if decisions.rule == "evidence" or decisions.measure == SUPPORTED:
        columns["supported"] = decisions.supported
    if decisions.true_interval is not None:
        columns["true_low"], columns["true_high"] = decisions.true_interval
    if decisions.rule == "evidence" and evidence is not None:
        columns |= {"slope": evidence.slope, "slope_se": evidence.slope_se}
    if decisions.rule != "sign":
        columns["p_value"] = decisions.p_value
    unknown = decisions.accepted is None
    columns[decisions.column] = pd.array([pd.NA] * len(first), dtype="boolean") if unknown else decisions.accepted
    order = decisions.order
    if unit is not None:
        order = order[(first[order] == unit) | (second[order] == unit)]
    return pd.DataFrame(columns).iloc[order].reset_index(drop=True)


#: Columns of scores, which are printed with the same number of decimals.
_SCORES = ("mean", "std", "low", "high", "supported", "true_low", "true_high")
#: Columns that are not printed next to evidence.
_NOT_PRINTED = ("std", "low", "high")
#: P-values below this are not printed.
_MIN_P_VALUE = 0.001
#: Words for decisions.
_WORDS = {True: "yes", False: "no"}
#: Scores of which the largest lies between these are printed with decimals, others with an exponent.
_MIN_DECIMAL, _MAX_DECIMAL = 1e-4, 1e6


def format_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of pairs as text, for printing.

    Scores have the same number of decimals, by which the largest has four digits. Columns without any value, and next
    to evidence std, low and high, are left out.

    >>> import pandas as pd
    >>> print(format_table(pd.DataFrame({"unit_i": ["a"], "unit_j": ["b"], "mean": [12.3456], "p_value": [1e-9]})))
      unit_i unit_j   mean p_value
    0      a      b  12.35  <0.001
    """
    import pandas as pd

    skipped = _NOT_PRINTED if "slope" in table else ()
    shown = [str(name) for name in table if name not in skipped and not table[name].isna().all()]
    largest = float(np.nanmax(np.abs(table[[name for name in _SCORES if name in shown]].to_numpy(dtype=float))))
    score = "{:.4g}"
    if _MIN_DECIMAL < largest < _MAX_DECIMAL:
        score = f"{{:.{max(2, 3 - int(np.floor(np.log10(largest))))}f}}"
    formats = {**dict.fromkeys(_SCORES, score), "slope": "{:.2f}", "slope_se": "{:.2f}", "p_value": "{:.3f}"}

    def text(name: str, value: Any) -> str:
        """Return one cell."""
        if value is pd.NA or value != value:
            return ""
        if name == "p_value" and value < _MIN_P_VALUE:
            return f"<{_MIN_P_VALUE}"
        return _WORDS.get(value, str(value)) if name not in formats else formats[name].format(value)

    cells = pd.DataFrame({name: [text(name, value) for value in table[name]] for name in shown}, index=table.index)
    if "slope" in table:
        # A pair that was not tested is not decided about.
        cells.loc[table["p_value"].isna(), "significant"] = ""
    return cells


def monte_carlo_table(table: pd.DataFrame, draws: int) -> pd.DataFrame:
    """Return the pairs of ``table`` with the Monte Carlo errors of their mean and std over K = ``draws`` draws.

    With posterior standard deviation s, the error of the mean is s / sqrt(K) and that of the standard deviation
    s / sqrt(2 (K - 1)), the latter for Gaussian draws.
    """
    import pandas as pd

    errors = {
        "mean_error": table["std"] / np.sqrt(draws),
        "std_error": table["std"] / np.sqrt(max(2 * draws - 2, 1)),
    }
    return pd.concat([table[["unit_i", "unit_j", "mean", "std"]], pd.DataFrame(errors)], axis=1)


def variance_table(
    decisions: Decisions, names: list[str], pairs: PairSet, draws: Floats, points: Floats
) -> pd.DataFrame:
    """Return the pairs in the order of ``decisions`` with the variances (P,) of their score over draws and points.

    NaN is an unknown variance, which does not count in ``total``; ``share`` is that of the points in the total, NaN
    where their variance is unknown.
    """
    import pandas as pd

    first, second = pairs.ends
    total = np.where(np.isnan(draws) & np.isnan(points), np.nan, np.nan_to_num(draws) + np.nan_to_num(points))
    share = np.divide(points, total, out=np.full_like(total, np.nan), where=total > 0)
    columns: dict[str, Any] = {
        "unit_i": [names[i] for i in first],
        "unit_j": [names[j] for j in second],
        "mean": decisions.mean,
        "draws": draws,
        "points": points,
        "total": total,
        "share": share,
    }
    return pd.DataFrame(columns).iloc[decisions.order].reset_index(drop=True)


def group_table(
    mean: Floats, std: Floats, half_width: Floats, sizes: Ints, group_names: list[str], shares: Floats | None = None
) -> pd.DataFrame:
    """Return one row per group with the signed effect of one pair: size, weight if there are any, mean, std, low, high.

    ``mean`` and ``std`` (M,) are over draws, of the mean interaction in each group, ``half_width`` (M,) is that of its
    interval. ``shares`` (M,) are those of the groups in the case weights, None without weights.
    """
    import pandas as pd

    weight = {} if shares is None else {"weight": shares}
    columns = {"size": sizes, **weight, "mean": mean, "std": std, "low": mean - half_width, "high": mean + half_width}
    return pd.DataFrame(columns, index=pd.Index(group_names, name="group"))
