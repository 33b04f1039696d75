"""Inputs that excite units most, found by gradient ascent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm.auto import tqdm

from geh_explain._validation import check_int
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.interpret.ascent.canvas import Bounds
from geh_explain.interpret.ascent.climb import Climb, End, Terrain, as_rows, unit_values, usual
from geh_explain.interpret.ascent.images import Shake
from geh_explain.interpret.ascent.objectives import Objective, parse
from geh_explain.interpret.responses import check_reduce, cut_at, report_dead
from geh_explain.model.borrow import as_module, borrow, device_and_dtype
from geh_explain.model.layers import Layer
from geh_explain.units.base import Units

#: Default shifts, of the shorter side of an image, rotations in degrees, and zooms.
_JITTER, _ROTATE, _SCALE = 1 / 16, 5.0, 0.05


@dataclass(frozen=True)
class Maximised:
    """One input for each of U objectives: ``inputs`` ``(U, *shape)``, ``scores`` (U,) the objectives reached.

    ``activations`` holds those of the unit, or of both units of a pair, before the activation function if that was
    climbed; ``dead`` (U,) marks objectives that no input that was tried could change.

    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3))
    >>> painted = geh.interpret.maximise(net, "0", [0], shape=(2,), limits=(0, 1), steps=8, progress=False)
    >>> painted.inputs.shape
    torch.Size([1, 2])
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
    steps, restarts = check_int("steps", steps, 1), check_int("restarts", restarts, 1)
    batch_size, seed = check_int("batch_size", batch_size, 1), check_int("seed", seed, 0)
    jitter, rotate, scale = (_number(n, v) for n, v in (("jitter", jitter), ("rotate", rotate), ("scale", scale)))
    l2, tv, blur = (_number(n, v) or 0.0 for n, v in (("l2", l2), ("tv", tv), ("blur", blur)))
    radius, lr = _number("radius", radius, positive=True), _number("lr", lr, positive=True) or 0.0
    shape = _shape(shape)
    if unit_set is not None and not isinstance(unit_set, Units):
        raise GEHTypeError(
            f"unit_set={unit_set!r} is not a unit set; use one of geh_explain.units, such as Channels()."
        )
    if parametrisation not in ("auto", "pixel", "fourier"):
        raise GEHValueError(f"parametrisation={parametrisation!r} is unknown; use 'auto', 'pixel' or 'fourier'.")
    if not _is_picture(shape) and (parametrisation == "fourier" or jitter or rotate or scale or tv or blur):
        raise GEHValueError(
            f"shape={shape} is no image (C, H, W); leave parametrisation='fourier', jitter, rotate, scale, tv and blur."
        )
    if blur and parametrisation != "pixel":
        raise GEHValueError(f"blur={blur}: pixels are blurred; take parametrisation='pixel' with it.")
    if radius is not None and (limits is not None or mask is not None):
        raise GEHValueError(f"radius={radius}: give it without limits and without a mask.")
    module = as_module(model)
    device, dtype = device_and_dtype(module)
    blank = torch.zeros(shape, device=device, dtype=dtype)
    terrain = Terrain(
        like=blank,
        bounds=Bounds(*_limits(limits, blank), radius),
        spectrum=_is_picture(shape) and parametrisation != "pixel",
        mask=None if mask is None else _mask(mask, blank),
        start=None if start is None else _broadcast("start", start, blank),
        shake=_shake(shape, jitter, rotate, scale),
        l2=l2,
        tv=tv,
        blur=blur,
    )
    with borrow(module):
        for parameter in module.parameters():  # their gradients are nobody's business here
            parameter.requires_grad_(False)
        cut = cut_at(module, layer, unit_set, as_rows(blank.expand(2, *shape)), "shape")
        values = partial(unit_values, cut, reduce=reduce, preactivation=preactivation)
        objectives, names = parse(units, cut.n_units), cut.unit_names()
        generator = torch.Generator().manual_seed(seed)
        climb = Climb(terrain, values, *usual(terrain, values, reference, generator), steps, lr)
        tries = [objective for objective in objectives for _ in range(restarts)]
        batches = [tries[first : first + batch_size] for first in range(0, len(tries), batch_size)]
        with tqdm(total=len(batches) * steps, desc="ascent", unit="step", disable=not progress, leave=False) as bar:
            ends = [climb(batch, generator, bar.update) for batch in batches]
    return _best(ends, objectives, restarts, [objective.name(names) for objective in objectives])


def _best(ends: list[End], objectives: list[Objective], restarts: int, names: list[str]) -> Maximised:
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


def _is_picture(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3


def _shake(shape: tuple[int, ...], jitter: float | None, rotate: float | None, scale: float | None) -> Shake:
    """Return how inputs are moved about: images a little, if nothing else is said."""
    if not _is_picture(shape):
        return Shake()
    return Shake(
        min(shape[1:]) * _JITTER if jitter is None else jitter,
        _ROTATE if rotate is None else rotate,
        _SCALE if scale is None else scale,
    )


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
    return tuple(check_int("shape", size, 1) for size in sizes)
