"""Readings: the majority label of a unit's exemplars; and candidates that show one half of an image only."""

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
    """The most frequent label among a unit's exemplars.

    Attributes
    ----------
    label
        The label, as text.
    count
        Number of exemplars with this label.
    total
        Number of exemplars.

    Examples
    --------
    >>> import geh_explain as geh
    >>> str(geh.interpret.reading(["seven", "seven", "one"]))
    'seven, 2 of 3'
    """

    label: str
    count: int
    total: int

    @property
    def share(self) -> float:
        """Share of the exemplars with this label, between 0 and 1."""
        return self.count / self.total

    def __str__(self) -> str:
        return f"{self.label}, {self.count} of {self.total}"


def reading(labels: Iterable[Any]) -> Reading:
    """Return the most frequent label.

    Parameters
    ----------
    labels
        Labels of a unit's exemplars, strongest first; compared by their text. Of equally frequent labels the one that
        occurs first is returned.

    Raises
    ------
    GEHTypeError
        If ``labels`` is a string or not iterable.
    GEHValueError
        If ``labels`` is empty.

    Examples
    --------
    >>> str(reading(["7 on the left"] * 8 + ["9 on the left"]))
    '7 on the left, 8 of 9'
    """
    # A string is iterable, but its letters are not labels.
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise GEHTypeError(f"labels={labels!r} is not a list; give one label for each exemplar.")
    texts = [_text(label) for label in labels]
    if not texts:
        raise GEHValueError("labels is empty; give one label for each exemplar.")
    label, count = Counter(texts).most_common(1)[0]
    return Reading(label, count, len(texts))


def half_blank(images: Tensor, side: str, blank: float = 0.0) -> Tensor:
    """Return images twice as wide, with the given images on one side and a constant on the other.

    Parameters
    ----------
    images
        Tensor (n, C, H, W), or (n, H, W) for one channel.
    side
        Side of the given images: ``"left"`` or ``"right"``.
    blank
        Value of the other side.

    Returns
    -------
    Tensor
        Images (n, C, H, 2 W).

    Examples
    --------
    >>> half_blank(torch.ones(1, 2, 2), "left")
    tensor([[[[1., 1., 0., 0.],
              [1., 1., 0., 0.]]]])
    """
    if not isinstance(images, Tensor) or images.ndim not in (3, 4):
        shape = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise GEHTypeError(f"images: {shape} is not supported; give a tensor (n, C, H, W) or (n, H, W).")
    if not isinstance(blank, (int, float)):
        raise GEHTypeError(f"blank={blank!r} is not a number; give the value of the blank half, such as 0.0.")
    if side not in ("left", "right"):
        raise GEHValueError(f"side={side!r} is unknown; use 'left' or 'right'.")
    images = images[:, None] if images.ndim == 3 else images
    empty = torch.full_like(images, blank)
    return torch.cat((images, empty) if side == "left" else (empty, images), dim=3)


def _text(label: Any) -> str:
    # A zero-dimensional tensor would print as "tensor(7)".
    value = label.item() if isinstance(label, Tensor) else label
    return str(value)
