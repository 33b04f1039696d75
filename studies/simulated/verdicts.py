"""What the study was to show, and whether it does."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from studies.simulated.experiment import POSTERIORS
from studies.text import markdown

#: Mean rank of the seven true pairs of 28 by chance, and at best.
_CHANCE, _BEST = 14.5, 4.0
_OTHERS = ("NID", "SHAP", "Lasso")


def verdicts(table: pd.DataFrame) -> str:
    """Return a table of what was wanted, what was reached, and whether that is enough."""
    rows = [[wanted, reached, "met" if met else "**missed**"] for wanted, reached, met in _all(table)]
    return markdown(["wanted", "reached", ""], rows)


def _all(table: pd.DataFrame) -> Iterator[tuple[str, str, bool]]:
    for posterior in ("concrete dropout", "bootstrap ensemble"):
        yield from _ranks(table, posterior)
    for posterior in ("concrete dropout", "bootstrap ensemble"):
        yield from _areas(table, posterior)
    yield _coverage(table)
    for posterior in POSTERIORS:
        level = _mean(table, "sign_fpr", "GEH", posterior)
        yield (f"sign rule, {posterior}: at most 6 % of null pairs at nominal 5 %", f"{level:.1%}", level <= 0.06)


def _ranks(table: pd.DataFrame, posterior: str) -> Iterator[tuple[str, str, bool]]:
    own = _by_level(table, "mean_rank", "GEH", posterior)
    others = pd.DataFrame({name: _by_level(table, "mean_rank", name, "") for name in _OTHERS})
    best = others.min(axis=1)
    told = [sn for sn in own.index if sn > 0 and min(own[sn], best[sn]) < _CHANCE]
    # Where another is perfect too, so must GEH be.
    won = [sn for sn in told if own[sn] < best[sn] or own[sn] == _BEST]
    where = ", ".join(f"{own[sn]:.1f} to {best[sn]:.1f} ({others.loc[sn].idxmin()}) at {sn:g}" for sn in told)
    yield (
        f"GEH, {posterior}: better mean rank than NID, SHAP and Lasso at every S/N > 0, or the best possible",
        where,
        won == told,
    )
    highest = max(own.index)
    oracle = _by_level(table, "mean_rank", "Oracle", "")[highest]
    reached = f"{own[highest]:.2f} to {oracle:.2f}"
    yield f"GEH, {posterior}: within 10 % of the Oracle at the highest S/N", reached, own[highest] <= 1.1 * oracle


def _areas(table: pd.DataFrame, posterior: str) -> Iterator[tuple[str, str, bool]]:
    own = {name: _by_level(table, "auc", name, posterior) for name in ("GEH", "AEH", "EAH")}
    means = {name: float(values.mean()) for name, values in own.items()}
    reached = f"{means['GEH']:.3f}, {means['AEH']:.3f}, {means['EAH']:.3f}"
    met = means["GEH"] > max(means["AEH"], means["EAH"])
    yield f"AUC over all S/N > 0, {posterior}: GEH above AEH and EAH", reached, met
    high = own["GEH"][own["GEH"].index >= 1]
    reached = ", ".join(f"{area:.3f} at {sn:g}" for sn, area in high.items())
    yield f"AUC of GEH, {posterior}: at least 0.95 at S/N of 1 and more", reached, bool((high >= 0.95).all())


def _coverage(table: pd.DataFrame) -> tuple[str, str, bool]:
    found = {posterior: _mean(table, "coverage", "GEH", posterior) for posterior in POSTERIORS}
    reached = ", ".join(f"{posterior} {share:.0%}" for posterior, share in found.items())
    met = any(0.85 <= share <= 0.99 for share in found.values())
    return (
        "95 % intervals hold 85 % to 99 % of the true GEH, over all S/N > 0, with one of the posteriors",
        reached,
        met,
    )


def _by_level(table: pd.DataFrame, column: str, method: str, posterior: str) -> pd.Series:
    own = table[(table["method"] == method) & (table["posterior"] == posterior)].dropna(subset=[column])
    return own.groupby("sn")[column].mean()


def _mean(table: pd.DataFrame, column: str, method: str, posterior: str) -> float:
    own = table[(table["method"] == method) & (table["posterior"] == posterior)]
    return float(own[column].mean())
