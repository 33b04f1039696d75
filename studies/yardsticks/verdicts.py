"""Targets of the study of yardsticks, which were set before its first run, and whether they are met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
from scipy.stats import t as student

from studies.yardsticks import diamond
from studies.yardsticks.ours import SCORES
from studies.yardsticks.summary import Mean, areas, in_setting, seed_means, settings, suite_means

#: Smallest mean area over the suite of NID, and for each of its functions.
_MIN_MEAN, _MIN_FUNCTION = 0.96, 0.85
#: Cost of an expansion at most, in gradients.
_MAX_GRADIENTS = 50

#: A target, what was found, and the verdict.
Verdict = tuple[str, str, str]


def verdicts(tables: Mapping[str, pd.DataFrame]) -> Iterator[Verdict]:
    """Yield the targets of all parts that have a table."""
    judges = {"nid": _judge_nid, "diamond": _judge_diamond, "archipelago": _judge_archipelago, "taylor": _judge_taylor}
    for name, judge in judges.items():
        if name in tables:
            yield from judge(tables[name])


def _judge_nid(table: pd.DataFrame) -> Iterator[Verdict]:
    """Judge the default score in each setting."""
    for setting in settings(table):
        means = suite_means(table, setting)
        own = means[SCORES[0]].mean
        count = in_setting(table, setting)["seed"].nunique()
        title = f"NID, {setting}, {count} seed{'s' if count > 1 else ''}"
        yield (f"{title}: mean AUC at least {_MIN_MEAN:g}", f"{own:.3f}", _word(own >= _MIN_MEAN))
        by_function = areas(table, setting).loc[SCORES[0]].to_dict()
        worst = min(by_function, key=lambda name: by_function[name])
        found = f"{by_function[worst]:.3f} ({worst})"
        yield (
            f"{title}: no function below {_MIN_FUNCTION:g}",
            found,
            _word(by_function[worst] >= _MIN_FUNCTION),
        )
        others = {method: found.mean for method, found in means.items() if method not in SCORES}
        if others:
            best = max(others, key=lambda method: others[method])
            lead = seed_means(table, setting, SCORES[0]) - seed_means(table, setting, best)
            found = f"{own:.3f} against {others[best]:.3f} ({best}); difference {Mean.of(lead)}"
            yield f"{title}: ahead of every peer", found, _compare(lead)


def _judge_diamond(table: pd.DataFrame) -> Iterator[Verdict]:
    """Judge error rates and power of the corrected truth, by the worst function."""
    part = table[table["truth"] == "corrected"]
    rates = {str(name): Mean.of(found["fdp"]) for name, found in part.groupby("function", sort=False)}
    excess = {name: rate.mean - 2 * np.nan_to_num(rate.error) for name, rate in rates.items()}
    worst = max(excess, key=lambda name: excess[name])
    yield (
        f"Diamond: FDR at most {diamond.RATE:g} + 2 standard errors on every function",
        f"{rates[worst]} ({worst})",
        _word(excess[worst] <= diamond.RATE),
    )
    found, of = diamond.QUOTED_F1
    powers = part.groupby("function", sort=False)["power"].mean()
    least = str(powers.idxmin())
    yield (
        f"Diamond: power at least {found} / {of} on every function",
        f"{powers[least]:.3f} ({least})",
        _word(powers[least] >= found / of),
    )


def _judge_archipelago(table: pd.DataFrame) -> Iterator[Verdict]:
    """Judge the sum of both directions."""
    area = float(table.loc[table["method"] == "both directions", "auc"].min())
    yield "Archipelago: AUC 1 on all functions", f"{area:.3f}", _word(area == 1)


def _judge_taylor(table: pd.DataFrame) -> Iterator[Verdict]:
    """Judge the expansion by radius against SmoothHess with the most pairs, its cost, and the default."""
    most = table["pairs"].max()
    kinds = {"own": table["method"] == "Radius", "peer": table["pairs"] == most}
    means = {kind: table[rows].groupby("radius")["pmse"].mean() for kind, rows in kinds.items()}
    ratio = float((means["own"] / means["peer"]).max())
    yield (
        f"P-MSE at most that of SmoothHess with {most:,.0f} pairs, at all radii",
        f"{ratio:.2f} of it at most",
        _word(ratio <= 1),
    )
    for column, way in (("gradients", "one by one"), ("gradients_in_batch", "of a batch")):
        cost = float(table[column].mean())
        target = f"cost of an expansion at most {_MAX_GRADIENTS} gradients, computed {way}"
        yield target, f"{cost:.0f}", _word(cost <= _MAX_GRADIENTS)
    auto = float(table.loc[table["method"].str.startswith("auto"), "relative"].max())
    yield 'P-MSE of `smooth="auto"` at most that without a Hessian', f"{auto:.2f} of it at most", _word(auto <= 1)


def _compare(lead: pd.Series) -> str:
    """Return whether the mean of differences, one per seed, is above 0: by Student's 95 % interval."""
    mean, error = Mean.of(lead)
    if np.isnan(error) or abs(mean) <= student.ppf(0.975, lead.count() - 1) * error:
        return "**not clear**"
    return _word(mean > 0)


def _word(met: bool) -> str:
    """Return the verdict in a word."""
    return "met" if met else "**missed**"
