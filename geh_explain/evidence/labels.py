"""Held-out labels: which numbers they are, and on which scale the network predicts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats
from geh_explain.data.targets import Target, select
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.model.outputs import Output
from geh_explain.statistics.logistic import sigmoid

#: Values of ``link``.
LINKS = ("auto", "identity", "logit")


@dataclass(frozen=True)
class Labels:
    """Labels (n,) as numbers, and how the model's outputs predict them.

    Attributes
    ----------
    values
        Numbers of a regression, or 0 and 1 of a class against all others.
    link
        ``"identity"``: the output is the mean of the labels. ``"logit"``: it is the log-odds of label 1. ``"auto"``:
        one of them, to be decided by the outputs, see :meth:`decide`.
    target
        The output that predicts them, as in Captum.
    against_rest
        Whether the log-odds are those of one class among several logits: z_t - log sum_{k != t} exp z_k.
    """

    values: Floats
    link: str
    target: Target
    against_rest: bool = False

    def read(self, outputs: Tensor) -> Tensor:
        """Return the number (n,) that predicts the label, out of all outputs (n, ...)."""
        chosen = select(outputs, self.target)
        if not self.against_rest:
            return chosen
        assert isinstance(self.target, int)
        others = outputs.clone()
        others[:, self.target] = -torch.inf
        return chosen - torch.logsumexp(others, dim=1)

    def decide(self, outputs: Floats) -> str:
        """Return the link; for ``"auto"`` the one under which the outputs (n,) are nearer to the labels."""
        if self.link != "auto":
            return self.link
        errors = {
            "identity": np.mean((self.values - outputs) ** 2),
            "logit": np.mean((self.values - sigmoid(outputs)) ** 2),
        }
        return min(errors, key=lambda link: errors[link])


def read_labels(y: Any, n_rows: int, outputs: Tensor, target: Target, output: Output, link: str) -> Labels:
    """Return the labels of ``n_rows`` held-out rows.

    Parameters
    ----------
    y
        One label per row: numbers, or classes (whole numbers, booleans or text); or one column per output.
    n_rows
        Number of held-out rows.
    outputs
        All outputs (m, ...) of a few rows, from which the number of outputs is read.
    target
        The output that is explained.
    output
        The explainer's ``output``.
    link
        ``"auto"``, ``"identity"`` or ``"logit"``.

    Raises
    ------
    GEHValueError, GEHTypeError
        If the labels do not fit the rows or the target, or leave nothing to test.
    """
    if link not in LINKS:
        raise GEHValueError(f"link={link!r} is unknown; use 'auto', 'identity' or 'logit'.")
    if target is not None and not isinstance(target, (int, np.integer, tuple)):
        raise GEHTypeError(
            "evidence needs one target for all rows, and this one has a target per row; explain one class at a time, "
            "target=3 for instance, and give the labels of all rows."
        )
    target = int(target) if isinstance(target, np.integer) else target
    values = _as_array(y, n_rows)
    n_outputs = outputs.shape[1:].numel()
    if values.ndim == 2:
        values = _column(values, target, n_outputs)
    _check_complete(values)
    if np.unique(values).size < 2:
        raise GEHValueError(
            f"y has the same value, {values[0]}, in all {n_rows} held-out rows; a test needs labels that vary."
        )
    # The first column, where the user explains the only output by target=0.
    single = n_outputs == 1
    if _is_regression(values, single):
        if link == "logit":
            raise GEHValueError("link='logit' needs labels of classes, and y has numbers; use link='identity'.")
        return Labels(values.astype(float), "identity", target)
    if single:
        return _two_classes(values, target, output, link)
    return _class_against_rest(values, n_outputs, target, output, link)


def _as_array(y: Any, n_rows: int) -> np.ndarray[Any, Any]:
    """Return labels as an array (n,) or (n, k)."""
    values = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim not in (1, 2) or len(values) != n_rows:
        raise GEHValueError(
            f"y has shape {values.shape} for {n_rows} held-out rows; give one label per row, in the order of the rows."
        )
    return values


def _column(values: np.ndarray[Any, Any], target: Target, n_outputs: int) -> np.ndarray[Any, Any]:
    """Return the column (n,) of labels (n, k) that belongs to the target."""
    if not isinstance(target, int) or values.shape[1] != n_outputs:
        raise GEHValueError(
            f"y has {values.shape[1]} columns, but the model has {n_outputs} output(s) and target={target!r}; give the "
            "labels of the explained output, one per row."
        )
    return np.asarray(values[:, target])


def _check_complete(values: np.ndarray[Any, Any]) -> None:
    """Raise if labels are missing."""
    if values.dtype.kind == "f":
        missing = ~np.isfinite(values)
    elif values.dtype.kind == "O":
        missing = np.array([value is None or value != value for value in values])
    else:
        return
    if missing.any():
        row = int(missing.nonzero()[0][0])
        raise GEHValueError(f"y is missing or infinite in {missing.sum()} rows, first in row {row}; leave them out.")


def _is_regression(values: np.ndarray[Any, Any], single: bool) -> bool:
    """Return whether labels are numbers, not classes."""
    kind = values.dtype.kind
    if kind == "f":
        return not (single and set(np.unique(values)) == {0.0, 1.0})
    return kind in "iu" and single and np.unique(values).size > 2


def _two_classes(values: np.ndarray[Any, Any], target: Target, output: Output, link: str) -> Labels:
    """Return the labels of a model with one output: 1 for the second of two classes in sorted order."""
    classes = np.unique(values)
    if len(classes) > 2:
        raise GEHValueError(
            f"y has {len(classes)} classes, but the model has one output; give numbers, or two classes."
        )
    if link == "auto" and output == "probability":
        link = "identity"
    return Labels((values == classes[1]).astype(float), link, target)


def _class_against_rest(
    values: np.ndarray[Any, Any], n_outputs: int, target: Target, output: Output, link: str
) -> Labels:
    """Return the labels of a model with one output per class: 1 for the target's class."""
    if values.dtype.kind not in "iub":
        raise GEHTypeError(
            f"y has the dtype {values.dtype}, but the model has {n_outputs} outputs; give the index of the class of "
            "each row, a whole number."
        )
    labels = values.astype(int)
    if not isinstance(target, int) or labels.min() < 0 or labels.max() >= n_outputs:
        raise GEHValueError(
            f"y has classes {labels.min()} to {labels.max()}, but the model has {n_outputs} outputs and "
            f"target={target!r}; give class indices of this model, and explain one of its outputs."
        )
    hits = labels == target % n_outputs
    if not hits.any() or hits.all():
        raise GEHValueError(
            f"y is of class {target} in {'all' if hits.all() else 'no'} held-out rows; a test needs rows of this class "
            "and of others."
        )
    if link == "auto":
        link = "logit" if output == "raw" else "identity"
    return Labels(hits.astype(float), link, target, against_rest=link == "logit")
