"""Targets of the simulated study, and whether they are met."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from studies.simulated.experiment import POSTERIORS
from studies.text import markdown_table

#: Mean rank of the seven true pairs among 28 in a random order.
_CHANCE = 14.5
#: Their mean rank when they come first.
_BEST = 4.0
#: Methods that GEH is compared with.
_BASELINES = ("NID", "SHAP", "Lasso")


def verdict_table(table: pd.DataFrame) -> str:
    """Return a Markdown table of targets, results, and whether the targets are met."""
    rows = [[target, reached, "met" if met else "**missed**"] for target, reached, met in _verdicts(table)]
    return markdown_table(["target", "result", ""], rows)


def _verdicts(table: pd.DataFrame) -> Iterator[tuple[str, str, bool]]:
    """Yield target, result and whether it is met."""
    for posterior in ("concrete dropout", "bootstrap ensemble"):
        yield from _rank_verdicts(table, posterior)
    for posterior in ("concrete dropout", "bootstrap ensemble"):
        yield from _auc_verdicts(table, posterior)
    yield _coverage_verdict(table)
    for posterior in POSTERIORS:
        rate = _mean(table, "sign_fpr", "GEH", posterior)
        yield (f"sign rule, {posterior}: at most 6 % of null pairs at nominal 5 %", f"{rate:.1%}", rate <= 0.06)


def _rank_verdicts(table: pd.DataFrame, posterior: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the verdicts on the mean rank of the true pairs, against the baselines and the Oracle."""
    geh = _mean_by_ratio(table, "mean_rank", "GEH", posterior)
    baselines = pd.DataFrame({name: _mean_by_ratio(table, "mean_rank", name, "") for name in _BASELINES})
    best = baselines.min(axis=1)
    # Ratios at which no method beats a random order say nothing about the methods.
    informative = [sn for sn in geh.index if sn > 0 and min(geh[sn], best[sn]) < _CHANCE]
    # A tie counts only where both are perfect.
    better = [sn for sn in informative if geh[sn] < best[sn] or geh[sn] == _BEST]
    reached = ", ".join(
        f"{geh[sn]:.1f} to {best[sn]:.1f} ({baselines.loc[sn].idxmin()}) at {sn:g}" for sn in informative
    )
    yield (
        f"GEH, {posterior}: better mean rank than NID, SHAP and Lasso at every S/N > 0, or the best possible",
        reached,
        better == informative,
    )
    highest = max(geh.index)
    oracle = _mean_by_ratio(table, "mean_rank", "Oracle", "")[highest]
    reached = f"{geh[highest]:.2f} to {oracle:.2f}"
    yield f"GEH, {posterior}: within 10 % of the Oracle at the highest S/N", reached, geh[highest] <= 1.1 * oracle


def _auc_verdicts(table: pd.DataFrame, posterior: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the verdicts on the area under the ROC curve."""
    areas = {name: _mean_by_ratio(table, "auc", name, posterior) for name in ("GEH", "AEH", "EAH")}
    means = {name: float(values.mean()) for name, values in areas.items()}
    reached = f"{means['GEH']:.3f}, {means['AEH']:.3f}, {means['EAH']:.3f}"
    met = means["GEH"] > max(means["AEH"], means["EAH"])
    yield f"AUC over all S/N > 0, {posterior}: GEH above AEH and EAH", reached, met
    high = areas["GEH"][areas["GEH"].index >= 1]
    reached = ", ".join(f"{area:.3f} at {sn:g}" for sn, area in high.items())
    yield f"AUC of GEH, {posterior}: at least 0.95 at S/N of 1 and more", reached, bool((high >= 0.95).all())


def _coverage_verdict(table: pd.DataFrame) -> tuple[str, str, bool]:
    """Return the verdict on the share of intervals that contain the true GEH."""
    shares = {posterior: _mean(table, "coverage", "GEH", posterior) for posterior in POSTERIORS}
    reached = ", ".join(f"{posterior} {share:.0%}" for posterior, share in shares.items())
    met = any(0.85 <= share <= 0.99 for share in shares.values())
    return (
        "95 % intervals hold 85 % to 99 % of the true GEH, over all S/N > 0, with one of the posteriors",
        reached,
        met,
    )


def _mean_by_ratio(table: pd.DataFrame, column: str, method: str, posterior: str) -> pd.Series:
    """Return the mean of a column over data sets, by signal to noise."""
    rows = table[(table["method"] == method) & (table["posterior"] == posterior)].dropna(subset=[column])
    return rows.groupby("sn")[column].mean()


def _mean(table: pd.DataFrame, column: str, method: str, posterior: str) -> float:
    """Return the mean of a column over all data sets."""
    rows = table[(table["method"] == method) & (table["posterior"] == posterior)]
    return float(rows[column].mean())
