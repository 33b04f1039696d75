"""Tables of a result, and the rules by which a pair is significant.

Pandas is imported inside functions, so that explaining does not load it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain._types import Floats, Ints
from geh_explain._validation import check_level, check_rate
from geh_explain.errors import GEHValueError
from geh_explain.scores.pair_scores import Scores
from geh_explain.statistics.intervals import gaussian_interval
from geh_explain.statistics.p_values import bayesian_p_value, benjamini_hochberg

if TYPE_CHECKING:
    import pandas as pd

#: Rules of significance.
RULES = ("interval", "sign")


def check_decision(level: float, fdr: float | None, rule: str) -> None:
    """Raise unless level, false discovery rate and rule of a table are valid."""
    check_level(level)
    if rule not in RULES:
        raise GEHValueError(f"rule={rule!r} is unknown; use 'interval' or 'sign'.")
    if fdr is not None:
        check_rate(fdr)


def pair_table(
    scores: Scores, names: list[str], *, level: float, fdr: float | None, sign_p_values: Floats | None
) -> pd.DataFrame:
    """Return one row per pair, the strongest first.

    Parameters
    ----------
    scores
        Scores of a measure.
    names
        Names of the units.
    level
        Level of the intervals, and of significance if ``fdr`` is None.
    fdr
        False discovery rate at which the Benjamini-Hochberg procedure decides on the p-values, or None.
    sign_p_values
        P-values (P,) of the sign rule, by which pairs are then significant; None for the interval rule.

    Returns
    -------
    DataFrame
        Columns unit_i, unit_j, mean, std, low, high, p_value, significant. With a single draw all but the first three
        are missing values.
    """
    import pandas as pd

    mean, std = scores.pair_mean, scores.pair_std
    if scores.n_draws < 2:
        low = high = p_value = np.full(len(mean), np.nan)
        significant: Any = pd.array([pd.NA] * len(mean), dtype="boolean")
    else:
        low, high = scores.pair_interval(level)
        # Scores are not negative, so an interval excludes 0 exactly if its low end is positive.
        p_value = bayesian_p_value(mean, std) if sign_p_values is None else sign_p_values
        if fdr is not None:
            significant = benjamini_hochberg(p_value, fdr)
        else:
            significant = low > 0 if sign_p_values is None else p_value < 1 - level
    first, second = np.triu_indices(len(names), 1)
    columns = {
        "unit_i": [names[i] for i in first],
        "unit_j": [names[j] for j in second],
        "mean": mean,
        "std": std,
        "low": low,
        "high": high,
        "p_value": p_value,
        "significant": significant,
    }
    return pd.DataFrame(columns).sort_values("mean", ascending=False, kind="stable", ignore_index=True)


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


def group_table(mean: Floats, std: Floats, sizes: Ints, group_names: list[str], level: float) -> pd.DataFrame:
    """Return one row per group with the signed effect of one pair: size, mean, std, low, high.

    ``mean`` and ``std`` (M,) are over draws, of the mean interaction in each group.
    """
    import pandas as pd

    check_level(level)
    low, high = gaussian_interval(mean, std, level)
    columns = {"size": sizes, "mean": mean, "std": std, "low": low, "high": high}
    return pd.DataFrame(columns, index=pd.Index(group_names, name="group"))
