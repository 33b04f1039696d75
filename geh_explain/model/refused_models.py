"""What cannot be explained as a model, and what to pass instead."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from geh_explain.errors import GEHRuntimeError, GEHTypeError

#: Packages of torch whose modules compute with rounded numbers.
_QUANTISED = ("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized.", "torch.ao.nn.sparse.quantized.")
_MAX_REPR = 60


def check_module(module: nn.Module) -> None:
    """Raise if a module cannot be called, or has no weights yet, or computes with rounded numbers.

    Raises
    ------
    GEHTypeError
        If it has no forward pass, or was frozen or quantised.
    GEHRuntimeError
        If it has lazy layers that were never called.
    """
    if not isinstance(module, torch.jit.ScriptModule) and type(module).forward is nn.Module.forward:
        raise GEHTypeError(
            f"model: a {type(module).__name__} has no forward pass; pass the network that uses it, or "
            "posterior=Ensemble([...]) for several networks."
        )
    for name, part in module.named_modules():
        if not hasattr(part, "training"):
            raise GEHTypeError(
                "model: torch.jit.freeze has removed its modes and parameters; pass the module from before it was "
                "frozen."
            )
        if type(part).__module__.startswith(_QUANTISED):
            raise GEHTypeError(
                f"model: layer {name!r} ({type(part).__name__}) is quantised: rounded outputs have no second "
                "derivatives, and dynamic quantisation rounds each row by the range of its batch. Pass the model from "
                "before quantisation."
            )
        if any(is_lazy(tensor) for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False))):
            raise GEHRuntimeError(
                f"model: layer {name!r} ({type(part).__name__}) has no weights yet, as it was never called; call "
                "model(inputs) once, and train the model or load its weights."
            )


def short_repr(value: Any) -> str:
    """Return ``value`` as one short line."""
    if isinstance(value, (Tensor, np.ndarray)):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_REPR else f"{type(value).__name__}(...)"


def why_not_a_model(value: Any) -> str:
    """Return the error message for an argument ``model`` that is neither a module nor a callable.

    >>> why_not_a_model("net.pt").partition("; ")[2]
    'load the network first, for instance with torch.load(path, weights_only=False).'
    """
    return f"model={short_repr(value)} is neither a torch.nn.Module nor a callable nor an estimator; {_way_out(value)}"


def _way_out(value: Any) -> str:
    """Return what to pass instead of ``value``."""
    if isinstance(value, type):
        return "pass the trained network (an instance, not the class)."
    if isinstance(value, Mapping) and any(isinstance(entry, (Tensor, Mapping)) for entry in value.values()):
        nested = next((key for key, entry in value.items() if isinstance(entry, Mapping)), None)
        state = "model" if nested is None else f"model[{nested!r}]"
        return f"it looks like a state_dict: build the network and load it, net.load_state_dict({state})."
    if isinstance(value, (Tensor, np.ndarray)) or (hasattr(value, "columns") and hasattr(value, "to_numpy")):
        return "it looks like data: GEHExplainer(model).explain(inputs) takes the network first."
    if isinstance(value, (str, os.PathLike)):
        return "load the network first, for instance with torch.load(path, weights_only=False)."
    if isinstance(value, (list, tuple)):
        return "pass one network; posterior=Ensemble([...]) takes several."
    if hasattr(value, "fit"):
        return "an estimator must have predict (a search such as GridSearchCV has it with refit=True)."
    return "pass the trained network."
