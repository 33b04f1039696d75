"""Targets of the simulated study, and whether they are met."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from studies.simulated.experiment import POSTERIORS
from studies.simulated.summary import SUPPORTED
from studies.text import markdown_table

#: Mean rank of the seven true pairs among 28 in a random order.
_CHANCE = 14.5
#: Their mean rank when they come first.
_BEST = 4.0
#: Methods that GEH is compared with.
_BASELINES = ("NID", "SHAP", "Lasso")
#: Posteriors whose ranks are compared.
_RANKED = ("concrete dropout", "bootstrap ensemble")
#: Limits of the level at nominal 5 %, and of the coverage at nominal 95 %.
_LEVELS = (0.03, 0.07)
_COVERAGES = (0.93, 0.99)
#: Power of the held-out test that is wanted, by signal to noise.
_POWERS = {1.0: 0.95, 10.0: 1.0}
#: Mean ranks that the supported score should beat, by signal to noise: those of GEH with concrete dropout before.
_RANKS = {0.1: 6.9, 0.3: 4.5}


def verdict_table(table: pd.DataFrame) -> str:
    """Return a Markdown table of targets, results, and whether the targets are met."""
    rows = [[target, reached, "met" if met else "**missed**"] for target, reached, met in _verdicts(table)]
    return markdown_table(["target", "result", ""], rows)


def _verdicts(table: pd.DataFrame) -> Iterator[tuple[str, str, bool]]:
    """Yield target, result and whether it is met."""
    for posterior in POSTERIORS:
        yield from _evidence_verdicts(table, posterior)
    yield _label_coverage_verdict(table)
    for posterior in _RANKED:
        yield from _supported_verdicts(table, posterior)
    for method in (SUPPORTED, "GEH"):
        for posterior in _RANKED:
            yield from _rank_verdicts(table, method, posterior)
    for posterior in _RANKED:
        yield from _auc_verdicts(table, posterior)
    yield _coverage_verdict(table)
    for posterior in POSTERIORS:
        rate = _mean(table, "sign_fpr", "GEH", posterior)
        yield (f"sign rule, {posterior}: at most 6 % of null pairs at nominal 5 %", f"{rate:.1%}", rate <= 0.06)


def _evidence_verdicts(table: pd.DataFrame, posterior: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the verdicts on level, false discovery rate, power and intervals of the held-out test of one posterior."""
    chosen = table[(table["method"] == "GEH") & (table["posterior"] == posterior)]
    level, error = _mean_and_error(chosen["evidence_fpr"])
    yield (
        f"evidence, {posterior}: 3 to 7 % of null pairs at nominal 5 %, over all S/N",
        f"{level:.1%} ± {error:.1%}",
        _LEVELS[0] <= level <= _LEVELS[1],
    )
    rate, error = _mean_and_error(chosen["fdr"])
    yield (
        f"evidence, {posterior}: false discovery rate at most 5 %, up to two standard errors, over all S/N",
        f"{rate:.1%} ± {error:.1%}",
        rate <= 0.05 + 2 * error,
    )
    powers = 1 - _mean_by_ratio(table, "evidence_fnr", "GEH", posterior)
    wanted = {sn: power for sn, power in _POWERS.items() if sn in powers.index}
    yield (
        f"evidence, {posterior}: power of at least 95 % at S/N 1, and of 100 % at 10",
        ", ".join(f"{powers[sn]:.1%} at {sn:g}" for sn in wanted),
        all(powers[sn] >= power for sn, power in wanted.items()),
    )
    share = float(chosen["evidence_coverage"].mean())
    yield (
        f"interval from labels, {posterior}: holds 93 to 99 % of the true GEH, over all S/N > 0",
        f"{share:.1%}",
        _COVERAGES[0] <= share <= _COVERAGES[1],
    )


def _label_coverage_verdict(table: pd.DataFrame) -> tuple[str, str, bool]:
    """Return the verdict on the intervals from held-out labels at each S/N.

    Posteriors are pooled: the seven true pairs of a few data sets are too few to tell 99 from 100 %.
    """
    rows = table[(table["method"] == "GEH") & table["posterior"].isin(POSTERIORS)].dropna(subset=["evidence_coverage"])
    shares = rows.groupby("sn")["evidence_coverage"].mean()
    reached = ", ".join(f"{share:.1%} at {sn:g}" for sn, share in shares.items())
    met = bool(shares.between(*_COVERAGES).all())
    return "interval from labels: holds 93 to 99 % of the true GEH at each S/N > 0, over all posteriors", reached, met


def _supported_verdicts(table: pd.DataFrame, posterior: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the verdict on the mean rank of the true pairs by the supported score, where the signal is weak."""
    supported, geh = (_mean_by_ratio(table, "mean_rank", method, posterior) for method in (SUPPORTED, "GEH"))
    wanted = {sn: rank for sn, rank in _RANKS.items() if sn in supported.index}
    if wanted:
        yield (
            f"supported, {posterior}: mean rank below "
            + " and ".join(f"{rank:g} at S/N {sn:g}" for sn, rank in wanted.items()),
            ", ".join(f"{supported[sn]:.2f} (GEH {geh[sn]:.2f}) at {sn:g}" for sn in wanted),
            all(supported[sn] < rank for sn, rank in wanted.items()),
        )


def _rank_verdicts(table: pd.DataFrame, method: str, posterior: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the verdicts on the mean rank of the true pairs, against the baselines and the Oracle."""
    own = _mean_by_ratio(table, "mean_rank", method, posterior)
    baselines = pd.DataFrame({name: _mean_by_ratio(table, "mean_rank", name, "") for name in _BASELINES})
    best = baselines.min(axis=1)
    # Ratios at which no method beats a random order say nothing about the methods.
    informative = [sn for sn in own.index if sn > 0 and min(own[sn], best[sn]) < _CHANCE]
    # A tie counts only where both are perfect.
    better = [sn for sn in informative if own[sn] < best[sn] or own[sn] == _BEST]
    reached = ", ".join(
        f"{own[sn]:.1f} to {best[sn]:.1f} ({baselines.loc[sn].idxmin()}) at {sn:g}" for sn in informative
    )
    yield (
        f"{method}, {posterior}: better mean rank than NID, SHAP and Lasso at every S/N > 0, or the best possible",
        reached,
        better == informative,
    )
    highest = max(own.index)
    oracle = _mean_by_ratio(table, "mean_rank", "Oracle", "")[highest]
    reached = f"{own[highest]:.2f} to {oracle:.2f}"
    yield f"{method}, {posterior}: within 10 % of the Oracle at the highest S/N", reached, own[highest] <= 1.1 * oracle


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


def _mean_and_error(values: pd.Series) -> tuple[float, float]:
    """Return the mean of a column and its standard error, which is 0 for a single value."""
    numbers = values.to_numpy(float)
    error = float(numbers.std(ddof=1)) / len(numbers) ** 0.5 if len(numbers) > 1 else 0.0
    return float(numbers.mean()), error


def _mean_by_ratio(table: pd.DataFrame, column: str, method: str, posterior: str) -> pd.Series:
    """Return the mean of a column over data sets, by signal to noise."""
    rows = table[(table["method"] == method) & (table["posterior"] == posterior)].dropna(subset=[column])
    return rows.groupby("sn")[column].mean()


def _mean(table: pd.DataFrame, column: str, method: str, posterior: str) -> float:
    """Return the mean of a column over all data sets."""
    rows = table[(table["method"] == method) & (table["posterior"] == posterior)]
    return float(rows[column].mean())
