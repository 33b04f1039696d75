"""TODO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class ForwardArgs:
    """What comes beside the inputs: the target, then further arguments. Some have one entry per row."""

    values: tuple[Any, ...]
    per_row: tuple[bool, ...]
    keywords: tuple[str, ...]

    @classmethod
    def of(cls, target: Any, extra: Mapping[str, Any] | tuple[Any, ...], rows: int) -> ForwardArgs:
        """Decide what belongs to the rows: lists, arrays and tensors as long as all the data (as in Captum)."""
        keywords = tuple(extra) if isinstance(extra, Mapping) else ()
        values = (target, *(extra.values() if isinstance(extra, Mapping) else extra))
        return cls(values, tuple(_length(value) == rows for value in values), keywords)

    def __getitem__(self, rows: slice) -> ForwardArgs:
        cut = (value[rows] if each else value for value, each in zip(self.values, self.per_row, strict=True))
        return replace(self, values=tuple(cut))

    def repeat(self, times: int) -> ForwardArgs:
        """Return the same for the rows several times over."""
        pairs = zip(self.values, self.per_row, strict=True)
        return replace(self, values=tuple(_repeat(value, times) if each else value for value, each in pairs))

    def backwards(self) -> ForwardArgs:
        """Return the same for the rows in reverse order."""
        pairs = zip(self.values, self.per_row, strict=True)
        return replace(self, values=tuple(_reverse(value) if each else value for value, each in pairs))


def _reverse(value: Any) -> Any:
    return value.flip(0) if isinstance(value, Tensor) else value[::-1]


def _repeat(value: Any, times: int) -> Any:
    if isinstance(value, Tensor):
        return torch.cat([value] * times)
    return np.concatenate([value] * times) if isinstance(value, np.ndarray) else value * times


def _length(value: Any) -> int | None:
    if isinstance(value, (Tensor, np.ndarray)):
        return len(value) if value.ndim else None
    return len(value) if isinstance(value, list) else None
