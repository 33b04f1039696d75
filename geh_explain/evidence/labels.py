"""Held-out labels: which numbers they are, and on which scale the network predicts them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats
from geh_explain.data.targets import Target, select
from geh_explain.errors import GEHTypeError, GEHValueError, warn
from geh_explain.evidence.label_arrays import are_numbers_as_text, as_label_array, check_varies
from geh_explain.model.outputs import Output
from geh_explain.statistics.logistic import sigmoid

#: Values of ``link``.
LINKS = ("auto", "identity", "logit")
#: Pairs of numbers that are classes also as floats.
_CLASS_CODES = ((0.0, 1.0), (-1.0, 1.0))


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
    codes
        The user's numbers for the classes 0 and 1. A network that is fitted by least squares to labels -1 and 1, for
        instance, has outputs 2 p - 1.
    """

    values: Floats
    link: str
    target: Target
    against_rest: bool = False
    codes: tuple[float, float] = _CLASS_CODES[0]

    def read(self, outputs: Tensor) -> Tensor:
        """Return the number (n,) that predicts the label, out of all outputs (n, ...)."""
        chosen = select(outputs, self.target)
        if not self.against_rest:
            return chosen
        assert isinstance(self.target, int)
        others = outputs.clone()
        others[:, self.target] = -torch.inf
        return chosen - torch.logsumexp(others, dim=1)

    @property
    def classes(self) -> bool:
        """Whether the labels are classes, 0 and 1."""
        return bool(np.isin(self.values, (0, 1)).all())

    def decide(self, outputs: Floats) -> tuple[str, Floats]:
        """Return the link and the labels (n,) on its scale, those that are nearest to the outputs (n,).

        Distances are mean squared errors, in units of the distance of the two classes. Classes with the identity link
        are 0 and 1, or the user's numbers.
        """
        choices: list[tuple[float, str, Floats]] = []
        if self.link != "logit":
            for low, high in dict.fromkeys((_CLASS_CODES[0], self.codes)):
                labels = low + (high - low) * self.values
                choices.append((float(np.mean(((labels - outputs) / (high - low)) ** 2)), "identity", labels))
        if self.link != "identity":
            choices.append((float(np.mean((self.values - sigmoid(outputs)) ** 2)), "logit", self.values))
        _, link, labels = min(choices, key=lambda choice: choice[0])
        return link, labels


def read_labels(y: Any, n_rows: int, outputs: Tensor, target: Target, output: Output, link: str) -> Labels:
    """Return the labels of ``n_rows`` held-out rows.

    Parameters
    ----------
    y
        One label per row: numbers, or classes (whole numbers, or booleans and text for two; -1 and 1 of any dtype are
        two classes); or one column per output.
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
    values = as_label_array(y, n_rows)
    n_outputs = outputs.shape[1:].numel()
    if n_outputs == 1:
        # The only output may be explained by target=0.
        return _of_one_output(_column(values, target, 1), target, output, link)
    if values.ndim == 2:
        return _of_columns(values, n_outputs, target, output, link)
    return _of_classes(values, n_outputs, target, output, link)


def _column(values: np.ndarray[Any, Any], target: Target, n_outputs: int) -> np.ndarray[Any, Any]:
    """Return the column (n,) of labels (n, k) that belongs to the target."""
    if values.ndim == 1:
        return values
    if not isinstance(target, int) or values.shape[1] != n_outputs:
        raise GEHValueError(
            f"y has {values.shape[1]} columns, but the model has {n_outputs} output(s) and target={target!r}; give the "
            "labels of the explained output, one per row."
        )
    column = np.asarray(values[:, target])
    check_varies(column)
    return column


def _of_one_output(values: np.ndarray[Any, Any], target: Target, output: Output, link: str) -> Labels:
    """Return the labels of a model with one output: numbers, or 1 for the second of two classes in sorted order."""
    classes = np.unique(values)
    kind = values.dtype.kind
    if (kind == "f" and tuple(classes) not in _CLASS_CODES) or (kind in "iu" and len(classes) > 2):
        return _numbers(values, target, link)
    if len(classes) > 2:
        wanted = "give numbers, or two classes"
        if are_numbers_as_text(values):
            wanted = f"they are numbers as text, such as {str(values[0])!r}: convert them, np.asarray(y, float)"
        raise GEHValueError(f"y has {len(classes)} classes, but the model has one output; {wanted}.")
    labels = Labels((values == classes[1]).astype(float), link, target)
    if output == "probability":
        return replace(labels, link="identity" if link == "auto" else link)
    return replace(labels, codes=(float(classes[0]), float(classes[1]))) if kind in "iuf" else labels


def _numbers(values: np.ndarray[Any, Any], target: Target, link: str) -> Labels:
    """Return the labels of a regression."""
    if link == "logit":
        raise GEHValueError("link='logit' needs labels of classes, and y has numbers; use link='identity'.")
    return Labels(values.astype(float), "identity", target)


def _of_columns(values: np.ndarray[Any, Any], n_outputs: int, target: Target, output: Output, link: str) -> Labels:
    """Return the labels of a model with several outputs, from one column per output.

    Columns of 0 and 1, or of -1 and 1, are classes: of which each row has one, where all rows have a single 1, else any
    number, whose outputs are log-odds of their own.
    """
    column = _column(values, target, n_outputs)
    if values.dtype.kind not in "iubf":
        raise GEHTypeError(f"y has columns of dtype {values.dtype}; give numbers, or 0 and 1 for classes.")
    codes = next((codes for codes in _CLASS_CODES if np.isin(values, codes).all()), None)
    if codes is None:
        return _numbers(column, target, link)
    if ((values == 1).sum(axis=1) == 1).all():
        labels = _of_classes(values.argmax(axis=1), n_outputs, target, output, link)
        return labels if output == "probability" else replace(labels, codes=codes)
    return _of_one_output(column.astype(float), target, output, link)


def _of_classes(values: np.ndarray[Any, Any], n_outputs: int, target: Target, output: Output, link: str) -> Labels:
    """Return the labels of a model with several outputs, from one label per row: 1 for the target's class."""
    if values.dtype.kind == "f":
        whole = bool((values == np.round(values)).all()) and values.min() >= 0 and values.max() < n_outputs
        if (whole or tuple(np.unique(values)) in _CLASS_CODES) and link != "identity":
            raise GEHValueError(
                f"y has the whole numbers {values.min():g} to {values.max():g} as floats, and the model {n_outputs} "
                "outputs; give integers from 0 if they are classes, or link='identity' if they are numbers."
            )
        return _numbers(values, target, link)
    if values.dtype.kind not in "iu":
        raise GEHTypeError(
            f"y has the dtype {values.dtype}, but the model has {n_outputs} outputs; give the index of the class of "
            "each row, a whole number, or one column of 0 and 1 per output."
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
    if labels.max() == 1 and n_outputs > 2:
        warn(
            f"evidence: y has only 0 and 1, and the model {n_outputs} outputs; they are read as indices of classes. "
            "If they say whether one output is on, give one column per output."
        )
    if link == "auto":
        link = "logit" if output == "raw" else "identity"
    return Labels(hits.astype(float), link, target, against_rest=link == "logit")
