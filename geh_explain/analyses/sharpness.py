"""Whether the strongest pairs depend on how sharply kinked functions are smoothed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain._types import Floats
from geh_explain.engines.smoothing.sharpness import Sharpened, Smooth, Step
from geh_explain.errors import GEHValueError
from geh_explain.run.record import describe
from geh_explain.units.pair_set import PairSet

if TYPE_CHECKING:
    import pandas as pd


def other_sharpnesses(smooth: Smooth, recorded: Any, smoothed: dict[str, Any] | None) -> tuple[Smooth, Smooth]:
    """Return arguments ``smooth`` for twice and for half the sharpness of a run, or half and twice its step.

    Parameters
    ----------
    smooth
        The argument of the explainer.
    recorded
        The argument of that run, as its record describes it.
    smoothed
        What its record says about smoothing, None where nothing was smoothed.

    Raises
    ------
    GEHValueError
        If nothing was smoothed, or the run had another ``smooth``.

    Examples
    --------
    >>> other_sharpnesses("auto", "auto", {"step": 0.5})
    (Sharpened(smooth='auto', factor=2.0), Sharpened(smooth='auto', factor=0.5))
    """
    if smooth is None or smoothed is None:
        raise GEHValueError(
            "result: nothing was smoothed, because no kinked function acts above the layer, because of smooth=None, or "
            "because the engine takes differences; its scores do not depend on a sharpness."
        )
    if describe(smooth) != recorded:
        raise GEHValueError(
            f"result: it was smoothed by smooth={recorded!r}, and this explainer has smooth={smooth!r}; use the "
            "explainer that made it."
        )
    assert not isinstance(smooth, Sharpened)
    if isinstance(smooth, Step):
        return Step(smooth.size / 2), Step(2 * smooth.size)
    # Not steps for "auto": where its lower bound acts, it may be sharper than half a step.
    return Sharpened(smooth, 2.0), Sharpened(smooth, 0.5)


def sharpness_table(names: list[str], known: PairSet, scores: Sequence[Floats], pairs: int) -> pd.DataFrame:
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
    >>> scores = list(np.array([[3.0, 2, 1], [3, 1, 2], [4, 2, 1]]))
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
