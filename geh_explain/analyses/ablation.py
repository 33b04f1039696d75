"""Ablation: do pairs with high scores act jointly when their units are switched off?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from geh_explain._types import Floats, Ints
from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.engines.difference import outputs_after_moves
from geh_explain.errors import GEHValueError
from geh_explain.model.cut import Cut
from geh_explain.model.kept_points import keep_below
from geh_explain.run.options import AnalysisOptions
from geh_explain.units.categorical import Categorical
from geh_explain.units.category_columns import ObservedCategory
from geh_explain.units.pair_set import PairSet

if TYPE_CHECKING:
    import pandas as pd

#: How often points are resampled for the interval of the correlation.
_RESAMPLES = 500
#: Values below this share of the largest are rounding, and count as 0 where they are ranked.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class AblationCheck:
    """Agreement of scores with the joint effects of switching units off.

    For a pair (i, j) and a point x, with ``x/i`` the point whose unit i is at its baseline b_i::

        predicted = score_ij * mean over x of |x_i - b_i| |x_j - b_j|,
        observed  = mean over x of |f(x) - f(x/i) - f(x/j) + f(x/ij)|.

    A category is switched off by its most frequent level b_i, and ``|x_i - b_i|`` is 1 at other levels. Scores with a
    scale belong to steps that are divided by it.

    Attributes
    ----------
    pairs
        Names of the units of each pair.
    predicted, observed
        Both (C,), one number per pair.
    correlation
        Rank correlation of predicted and observed.
    low, high
        95 % interval of the correlation, from bootstrap samples of the points.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = lambda x: x[:, 0] * x[:, 1] + x[:, 1] * x[:, 2] / 9 + x[:, 3]
    >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
    >>> result = explainer.explain(torch.randn(100, 4), groups=1, progress=False)
    >>> check = explainer.check(result, torch.randn(100, 4), progress=False)
    >>> check.pairs[0], check.table().shape
    (('x0', 'x1'), (6, 4))
    """

    pairs: list[tuple[str, str]]
    predicted: Floats
    observed: Floats
    correlation: float
    low: float
    high: float

    def table(self) -> pd.DataFrame:
        """Return one row per pair, the largest joint effect first: unit_i, unit_j, predicted, observed."""
        import pandas as pd

        first, second = zip(*self.pairs, strict=True)
        columns = {"unit_i": first, "unit_j": second, "predicted": self.predicted, "observed": self.observed}
        return pd.DataFrame(columns).sort_values("observed", ascending=False, kind="stable", ignore_index=True)

    def __repr__(self) -> str:
        interval = f"{self.low:.2f} to {self.high:.2f}"
        return f"AblationCheck({len(self.pairs)} pairs: rank correlation {self.correlation:.2f}, {interval})"


@dataclass(frozen=True)
class AblationRequest:
    """Which scores are checked, and how.

    ``scores`` (P,) are those of the computed ``pairs`` of the units ``names``, whose scale is ``factors`` (D,);
    ``n_pairs`` of them are checked. A unit that is switched off is moved to its entry of ``baseline`` (D,).
    """

    names: list[str]
    pairs: PairSet
    scores: Floats
    n_pairs: int
    baseline: Floats
    factors: Floats


def check_pairs(cut: Cut, points: Points, request: AblationRequest, options: AnalysisOptions) -> AblationCheck:
    """Switch units off, alone and in pairs, and compare the joint effects with the scores.

    Half of the pairs are the strongest, the others are drawn from the rest.
    """
    chosen = _choose_pairs(request.scores, request.n_pairs, options.seed)
    scores = request.scores[chosen]
    first, second = (ends[chosen] for ends in request.pairs.ends)
    points = keep_below(cut, points, options.batch_size)
    areas = []
    effects = []
    with tqdm(total=len(points), desc="checking", unit="row", disable=not options.progress, leave=False) as bar:
        for rows in points.split(options.batch_size):
            steps, joint = _joint_effects(cut, rows, request.baseline, first, second)
            steps = np.divide(steps, request.factors, out=np.zeros_like(steps), where=request.factors > 0)
            areas.append(np.abs(steps[:, first] * steps[:, second]))
            effects.append(np.abs(joint))
            bar.update(len(rows))
    area, effect = np.concatenate(areas), np.concatenate(effects)
    predicted, observed = scores * area.mean(axis=0), effect.mean(axis=0)
    low, high = _bootstrap_interval(scores, area, effect, options.seed)
    names = [(request.names[i], request.names[j]) for i, j in zip(first, second, strict=True)]
    return AblationCheck(names, predicted, observed, _rank_correlation(predicted, observed), low, high)


def _choose_pairs(scores: Floats, n_pairs: int, seed: int) -> Ints:
    """Return the indices of the strongest pairs, and of as many random others."""
    if len(scores) < 3:
        raise GEHValueError(f"result: it has {len(scores)} pair(s); an order needs at least 3.")
    order = np.argsort(-scores, kind="stable")
    strongest, rest = order[: n_pairs // 2], order[n_pairs // 2 :]
    random = np.random.default_rng(seed).permutation(rest)[: n_pairs - len(strongest)]
    return np.sort(np.concatenate([strongest, random]))


@torch.no_grad()
def _joint_effects(cut: Cut, rows: Rows, baseline: Floats, first: Ints, second: Ints) -> tuple[Floats, Floats]:
    """Return how far units move to their baseline (n, D), and the joint effects (n, C) of moving pairs.

    A category at another level than its baseline moves by 1.
    """
    values = cut.units.values(cut.activations(rows))
    steps = torch.as_tensor(baseline).to(values) - values
    units, places = np.unique(np.stack([first, second]), return_inverse=True)
    i, j, single = (torch.as_tensor(ends, device=steps.device) for ends in (first, second, units))
    plain = cut.outputs(rows, cut.zeros(rows)).double()
    if isinstance(cut.units, Categorical):
        for unit, category in enumerate(cut.units.observed):
            steps[:, unit] = torch.as_tensor(category.find_levels(rows) != _usual_level(category)).to(steps)
        pairs = list(zip(first.tolist(), second.tolist(), strict=True))
        alone = _outputs_after_switches(cut, cut.units, rows, steps, [(unit,) for unit in units.tolist()])
        both = _outputs_after_switches(cut, cut.units, rows, steps, pairs)
    else:
        alone = outputs_after_moves(cut, rows, steps, single, single)
        both = outputs_after_moves(cut, rows, steps, i, j)
    place_i, place_j = torch.as_tensor(places.reshape(2, -1), device=steps.device)
    joint = both - alone[place_i] - alone[place_j] + plain
    return steps.double().cpu().numpy(), joint.T.cpu().numpy()


def _usual_level(category: ObservedCategory) -> int:
    """Return the index of the most frequent level."""
    return int(np.argmax(category.levels.shares))


def _outputs_after_switches(
    cut: Cut, units: Categorical, rows: Rows, steps: Tensor, moves: Sequence[tuple[int, ...]]
) -> Tensor:
    """Return the outputs (k, n) after k moves of some units each; categories move to their most frequent level."""
    outputs = []
    for move in moves:
        moved, t = rows, cut.zeros(rows)
        for unit in move:
            if unit < len(units.observed):
                category = units.observed[unit]
                usual = category.values[[_usual_level(category)]]
                moved = category.where.replace_in(moved, np.repeat(usual, len(rows), axis=0))
            else:
                t[:, unit] = steps[:, unit].to(t)
        outputs.append(cut.outputs(moved, t).double())
    return torch.stack(outputs)


def _bootstrap_interval(scores: Floats, area: Floats, effect: Floats, seed: int) -> tuple[float, float]:
    """Return the 95 % interval of the rank correlation over bootstrap samples of the points."""
    rng = np.random.default_rng(seed)
    correlations = []
    for _ in range(_RESAMPLES):
        sample = rng.integers(len(area), size=len(area))
        correlations.append(_rank_correlation(scores * area[sample].mean(axis=0), effect[sample].mean(axis=0)))
    low, high = np.quantile(correlations, [0.025, 0.975])
    return float(low), float(high)


def _rank_correlation(predicted: Floats, observed: Floats) -> float:
    """Return the rank correlation; NaN where one side is constant."""
    from scipy.stats import rankdata

    a, b = (rankdata(np.where(values < _ROUNDING * values.max(), 0.0, values)) for values in (predicted, observed))
    return float("nan") if np.ptp(a) == 0 or np.ptp(b) == 0 else float(np.corrcoef(a, b)[0, 1])


def baseline_values(baseline: Any, mean: Floats) -> Floats:
    """Return where each unit is moved to (D,): ``"mean"``, a number, or one number per unit."""
    if isinstance(baseline, str):
        if baseline != "mean":
            raise GEHValueError(f"baseline={baseline!r} is unknown; use 'mean', a number, or one for each unit.")
        return mean
    try:
        return np.broadcast_to(np.asarray(baseline, dtype=np.float64), mean.shape).copy()
    except (TypeError, ValueError) as error:
        raise GEHValueError(
            f"baseline={baseline!r} must be 'mean', a number, or one for each of the {len(mean)} units."
        ) from error
