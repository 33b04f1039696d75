"""The layer to explain: found by name or module, and the tensor among its outputs."""

from __future__ import annotations

import copy
import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain._validation import check_int
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.model.preserve import CallableModel

#: Layers that return a tuple whose first entry is their output; states or attention weights follow.
_FIRST_IS_OUTPUT = (nn.RNNBase, nn.MultiheadAttention)


@dataclass(frozen=True)
class Layer:
    """A layer that needs more than a name: one that returns several tensors, or is called several times.

    Parameters
    ----------
    layer
        Dotted name or module.
    pick
        The tensor to explain among what the layer returns: an index, key or attribute, or a tuple of them for nested
        containers. None if there is only one floating-point tensor.
    call
        Which of the layer's calls in a forward pass to explain; 0 is the first. None shifts its units in all calls
        together.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> class Tagger(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.lstm = torch.nn.LSTM(3, 4, batch_first=True)
    ...     def forward(self, x):
    ...         return self.lstm(x)[0][:, -1].exp().sum(1).log()
    >>> explainer = geh.GEHExplainer(Tagger(), geh.Layer("lstm", pick=0), posterior=geh.posterior.PointEstimate())
    >>> explainer.explain(torch.randn(20, 5, 3), groups=1, progress=False).names
    ['lstm[0]', 'lstm[1]', 'lstm[2]', 'lstm[3]']
    """

    layer: str | nn.Module
    pick: Any = None
    call: int | None = None


@dataclass(frozen=True)
class LayerRef:
    """A layer of a given model: the place at which the model is cut.

    Attributes
    ----------
    name
        Dotted name in the model; empty at the inputs.
    module
        The layer; None at the inputs.
    pick
        Path to the tensor inside what the layer returns; None if it must be found.
    call
        Which call of the layer is meant; None for all of them.
    """

    name: str = ""
    module: nn.Module | None = None
    pick: tuple[Any, ...] | None = None
    call: int | None = None

    @property
    def place(self) -> str:
        """Where the units are, in words: ``"the inputs"`` or ``"layer 'conv2'"``."""
        return "the inputs" if self.module is None else f"layer {self.name!r}"

    def tensor(self, out: Any) -> Tensor:
        """Return the tensor to explain inside ``out``, what the layer returned.

        >>> import torch
        >>> LayerRef("lstm", pick=(1, "h")).tensor((torch.zeros(2), {"h": torch.ones(3)}))
        tensor([1., 1., 1.])
        """
        for key in self._path(out):
            out = _entry(out, key, self.name)
        if not isinstance(out, Tensor):
            raise GEHTypeError(
                f"layer={self.name!r} returns {_kind(out)} there, not a tensor. Its tensors: "
                f"{_list_tensors(out)}. Choose one with layer=Layer({self.name!r}, pick=...)."
            )
        return out

    def replaced(self, out: Any, tensor: Tensor) -> Any:
        """Return a copy of ``out`` with ``tensor`` in the place of the tensor to explain."""
        return _replace(out, self._path(out), tensor)

    def _path(self, out: Any) -> tuple[Any, ...]:
        """Return the keys that lead to the tensor to explain; empty if ``out`` is that tensor."""
        if self.pick is not None or isinstance(out, Tensor):
            return self.pick or ()
        if isinstance(self.module, _FIRST_IS_OUTPUT):
            return (0,)
        paths = [path for path, tensor in _walk_tensors(out) if tensor.is_floating_point()]
        if len(paths) == 1:
            return paths[0]
        example = paths[0][0] if paths and len(paths[0]) == 1 else "..."
        raise GEHTypeError(
            f"layer={self.name!r} returns {_kind(out)} with {len(paths)} tensors: {_list_tensors(out)}. Choose one "
            f"with layer=Layer({self.name!r}, pick={example!r})."
        )


def find_layer(model: nn.Module, layer: str | nn.Module | Layer | None) -> LayerRef:
    """Return the place of ``layer`` in the model; None is the inputs.

    Raises
    ------
    GEHValueError
        If the model has no such layer. The message suggests names that are close to a misspelt one.
    GEHTypeError
        If ``layer`` is of another type, or the model is a plain callable, which has no layers.

    Examples
    --------
    >>> find_layer(nn.Sequential(nn.Linear(2, 3), nn.Tanh()), "1").module
    Tanh()
    """
    if layer is None:
        return LayerRef()
    if isinstance(layer, Layer):
        layer_ref = find_layer(model, layer.layer)
        pick = layer.pick if layer.pick is None or isinstance(layer.pick, tuple) else (layer.pick,)
        call = None if layer.call is None else check_int("call", layer.call, 0)
        return dataclasses.replace(layer_ref, pick=pick, call=call)
    if isinstance(model, CallableModel):
        raise GEHTypeError(
            f"layer={layer!r} needs a torch.nn.Module, but model is a plain callable, which has no layers; pass the "
            "module itself and put what the callable does into output=."
        )
    modules = dict(model.named_modules())
    _refuse_scripted(model, layer, layer if isinstance(layer, nn.Module) else modules.get(str(layer)))
    if isinstance(layer, nn.Module):
        for name, module in modules.items():
            if module is layer:
                # The name of the whole model is empty, which means the inputs here.
                return LayerRef(name or "(model)", module)
        raise GEHValueError(
            f"layer={type(layer).__name__}(...) is not part of the model; pass one of its own modules or a dotted name."
        )
    if not isinstance(layer, str):
        raise GEHTypeError(f"layer={layer!r} is a {type(layer).__name__}; pass a dotted name, a module or a Layer.")
    if layer in modules and layer:
        return LayerRef(layer, modules[layer])
    names = [name for name in modules if name]
    suggestions = difflib.get_close_matches(layer, names, n=3, cutoff=0.5) or names[:8]
    raise GEHValueError(
        f"layer={layer!r} is not in the model; "
        + (f"did you mean {' or '.join(map(repr, suggestions))}?" if suggestions else "it has no named layers.")
        + " dict(model.named_modules()) lists them all."
    )


def _refuse_scripted(model: nn.Module, layer: Any, module: nn.Module | None) -> None:
    """Raise if the module of ``layer`` is compiled code of TorchScript, whose output cannot be replaced."""
    if not isinstance(module, torch.jit.ScriptModule) or isinstance(module, torch.jit._trace.TopLevelTracedModule):
        return
    raise GEHTypeError(
        f"layer={layer if isinstance(layer, str) else type(layer).__name__!r} is part of a scripted or traced module, "
        "whose layers cannot be explained; pass the model from before torch.jit.script or torch.jit.trace, or explain "
        "the inputs (layer=None)."
    )


def tensors_in(out: Any) -> list[Tensor]:
    """Return all tensors in nested tuples, lists, mappings and dataclasses, depth first."""
    return [tensor for _, tensor in _walk_tensors(out)]


def _walk_tensors(out: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Tensor]]:
    """Yield (path, tensor) for all tensors inside ``out``, depth first."""
    if isinstance(out, Tensor):
        yield path, out
    for key, value in _entries(out):
        yield from _walk_tensors(value, (*path, key))


def _entries(out: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (key, value) for the entries of a container; the key of a dataclass field is its name."""
    if isinstance(out, Mapping):
        yield from out.items()
    elif isinstance(out, (tuple, list)):
        yield from enumerate(out)
    elif dataclasses.is_dataclass(out):
        yield from ((field.name, getattr(out, field.name)) for field in dataclasses.fields(out))


def _entry(out: Any, key: Any, name: str) -> Any:
    """Return one entry of a container, or raise with the entries of the layer ``name`` that exist."""
    for candidate, value in _entries(out):
        if candidate == key:
            return value
    raise GEHValueError(
        f"layer={name!r} returns {_kind(out)} without {key!r}; pick one of its tensors: {_list_tensors(out)}."
    )


def _replace(out: Any, path: tuple[Any, ...], tensor: Tensor) -> Any:
    """Return a copy of ``out`` with ``tensor`` at ``path``; containers off the path are shared."""
    if not path:
        return tensor
    key, rest = path[0], path[1:]
    entry = _replace(_entry(out, key, ""), rest, tensor)
    if isinstance(out, tuple):
        entries = [entry if index == key else value for index, value in enumerate(out)]
        # Named tuples take their entries one by one.
        return type(out)(*entries) if hasattr(out, "_fields") else tuple(entries)
    changed = copy.copy(out)
    if isinstance(changed, (list, Mapping)):
        changed[key] = entry  # type: ignore[index]
    else:
        # Plain setattr raises for frozen dataclasses.
        object.__setattr__(changed, key, entry)
    return changed


def _list_tensors(out: Any) -> str:
    """Return the tensors inside ``out`` as "path: shape, ...", for messages."""
    tensors = [f"{path[0] if len(path) == 1 else path!r}: {tuple(value.shape)}" for path, value in _walk_tensors(out)]
    return ", ".join(tensors) or "none"


def _kind(out: Any) -> str:
    return f"a {type(out).__name__}"
