"""Smoothing of kinked functions along the path of one row."""

from __future__ import annotations

import numbers
from dataclasses import dataclass

import torch
from torch import Tensor

from geh_explain.data.points import InMemoryPoints
from geh_explain.data.rows import Rows
from geh_explain.engines.smoothing.sharpness import Sharpened
from geh_explain.engines.smoothing.survey import smoothing_for, survey_kinks
from geh_explain.engines.smoothing.view import Smoothing
from geh_explain.engines.twice_differentiable import DoubleBackwardView
from geh_explain.local.baselines import ReferenceData
from geh_explain.local.unit_path import UnitPath
from geh_explain.model.cut import Cut
from geh_explain.model.view import View
from geh_explain.run.setup import ModelSetup

#: ``"auto"`` is sharpened until smoothing moves the difference of prediction and reference by less than this part ...
_MAX_CHANGE = 0.003
#: ... but by no larger factor than this.
_MAX_FACTOR = 64
#: Places on the path at which the range of the output is measured.
_PLACES = 17


@dataclass(frozen=True)
class LocalView:
    """The view under which the path is differentiated, and how it was chosen.

    ``factor`` is how many times sharper than the rule of ``smooth`` it is.
    """

    view: View
    factor: int = 1

    @property
    def smoothed(self) -> dict[str, object] | None:
        """What was smoothed, as values that JSON can hold; None where nothing was."""
        if not isinstance(self.view, Smoothing):
            return None
        pairs = zip(self.view.names, self.view.betas, strict=True)
        betas = [(name, beta) for name, beta in pairs if beta is not None]
        sizes = [float(beta.median()) if isinstance(beta, Tensor) else float(beta) for _, beta in betas]
        return {
            "functions": sorted({name for name, _ in betas}),
            "step": self.view.step,
            "beta": [min(sizes), max(sizes)],
            "sharpened": self.factor,
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


def choose_view(smoothing: Smoothing | None, setup: ModelSetup, path: UnitPath) -> LocalView:
    """Return the view for one path.

    ``smooth="auto"`` is sharpened by factors of 2 until F(1) - F(0) of the smoothed network is that of the network
    itself, up to 0.3 % of the range of F on the path.
    """
    if smoothing is None:
        return LocalView(DoubleBackwardView())
    if setup.smooth != "auto":
        return LocalView(smoothing)
    n_baselines = len(path.baselines)
    baseline = torch.arange(n_baselines).repeat_interleave(_PLACES)
    places = torch.linspace(0, 1, _PLACES, dtype=torch.double).repeat(n_baselines)[:, None]
    original = path.outputs(baseline, places).reshape(n_baselines, _PLACES).mean(dim=0)
    scale = float((original - original[0]).abs().max())
    ends = torch.arange(n_baselines).repeat(2)
    positions = torch.tensor([0.0, 1.0], dtype=torch.double).repeat_interleave(n_baselines)[:, None]
    factor = 1
    while True:
        view = smoothing.times(factor) if factor > 1 else smoothing
        with path.cut.viewed(view):
            smoothed = path.outputs(ends, positions, viewed=True).reshape(2, n_baselines).mean(dim=1)
        change = float((smoothed[1] - smoothed[0] - original[-1] + original[0]).abs())
        if change <= _MAX_CHANGE * scale or factor >= _MAX_FACTOR:
            return LocalView(view, factor)
        factor *= 2
