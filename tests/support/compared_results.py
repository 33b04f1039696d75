"""Results with known group means, and networks, that are compared."""

from typing import Any

import numpy as np
from synthetic_results import result_of
from torch import Tensor

import geh_explain as geh

#: Three units, whose pairs are (a, b), (a, c), (b, c).
NAMES = ["a", "b", "c"]


def known(signed: Any, labels: Any = (0, 0, 1), errors: Any = 0.01, **record: Any) -> geh.Interactions:
    """Return a result of one draw with the group means ``signed`` (M, P) at the same points."""
    signed = np.asarray(signed, dtype=float)
    record = {"inputs": "the same", **record}
    return result_of(signed[None], NAMES, labels, np.broadcast_to(np.asarray(errors), signed.shape).copy(), **record)


def cubic(x: Tensor) -> Tensor:
    """Return x0 x1^2 + x1 x2: local interactions 2 x1, 0 and 1."""
    return x[:, 0] * x[:, 1] ** 2 + x[:, 1] * x[:, 2]
