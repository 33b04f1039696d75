"""TODO."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from geh_explain.data.forward_args import ForwardArgs


@dataclass(frozen=True)
class Rows:
    """Some consecutive rows: what the model is called with, and which output is asked of each."""

    inputs: tuple[Tensor, ...]
    beside: ForwardArgs
    start: int = 0
    names: tuple[str, ...] = ()
    times: int = 1

    def __len__(self) -> int:
        return self.inputs[0].shape[0]

    def number(self, row: int) -> int:
        """Return which of all points stands in a row."""
        return self.start + row % (len(self) // self.times)

    def __getitem__(self, rows: slice) -> Rows:
        """Return a part of these rows, with everything that belongs to a row cut alike."""
        start = self.start + rows.indices(len(self))[0]
        return replace(self, inputs=tuple(x[rows] for x in self.inputs), beside=self.beside[rows], start=start)

    def repeat(self, times: int) -> Rows:
        """Return these rows several times over, all of them and then all of them again."""
        inputs = tuple(torch.cat([x] * times) for x in self.inputs)
        return replace(self, inputs=inputs, beside=self.beside.repeat(times), times=self.times * times)

    def backwards(self) -> Rows:
        """Return these rows in reverse order."""
        return replace(self, inputs=tuple(x.flip(0) for x in self.inputs), beside=self.beside.backwards())

    @property
    def extra(self) -> tuple[Any, ...]:
        """Further arguments of the model."""
        return self.beside.values[1:]

    @property
    def target(self) -> Any:
        """Which output is asked for."""
        return self.beside.values[0]

    def split(self, size: int) -> Iterator[Rows]:
        """Yield these rows in pieces of at most ``size``."""
        for start in range(0, len(self), size):
            yield self[start : start + size]
