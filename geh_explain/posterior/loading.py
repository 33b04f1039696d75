"""Load sampled weights into a model, and restore its own weights afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain._process import safe_contextmanager
from geh_explain.errors import GEHTypeError, GEHValueError

#: Tensors by name, as ``nn.Module.state_dict()`` returns them. May hold some of the entries only.
StateDict = Mapping[str, Tensor]

#: Number of the model's entries that an error message lists.
_MAX_LISTED = 6


@safe_contextmanager
def load_weights(model: nn.Module, sample: StateDict, draw: int, source: str) -> Iterator[None]:
    """Give the model the weights of ``sample`` inside the context.

    Parameters
    ----------
    model
        The network. Entries that ``sample`` does not hold stay as they are.
    sample
        Parameters and buffers by name. They are copied to the model's device and precision.
    draw
        Number of the draw, for error messages.
    source
        Name of the posterior, for error messages.

    Raises
    ------
    GEHTypeError
        If ``sample`` is not a state dict, or empty.
    GEHValueError
        If the model has no entry of that name, or one of another shape, or if values are not finite.
    """
    tensors = _tensors_by_name(model)
    _check_entries(sample, tensors, draw, source)
    # Exchanging the storage, instead of copying values into it, restores exactly the same memory. The sample is copied,
    # because a forward pass may change its buffers.
    saved = {name: tensors[name].data for name in sample}
    loaded = {name: value.detach().to(tensors[name], copy=True) for name, value in sample.items()}
    _check_finite(loaded, draw, source)
    try:
        for name, value in loaded.items():
            tensors[name].data = value
        yield
    finally:
        for name, value in saved.items():
            tensors[name].data = value


def check_sample(model: nn.Module, sample: Any, draw: int, source: str) -> None:
    """Raise for a sample that :func:`load_weights` would refuse; its arguments are those of that function."""
    tensors = _tensors_by_name(model)
    _check_entries(sample, tensors, draw, source)
    _check_finite({name: value.detach().to(tensors[name]) for name, value in sample.items()}, draw, source)


def _tensors_by_name(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a model, tied ones under each of their names as in a state dict."""
    tensors: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    tensors.update(model.named_buffers(remove_duplicate=False))
    return tensors


def _check_entries(sample: Any, tensors: Mapping[str, Tensor], draw: int, source: str) -> None:
    """Refuse a sample whose entries are not tensors, or do not fit the model's ``tensors``."""
    if not isinstance(sample, Mapping) or not sample:
        raise GEHTypeError(
            f"{source}: sample {draw} is {'empty' if sample == {} else f'a {type(sample).__name__}'}; each must be a "
            "non-empty state dict."
        )
    for name, value in sample.items():
        if name not in tensors:
            raise GEHValueError(
                f"{source}: sample {draw} has the entry {name!r}, which the model does not have; its entries are "
                f"{list(tensors)[:_MAX_LISTED]}{' ...' if len(tensors) > _MAX_LISTED else ''}. Strip prefixes such as "
                "'module.'."
            )
        if not isinstance(value, Tensor):
            raise GEHTypeError(
                f"{source}: entry {name!r} of sample {draw} is a {type(value).__name__}; entries must be tensors."
            )
        if value.shape != tensors[name].shape:
            raise GEHValueError(
                f"{source}: entry {name!r} of sample {draw} has shape {tuple(value.shape)}, but the model's entry has "
                f"shape {tuple(tensors[name].shape)}."
            )


def _check_finite(loaded: StateDict, draw: int, source: str) -> None:
    """Refuse NaN and infinite values, also those that overflowed in the model's precision."""
    for name, value in loaded.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise GEHValueError(
                f"{source}: entry {name!r} of sample {draw} has NaN or infinite values as {value.dtype}."
            )
