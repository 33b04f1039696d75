"""How smoothing changes the output of the model."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from geh_explain.data.targets import Target, select
from geh_explain.engines.smoothing.view import Smoothing

#: Largest mean change of the output, in units of its standard deviation, without a warning.
_MAX_CHANGE = 0.1
#: Smallest share of points with an unchanged arg max, without a warning.
_MIN_AGREEMENT = 0.95
#: Points whose outputs are held, at most.
_MAX_COMPARED = 2**20


class SmoothingChange:
    """Compares the smoothed outputs with the original ones.

    Both are added batch by batch: first all original outputs, in one pass over the data, then all smoothed ones, in
    another pass with the same batches in the same order. Of more than a million points every second, third, ... one is
    compared.

    Parameters
    ----------
    n_points
        Number of all points.
    """

    def __init__(self, n_points: int) -> None:
        self._stride = -(-n_points // _MAX_COMPARED)
        self._n_original, self._n_smoothed = 0, 0
        self._original: list[Tensor] = []
        self._smoothed: list[Tensor] = []
        self._original_argmax: list[Tensor] = []
        self._agreement: list[Tensor] = []

    def add_original(self, outputs: Tensor, selected: Tensor) -> None:
        """Add all outputs (n, ...) of the next rows before smoothing, and the explained one (n,) among them."""
        compared = slice(-self._n_original % self._stride, None, self._stride)
        self._n_original += len(outputs)
        self._original.append(selected[compared].double().cpu())
        if outputs[0].numel() > 1:
            self._original_argmax.append(outputs.flatten(1).argmax(1)[compared])

    def add_smoothed(self, outputs: Tensor, target: Target) -> None:
        """Add all outputs (n, ...) of the next rows after smoothing; ``target`` selects the explained ones."""
        compared = slice(-self._n_smoothed % self._stride, None, self._stride)
        self._n_smoothed += len(outputs)
        if outputs[0].numel() > 1:
            original = self._original_argmax[len(self._smoothed)]
            self._agreement.append((original == outputs.flatten(1).argmax(1)[compared]).double().cpu())
        self._smoothed.append(select(outputs, target)[compared].double().cpu())

    def summary(self, smoothing: Smoothing) -> dict[str, Any]:
        """Return the entry ``result.settings["smoothed"]``.

        Returns
        -------
        dict
            ``functions``: how many calls of each function were smoothed; ``step``: the step of the units that set the
            sharpness, None if it was given; ``sigma``: the standard deviation of the units for smoothing by a radius,
            the mean over rows that set it by themselves, else None; ``beta``: smallest and largest sharpness of a call
            (of a call with one for each entry, the median); ``mean_change``: mean absolute change of the explained
            output; ``output_std``: its standard deviation before smoothing; ``relative_change``: the ratio of both,
            None where that is 0; ``argmax_agreement``: share of points whose largest output is the same, None where
            there is one output.
        """
        original = torch.cat(self._original)
        change = float((torch.cat(self._smoothed) - original).abs().mean())
        spread = float(original.std(correction=0))
        pairs = zip(smoothing.names, smoothing.typical_betas(), strict=True)
        found = [(name, beta) for name, beta in pairs if beta is not None]
        names, betas = Counter(name for name, _ in found), [beta for _, beta in found] or [sys.float_info.max]
        return {
            "functions": dict(names),
            "step": smoothing.step,
            "sigma": smoothing.typical_sigma(),
            "beta": [min(betas), max(betas)],
            "mean_change": change,
            "output_std": spread,
            "relative_change": change / spread if spread > 0 else None,
            "argmax_agreement": float(torch.cat(self._agreement).mean()) if self._agreement else None,
        }


def smoothing_warning(change: dict[str, Any]) -> str | None:
    """Return a warning if the smoothed network differs much from the original one, else None.

    ``change`` is a :meth:`SmoothingChange.summary`.
    """
    relative, agreement = change["relative_change"], change["argmax_agreement"]
    if (relative or 0) <= _MAX_CHANGE and (agreement is None or agreement >= _MIN_AGREEMENT):
        return None
    words = [] if relative is None else [f"by {relative:.0%} of its spread"]
    words += [] if agreement is None else [f"the arg max agrees on {agreement:.0%} of the points"]
    sharper = f"a larger beta than {change['beta'][1]:.3g} as smooth="
    if change["step"] is not None:
        sharper = f"smooth=geh_explain.engines.Step({change['step'] / 2:.3g})"
    if change["sigma"] is not None:
        sharper = f"smooth=geh_explain.engines.Radius(sigma={change['sigma'] / 2:.3g})"
    return (
        f"smoothing the kinks ({', '.join(change['functions'])}) changed the output {'; '.join(words)}; pass "
        f"{sharper}, explain a later layer, or use engine='difference'."
    )
