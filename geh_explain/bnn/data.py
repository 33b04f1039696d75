"""Inputs and targets as tensors for training, with checks that name the argument to correct."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain.data.conversion import check_unmasked
from geh_explain.data.reader import Reader
from geh_explain.errors import GEHTypeError, GEHValueError

TASKS = ("regression", "classification")

#: Names and classes listed in an error message.
_MAX_LISTED_COLUMNS = 5
_MAX_LISTED_CLASSES = 6


@dataclass(frozen=True)
class Table:
    """Inputs and targets of one data set.

    Attributes
    ----------
    x : Tensor
        Inputs, shape (n, ...).
    y : Tensor
        Targets as the loss takes them: numbers (n, k) for regression, integer classes (n,) for classification.
    task : str
        ``"regression"`` or ``"classification"``.
    columns : list of str or None
        Names of the columns of ``x``, where a DataFrame was given.
    """

    x: Tensor
    y: Tensor
    task: str
    columns: list[str] | None

    def __len__(self) -> int:
        return self.x.shape[0]

    def rows(self, indices: Tensor) -> Table:
        """Return the table of the rows with these indices, in this order."""
        return Table(self.x[indices], self.y[indices], self.task, self.columns)

    def column_name(self, column: int) -> str:
        """Return the quoted name of a column, or its number for a table without names."""
        return repr(self.columns[column]) if self.columns else str(column)


@dataclass(frozen=True)
class TableReader:
    """Turns a user's X and y into a :class:`Table` for one network.

    Attributes
    ----------
    task : str
        ``"regression"``, ``"classification"``, or ``"auto"`` to decide by the type of the targets.
    n_outputs : int
        Outputs of the network per row.
    heteroscedastic : bool
        Half of the outputs are log variances, so there are ``n_outputs / 2`` targets.
    like : Tensor
        A parameter of the network; tables get its device and dtype.
    """

    task: str
    n_outputs: int
    heteroscedastic: bool
    like: Tensor

    def read(self, X: Any, y: Any) -> Table:
        """Return inputs and targets as tensors.

        Parameters
        ----------
        X
            Inputs of one tensor per row, in any form that the explainer takes.
        y
            Tensor, array, list or Series with one target (or one row of targets) per row of ``X``.

        Raises
        ------
        GEHTypeError
            If ``X`` has several tensors per row, or ``y`` holds something else than numbers.
        GEHValueError
            If the task is unknown, rows do not match, targets do not fit the outputs, are not finite or are constant.
        """
        if self.task not in ("auto", *TASKS):
            raise GEHValueError(f"task={self.task!r} is unknown; use 'regression', 'classification' or 'auto'.")
        # floating_only=False: training needs no derivatives of the inputs, and integer columns are converted below.
        reader = Reader(floating_only=False, device=self.like.device, dtype=self.like.dtype, argument="X")
        points = reader.read(X)
        if len(points.first.inputs) != 1:
            raise GEHTypeError(
                f"X has {len(points.first.inputs)} tensors per row; fit takes networks of one input tensor. Train "
                "others with your own loop."
            )
        x = torch.cat([rows.inputs[0] for rows in points.batches()]).to(self.like.dtype)
        targets = _as_numbers(y)
        if targets.ndim == 0 or len(targets) != len(x):
            raise GEHValueError(f"y has shape {tuple(targets.shape)} for {len(x)} rows of X; give one target per row.")
        task = _guess_task(targets, self.n_outputs) if self.task == "auto" else self.task
        if task == "classification":
            return Table(x, _as_classes(targets, self.n_outputs).to(self.like.device), task, points.columns)
        return Table(x, self._as_regression_targets(targets), task, points.columns)

    def _as_regression_targets(self, y: Tensor) -> Tensor:
        """Return the targets as (n, k) numbers of the network's precision, checked against its outputs."""
        if self.heteroscedastic and self.n_outputs % 2:
            raise GEHValueError(
                f"heteroscedastic=True needs two outputs per target, mean and log variance, and the network has "
                f"{self.n_outputs}; build it with outputs=2."
            )
        outputs_per_target = 2 if self.heteroscedastic else 1
        n_targets = self.n_outputs // outputs_per_target
        y = y.reshape(len(y), -1).to(self.like)
        if y.shape[1] != n_targets:
            raise GEHValueError(
                f"y has {y.shape[1]} number(s) per row and the network {n_targets} output(s) for them; build it with "
                f"outputs={y.shape[1] * outputs_per_target}."
            )
        if not bool(torch.isfinite(y).all()):
            row = int((~torch.isfinite(y)).any(1).nonzero()[0])
            raise GEHValueError(f"y is NaN or infinite in row {row}; remove such rows.")
        if bool((y == y[0]).all(dim=0).any()):
            raise GEHValueError("y is the same in all rows; there is nothing to learn. Give targets that differ.")
        return y


def check_columns(table: Table) -> None:
    """Raise GEHValueError for constant columns, which have no range to scale by and cannot interact."""
    constant = (table.x == table.x[:1]).all(dim=0).nonzero().flatten().tolist()
    if constant:
        names = ", ".join(table.column_name(column) for column in constant[:_MAX_LISTED_COLUMNS])
        more = " and others" if len(constant) > _MAX_LISTED_COLUMNS else ""
        raise GEHValueError(
            f"X: column {names}{more} is the same in all {len(table)} training rows; remove it, as it cannot interact."
        )


def _as_numbers(targets: Any) -> Tensor:
    """Return targets of any kind as a CPU tensor of numbers."""
    values = targets.to_numpy() if hasattr(targets, "to_numpy") else targets
    if isinstance(values, Tensor):
        return values.detach().cpu()
    check_unmasked(values, "y")
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise GEHTypeError(
            f"y has dtype {array.dtype}; give numbers. Classes are counted from 0 "
            "(sklearn.preprocessing.LabelEncoder().fit_transform(y))."
        )
    # torch.tensor copies: pandas may return read-only arrays, which torch.from_numpy warns about.
    return torch.tensor(array)


def _guess_task(y: Tensor, n_outputs: int) -> str:
    """Return the task: integers are classes if there is an output for each, or one output and two values."""
    if y.is_floating_point():
        return "regression"
    return "classification" if n_outputs > 1 or len(torch.unique(y)) <= 2 else "regression"


def _as_classes(y: Tensor, n_outputs: int) -> Tensor:
    """Return classes (n,) as integers from 0, checked against the network's outputs."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise GEHValueError(f"y has shape {tuple(y.shape)}; for classification give one class per row.")
    classes = torch.unique(y)
    n_classes = max(n_outputs, 2)  # one output is the logit of the second of two classes
    if len(classes) < 2:
        raise GEHValueError(
            f"y has one class only ({classes[0].item()}); there is nothing to learn. Give rows of several classes."
        )
    if not bool(((classes == classes.long()) & (classes >= 0) & (classes < n_classes)).all()):
        raise GEHValueError(
            f"y has the classes {classes[:_MAX_LISTED_CLASSES].tolist()}, and a network with {n_outputs} output(s) "
            f"takes 0 to {n_classes - 1}; count classes from 0, and build it with one output per class (one for two "
            "classes)."
        )
    return y.long()
