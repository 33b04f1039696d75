"""Validation of the arguments of ``maximise``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geh_explain._validation import check_int
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.interpret.ascent.bounds import Bounds
from geh_explain.interpret.ascent.images import RandomTransform
from geh_explain.units.base import Units

#: Default shift of images, as a share of their shorter side.
_JITTER = 1 / 10
#: Default rotation of images, in degrees.
_ROTATE = 10.0
#: Default zoom of images.
_SCALE = 0.15
#: Default learning rates.
_LR = {"natural": 0.1, "phase": 0.2, "fourier": 0.05, "pixel": 0.05}
#: Default number of steps, at most.
_STEPS = 256
_IMAGE_STEPS = 128
#: Default rise of the objective that counts as none; without random transforms ascent is exact.
_TOLERANCE = 1e-6
_RANDOM_TOLERANCE = 0.02
_PARAMETRISATIONS = ("auto", *_LR)


@dataclass(frozen=True)
class ImageOptions:
    """Options of ``maximise`` that apply to images (C, H, W) only.

    Attributes
    ----------
    parametrisation
        ``"auto"``, ``"natural"``, ``"phase"``, ``"fourier"`` or ``"pixel"``.
    jitter, rotate, scale
        Ranges of the random transform; None for the defaults: 1/10 of the shorter side, 10 degrees, 15 %.
    tv, blur
        Weight of the total variation, and standard deviation of the blur in pixels.
    """

    parametrisation: str
    jitter: float | None
    rotate: float | None
    scale: float | None
    tv: float
    blur: float

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise GEHValueError if the options contradict one another or the inputs are not images."""
        if self.parametrisation not in _PARAMETRISATIONS:
            raise GEHValueError(
                f"parametrisation={self.parametrisation!r} is unknown; use one of {', '.join(_PARAMETRISATIONS)}."
            )
        needs_image = self.jitter or self.rotate or self.scale or self.tv or self.blur
        if not _is_image(shape) and (self.parametrisation not in ("auto", "pixel") or needs_image):
            raise GEHValueError(
                f"shape={shape} is not an image (C, H, W); leave out parametrisation={self.parametrisation!r}, jitter, "
                "rotate, scale, tv and blur."
            )
        if self.blur and self.parametrisation != "pixel":
            raise GEHValueError(f"blur={self.blur}: only pixels are blurred; add parametrisation='pixel'.")

    def choose(self, shape: tuple[int, ...], has_start: bool) -> str:
        """Return the parametrisation of inputs of this shape: any but ``"auto"``.

        By default images are natural ones, or weighted Fourier coefficients if they start from an image, which need
        not have natural statistics, or lie in a ball around 0; other inputs are parametrised by their numbers.
        """
        if self.parametrisation != "auto":
            return self.parametrisation
        if not _is_image(shape):
            return "pixel"
        return "fourier" if has_start else "natural"

    def transform(self, shape: tuple[int, ...]) -> RandomTransform:
        """Return the random transform of inputs of this shape, the identity for inputs other than images."""
        if not _is_image(shape):
            return RandomTransform()
        return RandomTransform(
            min(shape[1:]) * _JITTER if self.jitter is None else self.jitter,
            _ROTATE if self.rotate is None else self.rotate,
            _SCALE if self.scale is None else self.scale,
        )


@dataclass(frozen=True)
class StepOptions:
    """Number and size of steps; None for the defaults, which depend on the inputs.

    Attributes
    ----------
    steps
        Largest number of steps; by default 128 for images, 256 for other inputs.
    lr
        Learning rate; by default 0.1 for natural images, 0.2 radians for phases, 0.05 of the bounds' span for others.
    tolerance
        Rise of the objective that counts as none; by default 2 % of the rise since the start with random transforms,
        one millionth without.
    """

    steps: int | None
    lr: float | None
    tolerance: float | None

    def resolve(self, parametrisation: str, transform: RandomTransform) -> tuple[int, float, float]:
        """Return number of steps, learning rate and tolerance."""
        steps = _STEPS if parametrisation == "pixel" else _IMAGE_STEPS
        tolerance = _RANDOM_TOLERANCE if transform else _TOLERANCE
        return (
            steps if self.steps is None else self.steps,
            _LR[parametrisation] if self.lr is None else self.lr,
            tolerance if self.tolerance is None else self.tolerance,
        )


def check_bounds(limits: Any, radius: float | None, mask: Any, template: Tensor) -> Bounds:
    """Return the bounds of inputs.

    Parameters
    ----------
    limits
        None, or a pair of numbers or arrays that broadcast to the shape of one input.
    radius
        Largest Euclidean norm, or None. It excludes limits and a mask.
    mask
        The user's mask, or None.
    template
        A tensor of the shape, dtype and device of one input.
    """
    if radius is not None and (limits is not None or mask is not None):
        raise GEHValueError(f"radius={radius}: use it without limits and without a mask.")
    if limits is None:
        return Bounds(radius=radius)
    if not isinstance(limits, (tuple, list)) or len(limits) != 2:
        raise GEHTypeError(f"limits={limits!r} is not a pair; give the lowest and the highest value, such as (0, 1).")
    if any(value is None for value in limits):
        raise GEHValueError(f"limits={limits!r}: give both ends, or None for no limits.")
    low, high = (broadcast("limits", value, template) for value in limits)
    if not bool((torch.isfinite(low) & torch.isfinite(high) & (low <= high)).all()):
        raise GEHValueError(f"limits={limits!r}: both ends must be finite, the lowest not above the highest.")
    return Bounds(low, high, radius)


def check_mask(mask: Any, template: Tensor) -> Tensor | None:
    """Return the mask as a tensor of the shape of one input, or None.

    Raises
    ------
    GEHValueError
        If the mask does not broadcast, has values outside [0, 1], or is 0 everywhere.
    """
    if mask is None:
        return None
    free = broadcast("mask", mask, template)
    if not bool(((free >= 0) & (free <= 1)).all()) or not bool(free.any()):
        raise GEHValueError(
            "mask must be 1 where the input may change and 0 where it stays; its values must lie in [0, 1], and at "
            "least one must be positive."
        )
    return free


def broadcast(name: str, value: Any, template: Tensor) -> Tensor:
    """Return ``value`` expanded to the shape of ``template``, with its dtype and device.

    Raises
    ------
    GEHValueError
        If ``value`` is not numeric or does not broadcast; ``name`` is the argument's.
    """
    try:
        # A copy can enter autograd even if the original was created in inference mode.
        return torch.as_tensor(value).detach().clone().to(template).expand_as(template)
    except (RuntimeError, TypeError, ValueError) as error:
        raise GEHValueError(f"{name} does not fit inputs of shape {tuple(template.shape)}: {error}") from error


def check_number(name: str, value: Any, *, positive: bool = False) -> float | None:
    """Return a finite number that is not negative (positive on request) as a float; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise GEHTypeError(f"{name}={value!r} is not a number; give an int or a float.")
    if not math.isfinite(value) or value < 0 or (positive and value == 0):
        raise GEHValueError(f"{name}={value!r} must be finite and {'positive' if positive else 'not negative'}.")
    return float(value)


def check_shape(shape: Any) -> tuple[int, ...]:
    """Return the shape of one input as a tuple of positive integers; one integer is a shape with one dimension.

    >>> check_shape(8), check_shape([1, 28, 28])
    ((8,), (1, 28, 28))
    """
    sizes = (shape,) if isinstance(shape, int) else shape
    if not isinstance(sizes, Sequence) or isinstance(sizes, str) or not sizes:
        raise GEHTypeError(f"shape={shape!r} is not supported; give that of one input, such as (1, 28, 28) or (8,).")
    return tuple(check_int("shape", size, 1) for size in sizes)


def check_unit_set(unit_set: Any) -> Units | None:
    """Return a unit set, or None; raise GEHTypeError for anything else."""
    if unit_set is None or isinstance(unit_set, Units):
        return unit_set
    raise GEHTypeError(f"unit_set={unit_set!r} is not a unit set; use one of geh_explain.units, such as Channels().")


def _is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3
