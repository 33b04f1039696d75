"""Whether the strongest pairs depend on how sharply kinked functions are smoothed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.engines.smoothing.sharpness import Smooth, Step
from geh_explain.errors import GEHValueError
from geh_explain.units.pair_set import PairSet

if TYPE_CHECKING:
    import pandas as pd


def other_sharpnesses(smooth: Smooth, smoothed: dict[str, Any] | None) -> tuple[Smooth, Smooth]:
    """Return arguments ``smooth`` for twice and for half the sharpness of a run.

    Parameters
    ----------
    smooth
        The argument of that run.
    smoothed
        What its record says about smoothing, None where nothing was smoothed.

    Examples
    --------
    >>> other_sharpnesses("auto", {"step": 0.5}), other_sharpnesses(10.0, {"step": None})
    ((Step(size=0.25), Step(size=1.0)), (20.0, 5.0))
    """
    if smoothed is None:
        raise GEHValueError(
            "result: nothing was smoothed, because no kinked function acts above the layer; its scores do not depend "
            "on a sharpness."
        )
    step = smoothed["step"]
    if step is not None:
        return Step(step / 2), Step(2 * step)
    assert isinstance(smooth, (int, float))
    return 2.0 * smooth, smooth / 2.0


def sharpness_table(
    names: list[str], known: PairSet, scores: tuple[Floats, Floats, Floats], pairs: int
) -> pd.DataFrame:
    """Return the strongest pairs with their scores and ranks at three sharpnesses.

    Parameters
    ----------
    names
        Names of the units (D).
    known
        The P pairs.
    scores
        Scores (P,) of all pairs as they are, at twice and at half the sharpness.
    pairs
        How many of the strongest pairs.

    Returns
    -------
    DataFrame
        One row per pair, strongest first: ``unit_i``, ``unit_j``, ``score``, ``rank``, the same with ``_sharper`` and
        ``_softer``, and ``keeps_place``: whether the pair is among the strongest at all three.

    Examples
    --------
    >>> import numpy as np
    >>> scores = tuple(np.array([[3.0, 2, 1], [3, 1, 2], [4, 2, 1]]))
    >>> table = sharpness_table(["a", "b", "c"], PairSet.all(3), scores, pairs=2)
    >>> table["keeps_place"].tolist(), table["rank_sharper"].tolist()
    ([True, False], [1, 3])
    """
    import pandas as pd

    first, second = known.ends
    ranks = [np.argsort(np.argsort(-score, kind="stable"), kind="stable") + 1 for score in scores]
    strongest = np.argsort(ranks[0])[:pairs]
    columns: dict[str, Any] = {
        "unit_i": [names[i] for i in first[strongest]],
        "unit_j": [names[j] for j in second[strongest]],
    }
    for suffix, score, rank in zip(("", "_sharper", "_softer"), scores, ranks, strict=True):
        columns |= {f"score{suffix}": score[strongest], f"rank{suffix}": rank[strongest]}
    places = np.stack([rank[strongest] for rank in ranks])
    return pd.DataFrame(columns | {"keeps_place": (places <= len(strongest)).all(axis=0)})
