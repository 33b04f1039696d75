"""Dropout masks of a draw: sampled in its first forward pass, of a single row, and replayed for all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from geh_explain.errors import GEHRuntimeError
from geh_explain.model.below import note_mask
from geh_explain.posterior.dropout_kinds import DropoutKind


@dataclass(frozen=True)
class _Recorded:
    """The masks of one dropout call."""

    #: One mask per draw, (draws, *shape) with a shape that broadcasts to that of the input.
    masks: Tensor
    #: Shape of the input in the first forward pass, of one row.
    input_shape: torch.Size


class MaskRecord:
    """The masks of one draw, or of several, in the order in which a model calls dropout.

    During the first forward pass, which has a single row, each call of :meth:`mask` samples one mask per seed. During
    later ones the k-th call returns the masks of the k-th call of the first, repeated over the rows. With several
    seeds the rows are those of the first draw, then those of the second, and so on.

    Parameters
    ----------
    seeds
        One per draw. Without seeds nothing is dropped: every mask is 1, and the record only counts calls.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        # Generators of the CPU give the same masks for a model on any device.
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._calls: list[_Recorded] = []
        self._next_call = 0
        #: Whether the first forward pass is over.
        self.complete = False

    def __len__(self) -> int:
        """Return the number of dropout calls in the first forward pass."""
        return len(self._calls)

    def begin_forward(self) -> None:
        """Start a forward pass: the next call of :meth:`mask` is its first."""
        self._next_call = 0

    def end_forward(self) -> None:
        """End a forward pass. After the first one masks are replayed."""
        self.complete = True

    def mask(self, x: Tensor, sample: Callable[[torch.Generator], Tensor]) -> Tensor:
        """Return the mask for an input ``x``, in a shape that broadcasts to that of ``x``.

        Parameters
        ----------
        x
            The input of the dropout call.
        sample
            Samples one mask for an input of one row. Only called in the first forward pass.

        Raises
        ------
        GEHRuntimeError
            If there are more calls than in the first forward pass, or if shapes differ by more than the rows.
        """
        note_mask()
        if not self.complete:
            masks = [sample(generator) for generator in self._generators] or [torch.ones(())]
            self._calls.append(_Recorded(torch.stack(masks).to(x), x.shape))
            return self._calls[-1].masks[0]
        if self._next_call >= len(self._calls):
            raise GEHRuntimeError(
                "MCDropout: the model called dropout more often than in the draw's first forward pass; its forward "
                "must not depend on the data or the batch size. posterior=PointEstimate() leaves dropout out."
            )
        recorded = self._calls[self._next_call]
        self._next_call += 1
        return _repeat_over_draws(recorded, x.shape)


def sample_mask(kind: DropoutKind, p: float, x: Tensor, generator: torch.Generator) -> Tensor:
    """Return a Bernoulli mask for an input ``x``: 0 with probability ``p``, else 1 / (1 - p).

    The mask of alpha dropout is 0 or 1; its affine map restores the scale. Dimensions of ``x`` after the first
    ``kind.mask_dims`` have length 1 in the mask.
    """
    n_dims = x.ndim if kind.mask_dims is None else kind.mask_dims
    shape = (*x.shape[:n_dims], *(1 for _ in x.shape[n_dims:]))
    # Single precision whatever the default dtype and that of x, so that the masks are the same.
    rates = torch.full(shape, 1 - p, dtype=torch.float32)
    mask = torch.bernoulli(rates, generator=generator).to(x)
    return mask if kind.alpha or p == 1 else mask / (1 - p)


def _repeat_over_draws(recorded: _Recorded, shape: torch.Size) -> Tensor:
    """Return the masks of a call for an input of ``shape``, whose rows are those of each draw in turn."""
    masks, input_shape = recorded.masks, recorded.input_shape
    n_draws = len(masks)
    if n_draws == 1:
        return _repeat_over_rows(masks[0], input_shape, shape)
    n_rows, *rest = shape
    if n_rows % n_draws:
        raise GEHRuntimeError(f"MCDropout: {n_rows} rows cannot be divided among {n_draws} draws.")
    rows_per_draw = n_rows // n_draws
    if masks.shape[1] == 1 and input_shape[1:] == shape[1:]:
        # The usual case, without a copy per draw: only the first dimension grew.
        return masks[:, 0].repeat_interleave(rows_per_draw, dim=0)
    shape_of_draw = torch.Size((rows_per_draw, *rest))
    repeated = [_repeat_over_rows(mask, input_shape, shape_of_draw) for mask in masks]
    return torch.cat([mask.expand(rows_per_draw, *(-1 for _ in rest)) for mask in repeated])


def _repeat_over_rows(mask: Tensor, input_shape: torch.Size, shape: torch.Size) -> Tensor:
    """Repeat a mask that was sampled for one row of ``input_shape`` along the dimension that grew to ``shape``.

    That need not be the first one entirely: attention has inputs (rows * heads, L, S).
    """
    if len(input_shape) != len(shape) or any(now % then for now, then in zip(shape, input_shape, strict=True)):
        raise GEHRuntimeError(
            f"MCDropout: a dropout had an input of shape {tuple(input_shape)} for one row and now has "
            f"{tuple(shape)}; rows must all have the same shape."
        )
    repeats = [now // then if size > 1 else 1 for now, then, size in zip(shape, input_shape, mask.shape, strict=True)]
    return mask if all(count == 1 for count in repeats) else mask.repeat(repeats)
