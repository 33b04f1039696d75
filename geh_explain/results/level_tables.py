"""The table of differences between levels of a pair with a category."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain._types import Floats
from geh_explain._validation import check_level
from geh_explain.errors import GEHValueError
from geh_explain.scores.draws import Draws
from geh_explain.scores.level_means import LevelMeans
from geh_explain.scores.point_uncertainty import find_point_uncertainty
from geh_explain.scores.protocol import PairResult
from geh_explain.scores.ranking import find_unit
from geh_explain.statistics.intervals import mean_half_width

if TYPE_CHECKING:
    import pandas as pd


def level_table(result: PairResult, i: int | str, j: int | str, level: float) -> pd.DataFrame:
    """Return the differences between levels of a pair, as :meth:`geh_explain.Interactions.levels` describes."""
    import pandas as pd

    check_level(level)
    pair, means = result.pair(i, j), LevelMeans.of(result)
    if means is None or pair not in means.levels.contrasts.category_pairs:
        raise GEHValueError(
            f"levels({i!r}, {j!r}): neither unit is a category, so that there are no levels; see regions({i!r}, {j!r}) "
            "for the groups of points. GEHExplainer(..., units=Categorical({...})) declares categories."
        )
    contrasts = means.levels.contrasts
    chosen, ends = contrasts.of_pair(pair), contrasts.level_ends(pair)
    units = [int(unit[pair]) for unit in result.pairs.ends]
    columns: dict[str, Any] = {}
    for letter, unit in (("i", find_unit(i, result.names)), ("j", find_unit(j, result.names))):
        of_unit = ends[units.index(unit)]
        if of_unit is not None:
            names = np.array(contrasts.levels[unit].names, dtype=object)
            columns |= {f"from_{letter}": names[of_unit[0]], f"to_{letter}": names[of_unit[1]]}
    mean, std, half_width = (values[chosen] for values in _overall(means, level))
    columns |= {"weight": contrasts.weights[chosen], "strength": means.scores("geh").pair_mean[chosen]}
    columns |= {"mean": mean, "std": std, "low": mean - half_width, "high": mean + half_width}
    order = np.argsort(-columns["strength"], kind="stable")
    return pd.DataFrame(columns).iloc[order].reset_index(drop=True)


def _overall(means: LevelMeans, level: float) -> tuple[Floats, Floats, Floats]:
    """Return mean and std over draws (Q,) of each difference over all points, and half the width of its interval."""
    shares, draws = means.group_shares, means.levels.draws
    mean, std = (shares @ values for values in means.signed_means)
    if isinstance(draws, Draws) and len(draws.signed) > 1:
        std = np.einsum("kmq,m->kq", draws.signed, shares).std(axis=0, ddof=1)
    # Else the weighted standard deviations are an upper bound, as covariances between groups are unknown.
    points = find_point_uncertainty(means, "aeh")
    errors = None if points is None else np.sqrt(np.maximum(points.variance, 0))[None]
    half_width = mean_half_width(std[None], means.scores().n_draws, errors, np.array([_count(means)]), level)
    return mean, std, half_width[0]


def _count(means: LevelMeans) -> float:
    """Return the effective number of all points, or of their clusters."""
    if means.cluster_errors is not None:
        return means.cluster_errors.total
    weights = means.sample_weight
    return len(means.labels) if weights is None else float(weights.sum() ** 2 / (weights**2).sum())
