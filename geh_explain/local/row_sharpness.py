"""Smoothing of a batch of rows, each as sharply as the row by itself sets it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Bools, Floats
from geh_explain.data.rows import Rows
from geh_explain.engines.smoothing.movement import entering_values, rows_come_first
from geh_explain.engines.smoothing.sharpness import Sharpened, Step, min_beta
from geh_explain.engines.smoothing.smooth_functions import FORMS
from geh_explain.engines.smoothing.survey import KinkedCall, detecting_shift, kink_acts
from geh_explain.engines.smoothing.view import Beta, KinkedCallView, Smoothing
from geh_explain.model.cut import Cut

#: Functions whose smooth forms take one sharpness (n, 1, ...) for each row. Maxima over dimensions do not.
_BY_ROW = FORMS.keys() - {"amax", "amin", "max", "min", *(name for name in FORMS if name.startswith("adaptive"))}


class RowSmoothing(Smoothing):
    """Replaces kinked calls by their smooth forms, with one sharpness (n,) for each row of a batch of n rows."""

    def _beta(self, number: int, x: Tensor) -> Beta:
        beta = self.betas[number - 1] if number <= len(self.betas) else None
        return beta.to(x).reshape(-1, *[1] * (x.ndim - 1)) if isinstance(beta, Tensor) else beta


class _RowSurvey(KinkedCallView):
    """Records what enters each kinked call of one forward pass, and in which rows its kink acts.

    Attributes
    ----------
    names
        Names of the functions.
    entering
        What enters each call, (n, ...).
    acts
        In which rows (n,) the kink of a call acts.
    by_row
        Whether all calls have smooth forms with one sharpness for each row.
    """

    def __init__(self, n_rows: int) -> None:
        super().__init__()
        self._n_rows = n_rows
        self.names: list[str] = []
        self.entering: list[Tensor] = []
        self.acts: list[Bools] = []
        self.by_row = True

    def handle_kinked(self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of one kinked call, unchanged."""
        x = args[0] if args else kwargs["input"]
        entering = entering_values(name, args, kwargs)
        # What enters has another shape than the argument inside the model's own vmap, and where arguments broadcast.
        self.by_row &= name in _BY_ROW and x.shape == entering.shape and x.ndim > 1 and len(x) == self._n_rows
        out = func(*args, **kwargs)
        if self.by_row:
            acts = kink_acts(name, args, kwargs, out, entering)
            acting = acts.flatten(1).any(dim=1) if acts.ndim else acts.expand(self._n_rows)
            self.names.append(name)
            self.entering.append(entering)
            self.acts.append(acting.cpu().numpy())
        return out


def row_smoothings(cut: Cut, rows: Rows, smooth: Any) -> list[tuple[list[int], RowSmoothing]] | None:
    """Return views that smooth each row as the row by itself would be smoothed, and the rows for which they are.

    The sharpness of a call is ``smooth`` where this is a number, else that of
    :func:`~geh_explain.engines.smoothing.sharpness.min_beta` for the values that enter the call in the row. Rows in
    which the same calls are smoothed share a view. None where rows cannot be smoothed together.

    Parameters
    ----------
    cut
        The model as a function of the units' shifts.
    rows
        Two rows or more.
    smooth
        ``"auto"``, a sharpness, or a multiple of these; steps need reference rows.
    """
    factor = 1.0
    if isinstance(smooth, Sharpened):
        smooth, factor = smooth.smooth, smooth.factor
    still, moved = (_surveyed(cut, rows, t) for t in (cut.zeros(rows), detecting_shift(cut, rows)))
    comparable = still.names == moved.names and still.by_row and moved.by_row
    if isinstance(smooth, Step) or not comparable or not all(rows_come_first(cut, rows)):
        return None
    betas = np.zeros((len(rows), len(still.names)))
    for call, (x, shifted) in enumerate(zip(still.entering, moved.entering, strict=True)):
        depends = (x != shifted).flatten(1).any(dim=1).cpu().numpy()
        own = _stds(x)
        sharpness = smooth if not isinstance(smooth, str) else np.array([min_beta(smooth, std) for std in own])
        betas[:, call] = np.where(depends & (still.acts[call] | moved.acts[call]), sharpness, 0.0) * factor
    patterns, group = np.unique(betas > 0, axis=0, return_inverse=True)
    members = [np.flatnonzero(group.ravel() == number) for number in range(len(patterns))]
    return [(chosen.tolist(), _view(still.names, betas[chosen])) for chosen in members]


def _surveyed(cut: Cut, rows: Rows, t: Tensor) -> _RowSurvey:
    """Return the survey of one forward pass with the units shifted by ``t`` (n, D)."""
    survey = _RowSurvey(len(rows))
    with cut.viewed(survey):
        cut.outputs(rows, t)
    return survey


def _stds(x: Tensor) -> Floats:
    """Return the standard deviation (n,) of the values in each row (n, ...), without outliers."""
    found = []
    for row in x.flatten(1).cpu():
        call = KinkedCall("")
        call.add(row)
        found.append(call.limited_std)
    return np.array(found)


def _view(names: Sequence[str], betas: Floats) -> RowSmoothing:
    """Return the view for rows in which the same calls are smoothed; ``betas`` (n, calls) are 0 at the others."""
    return RowSmoothing(names, [torch.as_tensor(beta) if beta.all() else None for beta in betas.T])
