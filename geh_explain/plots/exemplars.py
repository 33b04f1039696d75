"""Inputs that excite units: images side by side, or numbers as colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain.plots import palette
from geh_explain.plots.axes import shorten

if TYPE_CHECKING:
    from geh_explain.interpret.exemplars import Exemplars
    from geh_explain.interpret.maximise import Maximised

#: White lines between the images of one unit, as a share of their shorter side.
_GAP = 0.06
#: The most units that are drawn.
_MOST = 24


def draw_exemplars(found: Exemplars, labels: Any = None) -> Any:
    """Draw the exemplars of each unit in a box of its own, and return the figure."""
    readings = None if labels is None else found.reading(labels)
    inputs = first_input(found.inputs)
    titles = [
        shorten(name) if readings is None else f"{shorten(name)}\n{readings[row]}"
        for row, name in enumerate(found.names)
    ]
    figure, boxes = _boxes(len(titles))
    limits = colour_limits(inputs)
    for row, (ax, title) in enumerate(zip(boxes, titles, strict=False)):
        places = None if found.places is None else found.places[row]
        show(ax, inputs[row], limits, places, found.map_shape)
        label(ax, title)
    return figure


def draw_maximised(found: Maximised) -> Any:
    """Draw one painted input for each objective, and return the figure."""
    figure, boxes = _boxes(len(found.names))
    for row, (ax, name, score) in enumerate(zip(boxes, found.names, found.scores, strict=False)):
        show(ax, found.inputs[row : row + 1], colour_limits(found.inputs))
        label(ax, f"{shorten(name, 40)}\n{score:.3g}")
    return figure


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
    limits: tuple[float, float],
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
        ax.imshow(inputs.flatten(1).cpu().numpy(), aspect="auto", cmap=palette.SIGN, **_symmetric(limits))
        return
    pictures = [_picture(image, limits) for image in inputs.cpu().float()]
    height, width = pictures[0].shape[:2]
    across = math.ceil(math.sqrt(len(pictures)))
    gap = max(1, round(_GAP * min(height, width)))
    down = -(-len(pictures) // across)
    board = np.ones((down * (height + gap) - gap, across * (width + gap) - gap, 3))
    for number, picture in enumerate(pictures):
        top, left = (number // across) * (height + gap), (number % across) * (width + gap)
        board[top : top + height, left : left + width] = picture
        if places is not None and map_shape is not None and len(map_shape) == 2:
            y, x = ((place + 0.5) / size for place, size in zip(places[number], map_shape, strict=True))
            ax.plot(left + x * width - 0.5, top + y * height - 0.5, "o", mfc="none", mec=palette.MARK, ms=5, mew=1.2)
    ax.imshow(board, interpolation="nearest")


def label(ax: Any, text: str) -> None:
    """Put a small title over a box, with a dollar sign as what it is."""
    ax.set_title(text, fontsize=8, parse_math=False)


def colour_limits(inputs: Any) -> tuple[float, float]:
    """Return the lowest and the highest value of inputs."""
    inputs = first_input(inputs)
    return float(inputs.min()), float(inputs.max())


def first_input(inputs: Any) -> Tensor:
    """Return the first tensor, where a model takes several."""
    tensor: Tensor = inputs[0] if isinstance(inputs, tuple) else inputs
    return tensor


def _symmetric(limits: tuple[float, float]) -> dict[str, float]:
    most = max(abs(limits[0]), abs(limits[1])) or 1.0
    return {"vmin": -most, "vmax": most}


def _picture(image: Tensor, limits: tuple[float, float]) -> NDArray[np.float64]:
    """Return an image (H, W, 3) of colours between 0 and 1; one channel is drawn as ink on paper."""
    low, high = limits
    image = (image - low) / (high - low if high > low else 1.0)
    image = image[None] if image.ndim == 2 else image
    image = image if len(image) == 3 else 1 - image.mean(dim=0, keepdim=True).expand(3, -1, -1)
    picture: NDArray[np.float64] = torch.clamp(image, 0, 1).permute(1, 2, 0).double().numpy()
    return picture
