"""Do strong pairs really act jointly? Interactions against what happens when units are switched off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tqdm.auto import tqdm

from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.engines.difference import moved
from geh_explain.errors import GEHValueError
from geh_explain.model.cut import Cut

if TYPE_CHECKING:
    import pandas as pd

    from geh_explain.results.interactions import Interactions
from geh_explain._types import Floats, Ints

#: How often points are drawn anew for the interval.
_RESAMPLED = 500
#: What is below this share of the largest is 0 but for rounding, and has no order.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class Check:
    """What was predicted for some pairs, what was seen, and how well both agree.

    ``predicted`` (C,) is the score times how far both units are moved; ``observed`` (C,) is the size of
    f(x) - f(x without i) - f(x without j) + f(x without both), both as means over the points. ``correlation`` is that
    of their ranks; ``low`` and ``high`` hold 95 % of what it is when points are drawn anew.
    """

    pairs: list[tuple[str, str]]
    predicted: Floats
    observed: Floats
    correlation: float
    low: float
    high: float

    def table(self) -> pd.DataFrame:
        """Return a line for each pair, the one with the strongest joint effect first."""
        import pandas as pd

        first, second = zip(*self.pairs, strict=True)
        columns = {"unit_i": first, "unit_j": second, "predicted": self.predicted, "observed": self.observed}
        return pd.DataFrame(columns).sort_values("observed", ascending=False, kind="stable", ignore_index=True)

    def __repr__(self) -> str:
        interval = f"{self.low:.2f} to {self.high:.2f}"
        return f"Check({len(self.pairs)} pairs: rank correlation {self.correlation:.2f}, {interval})"


def check_pairs(
    cut: Cut,
    points: Points,
    result: Interactions,
    measure: str,
    pairs: int,
    baseline: Floats,
    batch_size: int | None,
    seed: int,
    progress: bool,
) -> Check:
    """Switch units off, alone and two at a time, and compare with what the scores say.

    Half of the ``pairs`` are the strongest, the others are drawn from the rest.
    """
    score = result.scores(measure).pair_mean
    chosen = _chosen(score, pairs, seed)
    score = score[chosen]
    first, second = (ends[chosen] for ends in np.triu_indices(len(result.names), 1))
    areas, effects = [], []
    with tqdm(total=len(points), desc="checking", unit="row", disable=not progress, leave=False) as bar:
        for rows in points.pieces(batch_size):
            steps, joint = _switched_off(cut, rows, baseline, first, second)
            areas.append(np.abs(steps[:, first] * steps[:, second]))
            effects.append(np.abs(joint))
            bar.update(len(rows))
    area, effect = np.concatenate(areas), np.concatenate(effects)
    predicted, observed = score * area.mean(axis=0), effect.mean(axis=0)
    rng = np.random.default_rng(seed)
    again = []
    for _ in range(_RESAMPLED):
        some = rng.integers(len(area), size=len(area))
        again.append(_agreement(score * area[some].mean(axis=0), effect[some].mean(axis=0)))
    low, high = np.quantile(again, [0.025, 0.975])
    names = [(result.names[i], result.names[j]) for i, j in zip(first, second, strict=True)]
    return Check(names, predicted, observed, _agreement(predicted, observed), float(low), float(high))


def _chosen(score: Floats, count: int, seed: int) -> Ints:
    """Return the numbers of the strongest pairs, and of as many others."""
    if len(score) < 3:
        raise GEHValueError(f"result: it has {len(score)} pair(s); an order needs at least 3.")
    order = np.argsort(-score, kind="stable")
    strongest, others = order[: count // 2], order[count // 2 :]
    some = np.random.default_rng(seed).permutation(others)[: count - len(strongest)]
    return np.sort(np.concatenate([strongest, some]))


@torch.no_grad()
def _switched_off(cut: Cut, rows: Rows, baseline: Floats, first: Ints, second: Ints) -> tuple[Floats, Floats]:
    """Return how far units move to their baseline (n, D), and the joint effects of pairs that do (n, C)."""
    values = cut.units.values(cut.activations(rows))
    steps = torch.as_tensor(baseline).to(values) - values
    units, numbers = np.unique(np.stack([first, second]), return_inverse=True)
    i, j, each = (torch.as_tensor(ends, device=steps.device) for ends in (first, second, units))
    plain = cut.outputs(rows, cut.zeros(rows)).double()
    alone, both = moved(cut, rows, steps, each, each), moved(cut, rows, steps, i, j)
    broadcast, of_second = torch.as_tensor(numbers.reshape(2, -1), device=steps.device)
    return steps.double().cpu().numpy(), (both - alone[broadcast] - alone[of_second] + plain).T.cpu().numpy()


def _agreement(predicted: Floats, observed: Floats) -> float:
    """Return the rank correlation; NaN where one side is all the same."""
    from scipy.stats import rankdata

    a, b = (rankdata(np.where(values < _ROUNDING * values.max(), 0.0, values)) for values in (predicted, observed))
    return float("nan") if np.ptp(a) == 0 or np.ptp(b) == 0 else float(np.corrcoef(a, b)[0, 1])


def baseline_values(baseline: Any, mean: Floats) -> Floats:
    """Return where each unit is moved to (D,): ``"mean"``, a number, or one for each unit."""
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
