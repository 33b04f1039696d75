"""Smooth kinks while explaining: a ReLU network has no curvature but on its kinks.

Kinked functions above the cut act as the smooth ones of :mod:`geh_explain.engines.kinks`, as modules and
as functional calls alike. The network itself is not touched.
"""

from __future__ import annotations

import math
import numbers
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geh_explain.data.points import Points
from geh_explain.data.rows import Rows
from geh_explain.data.targets import Target, select
from geh_explain.engines.smoothing.kernels import Kernels
from geh_explain.engines.smoothing.kinks import FORMS
from geh_explain.errors import GEHValueError
from geh_explain.model.cut import Cut

#: Sharpness in standard deviations of what enters the kink. On ReLU networks with a known interaction
#: this finds it to a few per cent, and moves the output by about 1 % of its spread.
_AUTO_SHARPNESS = 10.0
#: Past these, smoothing has changed the function that is explained.
_MOST_CHANGE, _LEAST_AGREEMENT = 0.1, 0.95


def check_smooth(smooth: Any) -> None:
    """Refuse what is not "auto", None or a positive number."""
    number = isinstance(smooth, numbers.Real) and not isinstance(smooth, bool)
    word = smooth is None or (isinstance(smooth, str) and smooth == "auto")
    if not word and not (number and 0 < smooth < sys.float_info.max):
        raise GEHValueError(
            f"smooth={smooth!r} is unknown; use 'auto', None (never), or a positive number, the beta of the softplus "
            "that stands for ReLU."
        )


class _Kinked(Kernels):
    """Numbers the kinked calls of each forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.call = 0

    def begin(self) -> None:
        super().begin()
        self.call = 0

    def handle(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "").strip("_")
        x = args[0] if args else kwargs.get("input")
        if name not in FORMS or not isinstance(x, Tensor) or not x.is_floating_point():
            return super().handle(func, args, kwargs)
        self.call += 1
        return self.kinked(name, func, args, kwargs)

    def kinked(self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Answer one kinked call."""
        raise NotImplementedError


@dataclass
class _Site:
    """One kinked call: what was seen to enter it, and whether its kink was ever felt."""

    name: str
    felt: bool = False
    moved: bool = False
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def see(self, x: Tensor) -> None:
        x = x.double()
        x = x[torch.isfinite(x)]
        if not x.numel():
            return
        count, mean = x.numel(), float(x.mean())
        total, delta = self.count + count, mean - self.mean
        self.squares += float((x - mean).square().sum()) + delta**2 * self.count * count / total
        self.mean += delta * count / total
        self.count = total

    def forget(self) -> None:
        """Start counting anew."""
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def beta(self, smooth: str | float) -> float | None:
        """Return the sharpness of this call, None to leave it as it is."""
        std = math.sqrt(self.squares / max(self.count, 1))
        if not self.felt or not self.moved or (std == 0 and isinstance(smooth, str)):
            return None
        return _AUTO_SHARPNESS / std if isinstance(smooth, str) else float(smooth)


def _plain(x: Tensor) -> Tensor:
    """Return the values of a tensor, also of one inside the model's own vmap or grad."""
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x.detach()


class KinkSurvey(_Kinked):
    """Measures what enters each kinked call, and changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.sites: list[_Site] = []
        self.before: list[Tensor] | None = []

    def kinked(self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self.call > len(self.sites):
            self.sites.append(_Site(name))
        x = args[0] if args else kwargs["input"]
        binary = name in ("maximum", "minimum", "max", "min")
        other = (args[1] if len(args) > 1 else kwargs.get("other")) if binary else None
        entering = _plain(x - other if isinstance(other, Tensor) else x).clone()
        out = func(*args, **kwargs)
        site = self.sites[self.call - 1]
        if self.before is not None:
            self._compare(site, entering)
        site.see(entering)
        if name == "elu":
            site.felt = (args[1] if len(args) > 1 else kwargs.get("alpha", 1.0)) != 1  # ELU itself has no kink
        else:
            # A clamp that never clamps, say one for safety before a logarithm, has no kink to smooth.
            site.felt |= not name.startswith("cl") or not torch.equal(_plain(out), entering)
        return out

    def _compare(self, site: _Site, entering: Tensor) -> None:
        """Notice whether what enters depends on the units: the first pass notes it, the next ones compare."""
        assert self.before is not None
        if self.call > len(self.before):
            self.before.append(entering)
        else:
            site.moved |= not torch.equal(self.before[self.call - 1], entering)

    def smoothing(self, smooth: str | float) -> Smoothing | None:
        """Return the smoothing that ``smooth`` asks for, None where no kinked call depends on the units."""
        betas = [site.beta(smooth) for site in self.sites]
        return Smoothing([site.name for site in self.sites], betas) if any(betas) else None


class Smoothing(_Kinked):
    """Lets each kinked call act as a smooth one."""

    def __init__(self, names: list[str], betas: list[float | None]) -> None:
        super().__init__()
        self.names, self.betas = names, betas

    def beta(self, call: int) -> float | None:
        """Return the sharpness of the kinked call of that number, from 1; None if it stays as it is."""
        return self.betas[call - 1] if call <= len(self.betas) else None

    def kinked(self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        beta = self.beta(self.call)
        if beta is None:
            return Kernels.handle(self, func, args, kwargs)
        if func is torch.adaptive_max_pool1d:
            kwargs = {**kwargs, "return_indices": True}
        if func.__name__.endswith("_") or kwargs.get("inplace"):
            return args[0].copy_(FORMS[name](beta, args[0].clone(), *args[1:], **kwargs))
        return FORMS[name](beta, *args, **kwargs)


def survey_kinks(cut: Cut, rows: Rows) -> KinkSurvey | None:
    """Find the kinked calls above ``cut`` that depend on the units, on a few rows; None where there are none.

    The statistics of the survey are empty: they come from a pass over all rows under it.
    """
    survey = KinkSurvey()
    with cut.viewed(survey):
        cut.outputs(rows, cut.zeros(rows))
        if not survey.sites:
            return None
        # Kinks of what does not depend on the units, such as the bias of positions, are left alone.
        cut.outputs(rows, cut.zeros(rows) + 0.01)
    survey.before = None
    for site in survey.sites:
        site.forget()
    return survey


def smoothing_for(cut: Cut, points: Points, smooth: str | float | None, batch_size: int | None) -> Smoothing | None:
    """Return the smoothing that ``smooth`` asks for above ``cut``, by a pass over all points."""
    survey = None if smooth is None else survey_kinks(cut, points.first)
    if survey is None or smooth is None:
        return None
    with cut.viewed(survey):
        for rows in points.split(batch_size):
            cut.outputs(rows, cut.zeros(rows))
    return survey.smoothing(smooth)


class SmoothingChange:
    """Compares the smoothed outputs with the original ones, batch by batch in the same order."""

    def __init__(self) -> None:
        self._original: list[Tensor] = []
        self._smoothed: list[Tensor] = []
        self._original_argmax: list[Tensor] = []
        self._agreement: list[Tensor] = []

    def add_original(self, outputs: Tensor, selected: Tensor) -> None:
        """Add all outputs (n, ...) of some rows, and the explained one (n,), before smoothing."""
        self._original.append(selected.double().cpu())
        if outputs[0].numel() > 1:
            self._original_argmax.append(outputs.flatten(1).argmax(1))

    def add_smoothed(self, outputs: Tensor, target: Target) -> None:
        """Add all outputs (n, ...) of the next rows after smoothing."""
        if outputs[0].numel() > 1:
            original = self._original_argmax[len(self._smoothed)]
            self._agreement.append((original == outputs.flatten(1).argmax(1)).double().cpu())
        self._smoothed.append(select(outputs, target).double().cpu())

    def summary(self, smoothing: Smoothing) -> dict[str, Any]:
        """Return which functions were smoothed, how sharply, and how the output changed."""
        original = torch.cat(self._original)
        change = float((torch.cat(self._smoothed) - original).abs().mean())
        spread = float(original.std(correction=0))
        betas = [beta for beta in smoothing.betas if beta is not None]
        names = Counter(name for name, beta in zip(smoothing.names, smoothing.betas, strict=True) if beta is not None)
        return {
            "functions": dict(names),
            "beta": [min(betas), max(betas)],
            "mean_change": change,
            "relative_change": change / spread if spread > 0 else None,
            "argmax_agreement": float(torch.cat(self._agreement).mean()) if self._agreement else None,
        }


def doubt(change: dict[str, Any]) -> str | None:
    """Say so if the smoothed network is not the original one any more."""
    relative, agreement = change["relative_change"], change["argmax_agreement"]
    if (relative or 0) <= _MOST_CHANGE and (agreement is None or agreement >= _LEAST_AGREEMENT):
        return None
    words = [] if relative is None else [f"by {relative:.0%} of its spread"]
    words += [] if agreement is None else [f"the arg max agrees on {agreement:.0%} of the points"]
    return (
        f"smoothing the kinks ({', '.join(change['functions'])}) changed the output {'; '.join(words)}; pass a larger "
        f"beta than {change['beta'][1]:.3g} as smooth=, explain a later layer, or use engine='difference'."
    )
