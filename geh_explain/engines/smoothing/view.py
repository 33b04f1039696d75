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
from geh_explain.data.targets import select
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


class _Surveying(_Kinked):
    """Looks at what enters each kinked call, and changes nothing."""

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


def smoothing_for(cut: Cut, points: Points, smooth: str | float | None, batch_size: int | None) -> Smoothing | None:
    """Return the smoothing that ``smooth`` asks for above ``cut``, or None where there is nothing to smooth."""
    if smooth is None:
        return None
    seen = cut.view = _Surveying()
    try:
        cut.outputs(points.first, cut.zeros(points.first))
        if seen.sites:
            # Kinks of what does not depend on the units, such as the bias of positions, are left alone.
            cut.outputs(points.first, cut.zeros(points.first) + 0.01)
            seen.before = None
            for site in seen.sites:
                site.forget()
            for rows in points.split(batch_size):
                cut.outputs(rows, cut.zeros(rows))
    finally:
        cut.view = None
    betas = [site.beta(smooth) for site in seen.sites]
    return Smoothing([site.name for site in seen.sites], betas) if any(betas) else None


def describe_change(cut: Cut, points: Points, smoothing: Smoothing, batch_size: int | None) -> dict[str, Any]:
    """Compare the smoothed output with the original one, over all points."""
    before, after, agree = [], [], []
    cut.view = smoothing
    with torch.no_grad():
        for rows in points.split(batch_size):
            plain, smooth = cut.all_outputs(rows), cut.all_outputs(rows, cut.zeros(rows))
            before.append(select(plain, rows.target).double().cpu())
            after.append(select(smooth, rows.target).double().cpu())
            if plain[0].numel() > 1:
                agree.append((plain.flatten(1).argmax(1) == smooth.flatten(1).argmax(1)).double().cpu())
    original = torch.cat(before)
    change = float((torch.cat(after) - original).abs().mean())
    spread = float(original.std(correction=0))
    betas = [beta for beta in smoothing.betas if beta is not None]
    names = Counter(name for name, beta in zip(smoothing.names, smoothing.betas, strict=True) if beta is not None)
    return {
        "functions": dict(names),
        "beta": [min(betas), max(betas)],
        "mean_change": change,
        "relative_change": change / spread if spread > 0 else None,
        "argmax_agreement": float(torch.cat(agree).mean()) if agree else None,
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
