"""Smoothing of kinked functions along the path of one row."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geh_explain.data.points import InMemoryPoints
from geh_explain.data.rows import Rows
from geh_explain.engines.smoothing.sharpness import Sharpened, is_by_row
from geh_explain.engines.smoothing.survey import smoothing_for, survey_kinks
from geh_explain.engines.smoothing.view import Smoothing
from geh_explain.engines.twice_differentiable import DoubleBackwardView
from geh_explain.errors import GEHValueError
from geh_explain.local.baselines import ReferenceData
from geh_explain.local.unit_path import UnitPath
from geh_explain.model.cut import Cut
from geh_explain.model.view import View
from geh_explain.run.setup import ModelSetup


@dataclass(frozen=True)
class LocalView:
    """The view under which the path is differentiated, and how it changes the output.

    ``change`` is how far smoothing moves F(1) - F(0), of the mean over baselines.
    """

    view: View
    change: float = 0.0

    @property
    def smooths(self) -> bool:
        """Whether kinked functions are smoothed."""
        return isinstance(self.view, Smoothing)

    def describe(self, scale: float) -> dict[str, Any] | None:
        """Return what was smoothed, as values that JSON can hold; None where nothing was.

        ``scale`` is that of which the change is a part.
        """
        if not isinstance(self.view, Smoothing):
            return None
        pairs = zip(self.view.names, self.view.betas, strict=True)
        betas = [(name, beta) for name, beta in pairs if beta is not None]
        sizes = [float(beta.median()) if isinstance(beta, Tensor) else float(beta) for _, beta in betas]
        return {
            "functions": sorted({name for name, _ in betas}),
            "step": self.view.step,
            "beta": [min(sizes), max(sizes)],
            "change": self.change / scale if scale > 0 else 0.0,
        }


def smoothing_from_data(setup: ModelSetup, cut: Cut, row: Rows, data: ReferenceData) -> Smoothing | None:
    """Return the view that smooths kinked functions, with the sharpness of the reference data; None without kinks.

    The sharpness never depends on the row or on other rows that are explained with it. A number as ``smooth`` needs no
    data.

    Raises
    ------
    GEHValueError
        If the model has kinks, ``smooth`` takes its sharpness from data, and there are none.
    """
    smooth = setup.smooth
    survey = None if smooth is None else survey_kinks(cut, row)
    if smooth is None or survey is None or not any(call.depends_on_units for call in survey.calls):
        return None
    if is_by_row(smooth):
        raise GEHValueError(
            f"smooth={smooth!r} smooths the network around one row, and an account of one prediction follows the path "
            "from a baseline; use smooth='auto', geh_explain.engines.Step(size), or a number."
        )
    base = smooth.smooth if isinstance(smooth, Sharpened) else smooth
    points = data.with_arguments_of(row)
    if points is None and isinstance(base, numbers.Real):
        points = InMemoryPoints(row)
    elif points is None:
        names = ", ".join(sorted({call.name for call in survey.calls}))
        reason = (
            f"smooth={smooth!r}: the kinks of the model ({names}) are smoothed as far as its inputs move within data"
        )
        points = data.required(row, reason)
    return smoothing_for(cut, points, smooth, None)


def views_of_rows(smoothing: Smoothing | None, path: UnitPath) -> list[LocalView]:
    """Return the view for each row, with the change of F(1) - F(0) by smoothing."""
    if smoothing is None:
        return [LocalView(DoubleBackwardView())] * path.n_rows
    with path.cut.viewed(smoothing):
        changes = _differences(path, viewed=True) - _differences(path, viewed=False)
    return [LocalView(smoothing, abs(float(change))) for change in changes]


def _differences(path: UnitPath, viewed: bool) -> Tensor:
    """Return F(1) - F(0) of each row (N,), the means over baselines."""
    each = torch.arange(len(path.baselines))
    reference, prediction = (path.outputs(each, torch.full((len(each), 1), u), viewed=viewed) for u in (0.0, 1.0))
    return (prediction - reference).reshape(path.n_rows, -1).mean(dim=1)
