"""Putting into words what a unit responds to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geh_explain.errors import GEHTypeError, GEHValueError


@dataclass(frozen=True)
class Reading:
    """The label that most of a unit's exemplars have: ``count`` of ``total``.

    >>> import geh_explain as geh
    >>> str(geh.interpret.reading(["seven", "seven", "one"]))
    'seven, 2 of 3'
    """

    label: str
    count: int
    total: int

    @property
    def share(self) -> float:
        """How many of the exemplars have the label."""
        return self.count / self.total

    def __str__(self) -> str:
        return f"{self.label}, {self.count} of {self.total}"


def reading(labels: Iterable[Any]) -> Reading:
    """Return the majority of the labels of a unit's exemplars, the strongest first; of equally many, the first.

    >>> str(reading(["7 on the left"] * 8 + ["9 on the left"]))
    '7 on the left, 8 of 9'
    """
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise GEHTypeError(f"labels={labels!r} is not a list; give one label for each exemplar.")
    given = [_text(label) for label in labels]
    if not given:
        raise GEHValueError("labels is empty; give one label for each exemplar.")
    label, count = Counter(given).most_common(1)[0]
    return Reading(label, count, len(given))


def half_blank(images: Tensor, side: str, blank: float = 0.0) -> Tensor:
    """Return images (n, C, H, 2 W) that show ``images`` (n, C, H, W), or (n, H, W), on one side, nothing on the other.

    >>> half_blank(torch.ones(1, 2, 2), "left")
    tensor([[[[1., 1., 0., 0.],
              [1., 1., 0., 0.]]]])
    """
    if not isinstance(images, Tensor) or images.ndim not in (3, 4):
        shape = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise GEHTypeError(f"images: {shape} is not understood; give a tensor (n, C, H, W) or (n, H, W).")
    if not isinstance(blank, (int, float)):
        raise GEHTypeError(f"blank={blank!r} is not a number.")
    if side not in ("left", "right"):
        raise GEHValueError(f"side={side!r} is unknown; use 'left' or 'right'.")
    images = images[:, None] if images.ndim == 3 else images
    empty = torch.full_like(images, blank)
    return torch.cat((images, empty) if side == "left" else (empty, images), dim=3)


def _text(label: Any) -> str:
    value = label.item() if isinstance(label, Tensor) else label
    return str(value)
