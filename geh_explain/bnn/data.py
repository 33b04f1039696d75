"""What a table may hold before a network is fitted to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain.data.reader import Reader
from geh_explain.errors import GEHError, GEHTypeError, GEHValueError

TASKS = ("regression", "classification")


@dataclass(frozen=True)
class Table:
    """Inputs, and targets as a loss takes them: (n, k) numbers, or (n,) classes."""

    x: Tensor
    y: Tensor
    task: str
    columns: list[str] | None

    def __len__(self) -> int:
        return self.x.shape[0]

    def rows(self, chosen: Tensor) -> Table:
        """Return some of the rows."""
        return Table(self.x[chosen], self.y[chosen], self.task, self.columns)

    def name(self, column: int) -> str:
        """Return what a column is called."""
        return repr(self.columns[column]) if self.columns else str(column)


def read(inputs: Any, targets: Any, task: str, outputs: int, heteroscedastic: bool, like: Tensor) -> Table:
    """Read inputs and targets of a network with ``outputs`` outputs, on the device and of the precision of ``like``."""
    if task not in ("auto", *TASKS):
        raise GEHValueError(f"task={task!r} is unknown; use 'regression', 'classification' or 'auto'.")
    try:
        points = Reader(floating_only=False, device=like.device, dtype=like.dtype).read(inputs)
    except GEHError as error:
        raise type(error)(str(error).replace("inputs", "X")) from error
    rows = list(points.batches())
    if len(points.first.inputs) != 1:
        raise GEHTypeError("X: fit takes networks of one input tensor; train others by a loop of your own.")
    x = torch.cat([piece.inputs[0] for piece in rows]).to(like.dtype)
    y = _numbers(targets)
    if y.ndim == 0 or len(y) != len(x):
        raise GEHValueError(f"y has shape {tuple(y.shape)} for {len(x)} rows of X; give one target per row.")
    task = _task(y, outputs) if task == "auto" else task
    if task == "classification":
        return Table(x, _classes(y, outputs).to(like.device), task, points.columns)
    wanted = outputs // 2 if heteroscedastic else outputs
    if heteroscedastic and outputs % 2:
        raise GEHValueError(
            f"heteroscedastic=True needs two outputs per target, mean and log variance, and the network has {outputs}; "
            "build it with outputs=2."
        )
    y = y.reshape(len(y), -1).to(like)
    if y.shape[1] != wanted:
        raise GEHValueError(
            f"y has {y.shape[1]} number(s) per row and the network {wanted} output(s) for them; build it with "
            f"outputs={y.shape[1] * (2 if heteroscedastic else 1)}."
        )
    if not bool(torch.isfinite(y).all()):
        raise GEHValueError(
            f"y is NaN or infinite in row {int((~torch.isfinite(y)).any(1).nonzero()[0])}; leave it out."
        )
    if bool((y == y[0]).all(dim=0).any()):
        raise GEHValueError("y is the same in all rows; there is nothing to learn.")
    return Table(x, y, task, points.columns)


def check_columns(table: Table) -> None:
    """Refuse columns that are the same in all rows: they have no scale, and nothing to tell."""
    constant = (table.x == table.x[:1]).all(dim=0).nonzero().flatten().tolist()
    if constant:
        names = ", ".join(table.name(column) for column in constant[:5])
        raise GEHValueError(
            f"X: column {names}{' and others' if len(constant) > 5 else ''} is the same in all {len(table)} rows "
            "that are trained on; leave it out, as it cannot interact."
        )


def _numbers(targets: Any) -> Tensor:
    values = targets.to_numpy() if hasattr(targets, "to_numpy") else targets
    if isinstance(values, Tensor):
        return values.detach().cpu()
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise GEHTypeError(
            f"y has dtype {array.dtype}; give numbers. Classes are counted from 0 "
            "(sklearn.preprocessing.LabelEncoder().fit_transform(y))."
        )
    return torch.tensor(array)  # a copy: pandas hands out arrays that must not be written to


def _task(y: Tensor, outputs: int) -> str:
    if y.is_floating_point():
        return "regression"
    return "classification" if outputs > 1 or len(torch.unique(y)) <= 2 else "regression"


def _classes(y: Tensor, outputs: int) -> Tensor:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise GEHValueError(f"y has shape {tuple(y.shape)}; for classification give one class per row.")
    found, most = torch.unique(y), max(outputs, 2)
    if len(found) < 2:
        raise GEHValueError(f"y has one class only ({found[0].item()}); there is nothing to tell apart.")
    if not bool(((found == found.long()) & (found >= 0) & (found < most)).all()):
        raise GEHValueError(
            f"y has the classes {found[:6].tolist()}, and a network with {outputs} output(s) takes 0 to {most - 1}; "
            "count classes from 0, and build it with one output per class (one for two classes)."
        )
    return y.long()
