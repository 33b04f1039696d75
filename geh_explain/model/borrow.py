"""Borrow a model, and hand it back untouched."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import RLock
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from geh_explain.errors import GEHRuntimeError, GEHTypeError

_HALF = (torch.float16, torch.bfloat16)
#: One borrower at a time: modes, generators and backends belong to the whole process.
_ALONE = RLock()


class CallableModel(nn.Module):
    """A plain callable with the manners of a module, so that the rest of the house sees modules only."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def as_module(model: Any) -> nn.Module:
    """Return ``model`` if it is a module, else a module that calls it."""
    if isinstance(model, nn.Module):
        # What torch.compile wraps has the same weights, and calls that can be seen.
        return getattr(model, "_orig_mod", model)
    owner = getattr(model, "__self__", None)
    if isinstance(owner, nn.Module) and getattr(model, "__name__", "") in ("forward", "__call__"):
        return owner
    if callable(model) and not isinstance(model, type):
        return CallableModel(model)
    raise GEHTypeError(
        f"model={model!r} is neither a torch.nn.Module nor a callable; pass the trained network"
        + (" (an instance, not the class)." if isinstance(model, type) else ".")
    )


def device_and_dtype(model: nn.Module) -> tuple[torch.device | None, torch.dtype | None]:
    """Return where the model's first floating-point parameter or buffer lives, and its precision."""
    tensors = [*model.parameters(), *model.buffers()]
    if any(tensor.is_meta for tensor in tensors):
        raise GEHRuntimeError(
            "model: some of its parameters or buffers are on the meta device and have no values; load its weights, "
            "with load_state_dict(..., assign=True)."
        )
    if any(tensor.is_inference() for tensor in tensors):
        raise GEHRuntimeError(
            "model: some of its parameters or buffers were made under torch.inference_mode() and can never be "
            "differentiated; build or load the model outside of it."
        )
    kinds = ((tensor.device, tensor.dtype) for tensor in tensors if tensor.is_floating_point())
    device, dtype = next(kinds, (None, None))
    return device, torch.float32 if dtype in _HALF else dtype


def half_precision(model: nn.Module) -> torch.dtype | None:
    """Return the half precision that the model is in, if it is."""
    return next((parameter.dtype for parameter in model.parameters() if parameter.dtype in _HALF), None)


@contextmanager
def borrow(model: nn.Module) -> Iterator[None]:
    """Hold the model in eval mode, and give it and the global generators back as they were.

    Inside, gradients are on and autocast is off, whatever the caller's mode; half precision is single precision, as
    second derivatives have no digits to spare; and attention uses kernels that have second derivatives. Threads wait
    for one another.
    """
    with _ALONE:
        yield from _borrowed(model)


def _borrowed(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    wants_grad = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    open_modules = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
    tables = [(module, dict(module._buffers)) for module in open_modules]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    halves = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.dtype in _HALF]
    saved = [tensor.data for tensor in halves]
    fast_path, cudnn = torch.backends.mha.get_fastpath_enabled(), torch.backends.cudnn.enabled
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        # cuDNN's recurrent kernels cannot be differentiated twice; its convolutions can.
        torch.backends.cudnn.enabled = cudnn and not any(isinstance(module, nn.RNNBase) for module, _ in modes)
        for module, _ in modes:
            module.training = False
        for tensor in halves:
            tensor.data = tensor.data.float()
        with (
            global_generators(),
            torch.inference_mode(False),
            torch.enable_grad(),
            sdpa_kernel(SDPBackend.MATH),
            torch.autocast("cpu", enabled=False),
            torch.autocast("cuda", enabled=False) if torch.cuda.is_available() else nullcontext(),
        ):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        torch.backends.cudnn.enabled = cudnn
        for module, training in modes:
            module.training = training
        for tensor, data in zip(halves, saved, strict=True):
            tensor.data = data
        for parameter, requires_grad in wants_grad:
            if parameter.requires_grad != requires_grad:
                parameter.requires_grad_(requires_grad)
        for module, table in tables:
            module._buffers.clear()
            module._buffers.update(table)
        with torch.no_grad():
            for buffer, value in buffers:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


@contextmanager
def global_generators() -> Iterator[None]:
    """Give the global random generators back as they were."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    cpu, of_numpy, of_python = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        np.random.set_state(of_numpy)
        random.setstate(of_python)
