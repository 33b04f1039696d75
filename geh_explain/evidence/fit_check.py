"""Whether the outputs predict the held-out labels at all: if not, rows, labels or scales may not belong together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats

#: Outputs that are no better than chance have an AUC below 0.5 plus this many standard errors,
_AUC_ERRORS = 2.0
#: or plus this, where classes have few rows.
_AUC_MARGIN = 0.05


def describe_misfit(labels: Floats, outputs: Floats, link: str, classes: bool) -> str | None:
    """Return a warning in words if the outputs (n,) do not predict the labels (n,), else None.

    Numbers are compared by R^2 = 1 - mean((y - g)^2) / var(y). Classes are compared by the AUC, which is the same for
    networks that are too confident; by R^2 only where the identity link is used for outputs that are no probabilities.

    >>> labels = np.arange(100.0)
    >>> describe_misfit(labels, labels + 20, "identity", classes=False) is None
    True
    >>> describe_misfit(labels, labels / 10, "identity", classes=False).partition(" on ")[0]
    'evidence: the outputs explain none of the variance of the labels (R^2 = -2.2'
    """
    if classes:
        auc, chance = _auc(labels > labels.min(), outputs)
        if auc <= chance:
            return (
                f"evidence: higher outputs do not go with label 1 (AUC = {auc:.2f} on {len(labels):,} held-out "
                "rows). Check that the labels are those of this target, in the order of the rows, and that a higher "
                "output means the second class in sorted order; if so, the network has learned nothing that holds for "
                "these rows."
            )
    if link == "logit" or (classes and labels.min() <= outputs.min() and outputs.max() <= labels.max()):
        return None
    r2 = _r2(labels, outputs)
    if r2 <= 0:
        return (
            f"evidence: the outputs explain none of the variance of the labels (R^2 = {r2:.2g} on {len(labels):,} "
            "held-out rows). Check that the labels are those of this target, on the scale of the output and in the "
            "order of the rows. For a network that predicts the log of a mean, as of counts, use output=torch.exp. "
            "If all is as it should be, the network has learned nothing that holds for these rows."
        )
    with np.errstate(over="ignore"):
        r2_exp = _r2(labels, np.exp(outputs))
    if labels.min() >= 0 and r2_exp > r2:
        return (
            f"evidence: exp(output) predicts the labels better than the output (R^2 = {r2_exp:.2g} instead of "
            f"{r2:.2g}). For a network that predicts the log of a mean, as of counts, use output=torch.exp; otherwise "
            "check that the labels are on the scale of the output."
        )
    return None


def _r2(labels: Floats, outputs: Floats) -> float:
    """Return the share of the labels' variance that the outputs explain."""
    with np.errstate(over="ignore"):
        return float(1 - np.mean((labels - outputs) ** 2) / labels.var())


def _auc(positive: NDArray[np.bool_], outputs: Floats) -> tuple[float, float]:
    """Return the AUC of the outputs, and the largest one that counts as chance.

    >>> _auc(np.array([True, False, True, False]), np.array([3.0, 1.0, 2.0, 2.0]))[0]
    0.875
    """
    from scipy.stats import rankdata

    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    pairs = n_positive * n_negative
    auc = (rankdata(outputs)[positive].sum() - n_positive * (n_positive + 1) / 2) / pairs
    error = np.sqrt((len(outputs) + 1) / (12 * pairs))
    return float(auc), 0.5 + min(_AUC_ERRORS * float(error), _AUC_MARGIN)
