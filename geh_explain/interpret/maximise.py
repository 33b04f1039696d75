"""Inputs that excite units most, found by gradient ascent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm.auto import tqdm

from geh_explain.attach import as_module, borrow, device_and_dtype
from geh_explain.cut import Cut
from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError, whole
from geh_explain.interpret.canvas import Bounds, Canvas, Pixels, Spectrum
from geh_explain.interpret.images import Shake, roughness
from geh_explain.interpret.objectives import Objective, parse
from geh_explain.interpret.responses import (
    BeforeActivation,
    check_reduce,
    cut_at,
    reduced,
    report_dead,
    unit_names,
)
from geh_explain.layers import Layer
from geh_explain.points import Beside, Reader, Rows
from geh_explain.units import Units

#: Inputs start this far, of the width of their range, around its middle.
_START_SPREAD = 0.01
#: What is usual for a unit is seen on at most so many inputs.
REFERENCE_ROWS = 512
#: A blur is applied every so many steps.
_BLUR_EVERY = 4
#: Default shifts, of the shorter side of an image, rotations in degrees, and zooms.
_JITTER, _ROTATE, _SCALE = 1 / 16, 5.0, 0.05


@dataclass(frozen=True)
class Maximised:
    """One input for each of U objectives: ``inputs`` (U, *shape), ``scores`` (U,) the objectives reached.

    ``activations`` holds those of the unit, or of both units of a pair, before the activation function if that was
    climbed; ``dead`` (U,) marks objectives that no input that was tried could change.
    """

    inputs: Tensor
    scores: NDArray[np.float64]
    activations: list[tuple[float, ...]]
    names: list[str]
    dead: NDArray[np.bool_] = field(repr=False)

    def part(self, rows: Sequence[int]) -> Maximised:
        """Return some of the inputs, by their row."""
        chosen = list(rows)
        activations, names = [self.activations[row] for row in chosen], [self.names[row] for row in chosen]
        return Maximised(self.inputs[chosen], self.scores[chosen], activations, names, self.dead[chosen])

    def plot(self) -> Any:
        """Draw the inputs side by side, and return the figure."""
        from geh_explain.plots.exemplars import draw_maximised

        return draw_maximised(self)


def maximise(
    model: nn.Module,
    layer: str | nn.Module | Layer,
    units: Any,
    shape: int | Sequence[int],
    *,
    unit_set: Units | None = None,
    reduce: str = "mean",
    preactivation: bool = True,
    reference: Any = None,
    parametrisation: str = "auto",
    limits: tuple[Any, Any] | None = None,
    radius: float | None = None,
    mask: Any = None,
    start: Tensor | None = None,
    jitter: float | None = None,
    rotate: float | None = None,
    scale: float | None = None,
    l2: float = 0.0,
    tv: float = 0.0,
    blur: float = 0.0,
    steps: int = 256,
    lr: float = 0.05,
    restarts: int = 1,
    batch_size: int = 32,
    seed: int = 0,
    progress: bool = True,
) -> Maximised:
    """Climb from noise to inputs that excite units most.

    Parameters
    ----------
    model, layer, shape
        A network, the layer whose units are meant, and the shape of an input without the batch dimension.
    units
        A unit's number, a pair ``(i, j)`` that shall both respond, a direction (a tensor of floating-point weights, one
        per unit), a list of these, or None for every unit. A pair climbs the smooth minimum of both, standardised.
    unit_set
        What a unit is, from :mod:`geh_explain.units`; None: neurons, or channels of feature maps.
    reduce
        What stands for a unit that is a map: its ``"mean"`` or its ``"max"``.
    preactivation
        Climb what enters the layer's activation function, if the layer ends in one: a ReLU that is off has no gradient.
    reference
        Inputs that show what is usual for units, by which those of a pair are standardised; None takes random ones.
    parametrisation
        ``"pixel"`` or ``"fourier"``, which gives smoother images; ``"auto"`` takes the latter for images.
    limits
        The lowest and the highest value, numbers or arrays that broadcast to ``shape``; None for no bounds.
    radius
        How long the input may be (its Euclidean norm); None for no limit.
    mask
        1 where the input may change, 0 where it stays as it started; broadcasts to ``shape``. Half an image, say.
    start
        Where to start from, of ``shape``; None for the middle of the limits, with a little noise.
    jitter, rotate, scale
        Random shifts (pixels), rotations (degrees) and zooms (a share) at every step; None for a little of each in
        images. Only patterns that survive them are found.
    l2, tv, blur
        Weights of the squared norm and of the total variation, which are subtracted, and a blur (in pixels, of the
        pixel parametrisation) every few steps.
    steps, lr
        Steps of Adam, and their size, as a share of the limits or the radius where there are any.
    restarts
        How many times to start; the best end is kept.
    batch_size, seed, progress
        Inputs at a time, the noise to start from, and whether to show a progress bar.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, -2.0, 0.5], [0.0, 1.0, 0.0]]))
    >>> found = geh.interpret.maximise(net, "1", 0, shape=(3,), limits=(-1, 1), progress=False)
    >>> found.inputs[0].tolist()
    [1.0, -1.0, 1.0]
    """
    check_reduce(reduce)
    steps, restarts = whole("steps", steps, 1), whole("restarts", restarts, 1)
    batch_size, seed = whole("batch_size", batch_size, 1), whole("seed", seed, 0)
    jitter, rotate, scale = (_number(n, v) for n, v in (("jitter", jitter), ("rotate", rotate), ("scale", scale)))
    l2, tv, blur = (_number(n, v) or 0.0 for n, v in (("l2", l2), ("tv", tv), ("blur", blur)))
    radius, lr = _number("radius", radius, positive=True), _number("lr", lr, positive=True) or 0.0
    shape = _shape(shape)
    if unit_set is not None and not isinstance(unit_set, Units):
        raise GEHTypeError(
            f"unit_set={unit_set!r} is not a unit set; use one of geh_explain.units, such as Channels()."
        )
    module = as_module(model)
    device, dtype = device_and_dtype(module)
    blank = torch.zeros(shape, device=device, dtype=dtype)
    picture = len(shape) == 3
    if parametrisation not in ("auto", "pixel", "fourier"):
        raise GEHValueError(f"parametrisation={parametrisation!r} is unknown; use 'auto', 'pixel' or 'fourier'.")
    if not picture and (parametrisation == "fourier" or jitter or rotate or scale or tv or blur):
        raise GEHValueError(
            f"shape={shape} is no image (C, H, W); leave parametrisation='fourier', jitter, rotate, scale, tv and blur."
        )
    if blur and parametrisation != "pixel":
        raise GEHValueError(f"blur={blur}: pixels are blurred; take parametrisation='pixel' with it.")
    if radius is not None and (limits is not None or mask is not None):
        raise GEHValueError(f"radius={radius}: give it without limits and without a mask.")
    shake = Shake(
        (min(shape[1:]) * _JITTER if jitter is None else jitter) if picture else 0.0,
        (_ROTATE if rotate is None else rotate) if picture else 0.0,
        (_SCALE if scale is None else scale) if picture else 0.0,
    )
    climb = _Climb(
        bounds=Bounds(*_limits(limits, blank), radius),
        spectrum=picture and parametrisation != "pixel",
        mask=None if mask is None else _mask(mask, blank),
        start=None if start is None else _broadcast("start", start, blank),
        shake=shake,
        penalty=lambda x: l2 * x.flatten(1).square().sum(dim=1) + (tv * roughness(x) if tv else 0.0),
        blur=blur,
        steps=steps,
        lr=lr,
    )
    with borrow(module):
        wants = [parameter for parameter in module.parameters() if parameter.requires_grad]
        for parameter in wants:  # their gradients are nobody's business here
            parameter.requires_grad_(False)
        cut = cut_at(module, layer, unit_set, _rows(blank.expand(2, *shape)), "shape")
        climb.values = lambda x: _values(cut, x, reduce, preactivation)
        objectives = parse(units, cut.count)
        generator = torch.Generator().manual_seed(seed)
        climb.mean, climb.std = _usual(climb, reference, device, dtype, blank, generator)
        tries = [objective for objective in objectives for _ in range(restarts)]
        with tqdm(
            total=-(-len(tries) // batch_size) * steps, desc="ascent", unit="step", disable=not progress, leave=False
        ) as bar:
            ends = [
                climb(tries[first : first + batch_size], blank, generator, bar)
                for first in range(0, len(tries), batch_size)
            ]
        names = unit_names(cut)
    return _chosen(ends, objectives, restarts, [objective.name(names) for objective in objectives])


@dataclass
class _End:
    """Where climbs ended: inputs, objectives, the units' values, and whether anything moved."""

    inputs: Tensor
    scores: Tensor
    values: Tensor
    moved: Tensor


@dataclass
class _Climb:
    """All that climbs have in common."""

    bounds: Bounds
    spectrum: bool
    mask: Tensor | None
    start: Tensor | None
    shake: Shake
    penalty: Callable[[Tensor], Tensor]
    blur: float
    steps: int
    lr: float
    values: Callable[[Tensor], Tensor] = field(init=False)
    mean: Tensor = field(init=False)
    std: Tensor = field(init=False)

    def noise(self, count: int, like: Tensor, generator: torch.Generator) -> Tensor:
        """Return numbers around 0, as many as ``count`` inputs have, that are 1 wide."""
        return torch.randn(count, *like.shape, generator=generator).to(like)

    def __call__(self, objectives: list[Objective], like: Tensor, generator: torch.Generator, bar: Any) -> _End:
        begin = torch.zeros_like(like) + self.bounds.middle if self.start is None else self.start
        begin = self.bounds.inside(begin[None])[0]
        noise = _START_SPREAD * self.bounds.span * self.noise(len(objectives), like, generator)
        canvas: Canvas = (Spectrum if self.spectrum else Pixels)(begin + noise, self.bounds)
        optimiser: torch.optim.Optimizer = torch.optim.Adam([canvas.parameters], lr=self.lr)
        straight = self.bounds.radius is not None and not self.spectrum
        if straight:  # steps of Adam, alike in all numbers, would miss the best direction on a ball
            optimiser = torch.optim.SGD([canvas.parameters], lr=self.lr * like.numel() ** 0.5)
        moved = torch.zeros(len(objectives), dtype=torch.bool, device=like.device)
        for step in range(self.steps):
            shown = self._masked(canvas.inputs(), begin)
            score = self._score(objectives, self.values(self.shake(shown, generator) if self.shake else shown))
            if not bool(torch.isfinite(score).all()):
                raise GEHRuntimeError(f"the activation became NaN or infinite in step {step}; try a smaller lr.")
            optimiser.zero_grad()
            if score.requires_grad:
                (slope,) = torch.autograd.grad(score.sum(), canvas.parameters, retain_graph=True, allow_unused=True)
                moved |= False if slope is None else (slope.flatten(1) != 0).any(dim=1)
                torch.autograd.backward((self.penalty(shown) - score).sum(), inputs=[canvas.parameters])
                if straight and canvas.parameters.grad is not None:
                    canvas.parameters.grad = F.normalize(canvas.parameters.grad.flatten(1)).view_as(canvas.parameters)
                optimiser.step()
                canvas.settle(self.blur if (step + 1) % _BLUR_EVERY == 0 else 0.0)
            bar.update(1)
        with torch.no_grad():
            # Not beyond the bounds by a rounding error.
            shown = self._masked(self.bounds.inside(canvas.inputs()), begin)
            values = self.values(shown)
            return _End(shown, self._score(objectives, values), values, moved)

    def _score(self, objectives: list[Objective], values: Tensor) -> Tensor:
        parts = [objective(values[row : row + 1], self.mean, self.std) for row, objective in enumerate(objectives)]
        return torch.cat(parts)

    def _masked(self, x: Tensor, begin: Tensor) -> Tensor:
        return x if self.mask is None else self.mask * x + (1 - self.mask) * begin


def _values(cut: Cut, x: Tensor, reduce: str, preactivation: bool) -> Tensor:
    """Return the units' values (n, D), with gradients."""
    if not preactivation:
        return reduced(cut, cut.reached(_rows(x)), reduce).values
    with BeforeActivation() as before:
        activations = cut.reached(_rows(x))
    return reduced(cut, before.of(activations), reduce).values


def _usual(
    climb: _Climb, reference: Any, device: Any, dtype: Any, blank: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation (D,) of the units over inputs that are usual."""
    with torch.no_grad():
        if reference is None:
            noise = climb.noise(REFERENCE_ROWS, blank, generator)
            inside = climb.bounds.inside(torch.as_tensor(climb.bounds.middle + climb.bounds.span * noise))
            pieces = torch.split(inside, 64)
        else:
            reader = Reader(floating=True, device=device, dtype=dtype, argument="reference")
            pieces = tuple(rows.inputs[0] for rows in islice(reader.stream(reference, 64), REFERENCE_ROWS // 64))
            if any(piece.shape[1:] != blank.shape for piece in pieces):
                raise GEHValueError(
                    f"reference: its rows have shape {tuple(pieces[0].shape[1:])}, and shape={tuple(blank.shape)}."
                )
        values = torch.cat([climb.values(piece) for piece in pieces])
        spread = values.std(dim=0, correction=0)
        return values.mean(dim=0), torch.where(spread > 0, spread, torch.ones_like(spread))


def _chosen(ends: list[_End], objectives: list[Objective], restarts: int, names: list[str]) -> Maximised:
    """Keep the best of each objective's ends."""
    shape = (len(objectives), restarts)
    scores, values = torch.cat([end.scores for end in ends]), torch.cat([end.values for end in ends])
    best = scores.reshape(shape).argmax(dim=1) + restarts * torch.arange(len(objectives), device=scores.device)
    dead = ~torch.cat([end.moved for end in ends]).reshape(shape).any(dim=1).cpu().numpy()
    report_dead(dead, names, "did not change with any input that was tried")
    activations = [
        tuple(float(values[row, unit]) for unit in objective.units) or (float(scores[row]),)
        for objective, row in zip(objectives, best.tolist(), strict=True)
    ]
    inputs = torch.cat([end.inputs for end in ends])[best].detach()
    return Maximised(inputs, scores[best].double().cpu().numpy(), activations, names, dead)


def _rows(x: Tensor) -> Rows:
    return Rows((x,), Beside.of(None, (), len(x)))


def _limits(limits: tuple[Any, Any] | None, like: Tensor) -> tuple[Tensor | None, Tensor | None]:
    if limits is None:
        return None, None
    if not isinstance(limits, (tuple, list)) or len(limits) != 2:
        raise GEHTypeError(f"limits={limits!r} is not a pair; give the lowest and the highest value, such as (0, 1).")
    if any(value is None for value in limits):
        raise GEHValueError(f"limits={limits!r}: give both ends, or None for no limits at all.")
    low, high = (_broadcast("limits", value, like) for value in limits)
    if not bool((torch.isfinite(low) & torch.isfinite(high) & (low <= high)).all()):
        raise GEHValueError(f"limits={limits!r}: both ends must be finite, the lowest not above the highest.")
    return low, high


def _mask(mask: Any, like: Tensor) -> Tensor:
    free = _broadcast("mask", mask, like)
    if not bool(((free >= 0) & (free <= 1)).all()) or not bool(free.any()):
        raise GEHValueError("mask must be 1 where the input may change and 0 where it stays, and leave something free.")
    return free


def _broadcast(name: str, value: Any, like: Tensor) -> Tensor:
    try:
        # A copy made here can enter autograd, whatever the original is.
        return torch.as_tensor(value).detach().clone().to(like).expand_as(like)
    except (RuntimeError, TypeError, ValueError) as error:
        raise GEHValueError(f"{name} does not fit inputs of shape {tuple(like.shape)}: {error}") from error


def _number(name: str, value: Any, positive: bool = False) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise GEHTypeError(f"{name}={value!r} is not a number.")
    if not math.isfinite(value) or value < 0 or (positive and value == 0):
        raise GEHValueError(f"{name}={value!r} must be finite and {'positive' if positive else 'not negative'}.")
    return float(value)


def _shape(shape: Any) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int) else shape
    if not isinstance(sizes, Sequence) or isinstance(sizes, str) or not sizes:
        raise GEHTypeError(f"shape={shape!r} is not understood; give that of one input, such as (1, 28, 28) or (8,).")
    return tuple(whole("shape", size, 1) for size in sizes)
