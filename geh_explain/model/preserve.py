"""Use a user's model and restore everything about it afterwards, whatever happens in between.

Explaining changes the modes of modules, the precision of parameters, whatever a forward pass writes to, the backends of
torch and the global random generators. Each of these has its own context below; :func:`preserved` enters all of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock, active_count
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from geh_explain._process import (
    OwnGenerators,
    SafeContext,
    draws_are_redirected,
    raise_waiting_interrupt,
    safe_contextmanager,
)
from geh_explain.errors import GEHRuntimeError, GEHTypeError
from geh_explain.model.callable_model import CallableModel as CallableModel
from geh_explain.model.estimators import find_estimator
from geh_explain.model.known_layers import has_known_layers
from geh_explain.model.refused_models import check_module, why_not_a_model
from geh_explain.model.snapshot import Snapshot

#: Types with fewer digits than single precision; torch has no derivatives in 8 bits.
_SMALL_DTYPES = (
    *(torch.float16, torch.bfloat16),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
)
#: Modes, generators and backends belong to the whole process, so one thread at a time may change them.
_LOCK = RLock()


def _forget_other_threads() -> None:
    """Replace the lock in a forked process if another thread held it: that thread does not exist there."""
    global _LOCK
    if _LOCK.acquire(blocking=False):
        _LOCK.release()
    else:
        _LOCK = RLock()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)

#: Seed of the generators from which a model draws. A model that seeds them itself, with 0 for instance, changes them.
_UNUSUAL_SEED = 0x5EED_6E11
#: How often a thread that waits for the lock looks for Ctrl-C.
_POLL_SECONDS = 0.1
#: Number of forward passes that are watched, for one number of rows, if none of them is complete.
_WATCHED_PASSES = 4


def as_module(model: Any) -> nn.Module:
    """Return ``model`` if it is a module, the owner of a bound ``forward``, or a module that calls a callable.

    Estimators of scikit-learn, and others with the same methods, are modules that call one of these.
    A model from ``torch.compile`` is unwrapped: hooks and function modes do not reach into compiled code, and the
    original module has the same weights.

    >>> net = nn.Linear(2, 1)
    >>> as_module(net) is net, as_module(net.forward) is net, type(as_module(torch.sin)).__name__
    (True, True, 'CallableModel')
    """
    # With the owner of a bound method its layers and dropout can be found.
    owner = getattr(model, "__self__", None)
    if isinstance(owner, nn.Module) and getattr(model, "__name__", "") in ("forward", "__call__"):
        model = owner
    if isinstance(model, nn.Module):
        module: nn.Module = getattr(model, "_orig_mod", model)
        check_module(module)
        return module
    estimator = find_estimator(model)
    if estimator is not None:
        check_module(estimator)
        return estimator
    if callable(model) and not isinstance(model, type):
        return CallableModel(model)
    raise GEHTypeError(why_not_a_model(model))


def device_and_dtype(model: nn.Module) -> tuple[torch.device | None, torch.dtype | None]:
    """Return the device and precision in which inputs must be passed to the model inside :func:`preserved`.

    These are those of its first floating-point parameter or buffer, single precision at least; both are None if
    the model has no such tensor.

    Raises
    ------
    GEHRuntimeError
        If a tensor of the model is on the meta device, or was made under ``torch.inference_mode()``.
    """
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
    floating = ((tensor.device, tensor.dtype) for tensor in tensors if tensor.is_floating_point())
    device, dtype = next(floating, (None, None))
    return device, torch.float32 if dtype in _SMALL_DTYPES else dtype


def half_precision(model: nn.Module) -> torch.dtype | None:
    """Return the dtype of the first parameter in half precision or less, None if the model has none."""
    return next((parameter.dtype for parameter in model.parameters() if parameter.dtype in _SMALL_DTYPES), None)


@safe_contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
    """Hold the model in eval mode, with twice differentiable kernels; restore it and the global state on exit.

    Inside the context gradients are enabled, autocast is off and nothing is compiled, whatever the caller's mode.
    Half-precision parameters and buffers are single precision, as second derivatives lose too many digits otherwise. On
    exit everything that the model holds (:class:`~geh_explain.model.snapshot.Snapshot`), modes, backends and the global
    random generators are as before, also after an exception or Ctrl-C. Other threads wait at the entry.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).train()
    >>> with preserved(net):
    ...     print(net.training)
    False
    >>> net.training
    True
    """
    with (
        _alone(),
        _uncompiled(),
        _restored(model),
        _eval_mode(model),
        _twice_differentiable_kernels(model),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False) if torch.cuda.is_available() else nullcontext(),
    ):
        _to_single_precision(model)
        yield


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other thread is inside of the context; Ctrl-C ends the waiting."""
    lock = _LOCK
    while not lock.acquire(timeout=_POLL_SECONDS):
        raise_waiting_interrupt()
    try:
        yield
    finally:
        lock.release()


def _uncompiled() -> AbstractContextManager[Any]:
    """Run modules that torch.compile has compiled, in place or within others, as they are written.

    Function modes and hooks do not reach into compiled code. Without dynamo nothing was compiled.
    """
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


@contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    """Restore all state that the model holds on exit; the model does not draw from the global generators inside."""
    snapshot = Snapshot(model)
    # The method of a scripted module cannot be replaced.
    namespace = {} if isinstance(model, torch.jit.ScriptModule) else vars(model)
    before = namespace.get("forward")
    try:
        namespace["forward"] = _WatchedForward(model, snapshot, has_known_layers(model))
        yield
    finally:
        # Here already: the snapshot would take it for a change by the model.
        if before is None:
            namespace.pop("forward", None)
        else:
            namespace["forward"] = before
        snapshot.restore()


class _WatchedForward:
    """The forward method of a model, which is watched for writes and draws of random numbers.

    The first complete pass is watched, and the first one of each larger number of rows: models may do other things for
    large batches. Passes that end early, at a layer, are watched too, a few of them. Random numbers come from
    generators of the watch's own, unless a posterior has such generators in place. If a watched pass draws none, later
    ones run without these. A model with known layers is not watched: it writes to nothing and draws no numbers.
    """

    def __init__(self, model: nn.Module, snapshot: Snapshot, known: bool) -> None:
        self._forward = model.forward
        #: Whether the model had known layers when the context was entered.
        self.known = known
        self._snapshot = snapshot
        # Other threads must not get the same numbers from each object.
        self._generators = OwnGenerators(seed=_UNUSUAL_SEED if active_count() == 1 else None)
        #: Largest number of rows of a pass that was watched, by whether a posterior had its generators in place.
        self._n_rows = {True: -1, False: -1}
        #: Number of incomplete passes that were watched since then.
        self._n_incomplete = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.known:
            return self._forward(*args, **kwargs)
        tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.ndim)
        n_rows = next((len(tensor) for tensor in tensors), 0)
        redirected = draws_are_redirected()
        watched = n_rows > self._n_rows[redirected]
        with_torch = watched or self._generators.torch.drew
        with_others = watched or self._generators.others.drew
        own = (with_torch or with_others) and not redirected
        with self._generators.active(with_torch=with_torch, with_others=with_others) if own else nullcontext():
            if not watched:
                return self._forward(*args, **kwargs)
            self._n_incomplete += 1
            if self._n_incomplete == _WATCHED_PASSES:
                self._n_rows[redirected], self._n_incomplete = n_rows, 0
            with SafeContext(self._snapshot.guarded()):
                out = self._forward(*args, **kwargs)
            self._n_rows[redirected], self._n_incomplete = n_rows, 0
            return out


def had_known_layers(model: nn.Module) -> bool:
    """Return whether a model has known layers; within :func:`preserved` whether it had them at the entry."""
    forward = None if isinstance(model, torch.jit.ScriptModule) else vars(model).get("forward")
    return forward.known if isinstance(forward, _WatchedForward) else has_known_layers(model)


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    """Put every module into eval mode, and restore each one's own mode on exit.

    The attribute is set directly: ``eval()`` and ``train()`` may be overridden, and set the modules inside too.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, training in modes:
            module.training = training


def _to_single_precision(model: nn.Module) -> None:
    """Convert parameters and buffers in half precision or less to single precision."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dtype in _SMALL_DTYPES:
            tensor.data = tensor.data.float()


class _PlainCall:
    """Takes the place of torch's function for reentrant checkpoints: calls the checkpointed function."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        """Return ``function(*args)``."""
        return function(*args)


def _no_checkpoint(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Take the place of torch's generator for checkpoints, which does its work before and after the function's call."""
    yield


@contextmanager
def _without_activation_checkpoints() -> Iterator[None]:
    """Compute checkpointed parts of a model once, as if ``torch.utils.checkpoint`` were not there.

    It saves memory by computing a part again in the backward pass. There, smoothed functions, masks of dropout and
    shifts of units would be missing. The names that are replaced are those behind the public function, which models
    import by name.
    """
    names = {"CheckpointFunction": _PlainCall, "_checkpoint_without_reentrant_generator": _no_checkpoint}
    before = {name: getattr(torch.utils.checkpoint, name) for name in names if hasattr(torch.utils.checkpoint, name)}
    try:
        for name in before:
            setattr(torch.utils.checkpoint, name, names[name])
        yield
    finally:
        for name, function in before.items():
            setattr(torch.utils.checkpoint, name, function)


@contextmanager
def _twice_differentiable_kernels(model: nn.Module) -> Iterator[None]:
    """Choose kernels that have second derivatives, and restore the choice on exit."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    cudnn = torch.backends.cudnn.enabled
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        # The recurrent kernels of cuDNN cannot be differentiated twice; its convolutions can.
        has_rnn = any(isinstance(module, nn.RNNBase) for module in model.modules())
        torch.backends.cudnn.enabled = cudnn and not has_rnn
        with sdpa_kernel(SDPBackend.MATH), _without_activation_checkpoints():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        torch.backends.cudnn.enabled = cudnn
