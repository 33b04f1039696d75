"""Inputs that excite units: images side by side, or numbers as colours."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain.plots import palette
from geh_explain.plots.axes import shorten

if TYPE_CHECKING:
    from geh_explain.interpret.ascent.maximisation import Maximised
    from geh_explain.interpret.exemplar_search import Exemplars

#: Lines between the images of one unit: how wide, as a share of their shorter side, and how bright.
_GAP, _GREY = 0.06, 0.75
#: The most units that are drawn, letters of a line over them, and columns of a table that have a tick.
_MOST, _LINE, _TICKS = 24, 34, 12

#: The lowest and the highest value: of all numbers of an image, or of each column of a table.
Limits = tuple[Tensor, Tensor]


def draw_exemplars(found: Exemplars, labels: Any = None) -> Any:
    """Draw the exemplars of each unit in a box of its own, and return the figure."""
    inputs = first_input(found.inputs)
    figure, boxes = _boxes(len(found.names))
    limits = colour_limits(inputs.flatten(0, 1))
    for row, (ax, title) in enumerate(zip(boxes, titles(found, labels), strict=False)):
        show(ax, inputs[row], limits, *placed(found, row))
        label(ax, title)
    return figure


def draw_maximised(found: Maximised) -> Any:
    """Draw one painted input for each objective, and return the figure."""
    figure, boxes = _boxes(len(found.names))
    for row, (ax, name, score) in enumerate(zip(boxes, found.names, found.scores, strict=False)):
        shown = found.inputs[row : row + 1]
        show(ax, shown, colour_limits(shown))
        label(ax, f"{shorten(name, 40)}\n{score:.3g}")
    return figure


def titles(found: Exemplars, labels: Any = None) -> list[str]:
    """Return what each unit is called, and what it reads if there are labels of the candidates."""
    names = [shorten(name) + " (dead)" * bool(dead) for name, dead in zip(found.names, found.dead, strict=True)]
    if labels is None:
        return names
    wrapped = ("\n".join(textwrap.wrap(str(reading), _LINE)) for reading in found.reading(labels))
    return [f"{name}\n{reading}" for name, reading in zip(names, wrapped, strict=True)]


def placed(found: Exemplars, row: int) -> tuple[NDArray[np.int64] | None, tuple[int, ...] | None]:
    """Return where in which map the maxima of a unit are, (None, None) if nowhere in particular."""
    if found.places is None or found.dead[row]:
        return None, None
    return found.places[row], found.map_shape


def _boxes(count: int) -> tuple[Any, list[Any]]:
    import matplotlib.pyplot as plt

    shown = min(count, _MOST)
    across = min(4, shown)
    down = -(-shown // across)
    figure, boxes = plt.subplots(
        down, across, figsize=(2.6 * across, 0.5 + 1.9 * down), layout="constrained", squeeze=False
    )
    for ax in boxes.flat[shown:]:
        ax.set_axis_off()
    if shown < count:
        figure.suptitle(f"the first {shown} of {count}", fontsize=9, color=palette.LINE)
    return figure, list(boxes.flat[:shown])


def show(
    ax: Any,
    inputs: Tensor,
    limits: Limits,
    places: NDArray[np.int64] | None = None,
    map_shape: Sequence[int] | None = None,
) -> None:
    """Show inputs (k, ...) in one axes: images (C, H, W) or (H, W) in a square grid, other inputs as rows of colours.

    Rings mark ``places`` (k, 2) of a map of ``map_shape`` that lies over each image.
    """
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_color(palette.NONE)
    if inputs[0].ndim not in (2, 3):
        table = _scaled(inputs.flatten(1).cpu(), limits)
        ax.imshow(table.numpy(), aspect="auto", cmap=palette.STRENGTH, vmin=0, vmax=1)
        if table.shape[1] <= _TICKS:
            ax.set_xticks(range(table.shape[1]))
            ax.tick_params(labelsize=7, length=0)
        return
    pictures = [picture(image, limits) for image in inputs.cpu()]
    height, width = pictures[0].shape[:2]
    across = math.ceil(math.sqrt(len(pictures)))
    gap = max(1, round(_GAP * min(height, width)))
    down = -(-len(pictures) // across)
    board = np.full((down * (height + gap) - gap, across * (width + gap) - gap, 3), _GREY)
    empty = [np.ones_like(pictures[0])] * (down * across - len(pictures))
    for number, shown in enumerate([*pictures, *empty]):
        top, left = (number // across) * (height + gap), (number % across) * (width + gap)
        board[top : top + height, left : left + width] = shown
        if number < len(pictures) and places is not None and map_shape is not None and len(map_shape) == 2:
            y, x = ((place + 0.5) / size for place, size in zip(places[number], map_shape, strict=True))
            ax.plot(left + x * width - 0.5, top + y * height - 0.5, "o", mfc="none", mec=palette.MARK, ms=5, mew=1.2)
    ax.imshow(board, interpolation="nearest")


def label(ax: Any, text: str) -> None:
    """Put a small title over a box, with a dollar sign as what it is."""
    ax.set_title(text, fontsize=8, parse_math=False)


def colour_limits(rows: Tensor) -> Limits:
    """Return the lowest and the highest value of inputs (n, *shape): of each column if they are rows of a table."""
    rows = rows.cpu().double()
    return (rows.amin(dim=0), rows.amax(dim=0)) if rows.ndim == 2 else (rows.min(), rows.max())


def first_input(inputs: Any) -> Tensor:
    """Return the first tensor, where a model takes several."""
    tensor: Tensor = inputs[0] if isinstance(inputs, tuple) else inputs
    return tensor


def _scaled(values: Tensor, limits: Limits) -> Tensor:
    """Return values between 0 and 1."""
    low, high = limits
    span = torch.where(high > low, high - low, torch.ones_like(high))
    return ((values.double() - low) / span).clamp(0, 1)


def picture(image: Tensor, limits: Limits) -> NDArray[np.float64]:
    """Return an image (H, W, 3) of colours between 0 and 1; three channels are colours, others are averaged."""
    image = _scaled(image, limits)
    image = image[None] if image.ndim == 2 else image
    image = image if len(image) == 3 else image.mean(dim=0, keepdim=True).expand(3, -1, -1)
    colours: NDArray[np.float64] = image.permute(1, 2, 0).numpy()
    return colours
