"""Evidence from held-out labels: what a test of every pair leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geh_explain._types import Floats


@dataclass(frozen=True)
class Evidence:
    """Outcome of the held-out test of P pairs, in row-major order i < j.

    The slope of a pair is the share of the network's interaction that the labels confirm: 1 if the labels contain the
    interaction at the network's size, 0 if they do not contain it.

    Attributes
    ----------
    slope, slope_se
        Slope (P,) and its standard error (P,). NaN where the network has no interaction to test, or for pairs that
        were not tested.
    p_value
        One-sided p-value (P,) of the hypothesis that there is no interaction. 1 where the network has none, NaN for
        pairs that were not tested.
    n_rows
        Number of held-out rows.
    link
        ``"identity"`` for labels that the output predicts, ``"logit"`` for classes whose log-odds it predicts.
    """

    slope: Floats
    slope_se: Floats
    p_value: Floats
    n_rows: int
    link: str = "identity"

    @property
    def tested(self) -> Floats:
        """Which pairs (P,) were tested."""
        return ~np.isnan(self.p_value)

    @property
    def shrinkage(self) -> Floats:
        """Factor (P,) in [0, 1] by which a score is multiplied to give the supported score: the slope, clipped.

        0 where the network has no interaction to test; NaN for pairs that were not tested.
        """
        confirmed = np.clip(np.nan_to_num(self.slope), 0.0, 1.0)
        return np.where(self.tested, confirmed, np.nan)
