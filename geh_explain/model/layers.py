"""Which layer is explained: found by name or module, and the tensor among what it puts out."""

from __future__ import annotations

import copy
import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from geh_explain._validation import check_int
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.model.borrow import CallableModel

#: Layers that put out what they are for first, and states or weights after it.
_FIRST_OF_SEVERAL = (nn.RNNBase, nn.MultiheadAttention)


@dataclass(frozen=True)
class Layer:
    """A layer that needs more than a name.

    ``pick`` chooses a tensor from a layer that puts out several: an index, a key or an attribute, or a tuple of
    them. ``call`` chooses one call of a layer that is called several times in a forward (0 is the first); None
    moves its units in all calls together.

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
    """Where the model is cut: ``module`` None stands for the inputs."""

    name: str = ""
    module: nn.Module | None = None
    pick: tuple[Any, ...] | None = None
    call: int | None = None

    @property
    def place(self) -> str:
        """Where the units are, in words: ``"the inputs"`` or ``"layer 'conv2'"``."""
        return "the inputs" if self.module is None else f"layer {self.name!r}"

    def tensor(self, out: Any) -> Tensor:
        """Return the tensor among what the layer puts out."""
        for key in self._path(out):
            out = _get(out, key, self.name)
        if not isinstance(out, Tensor):
            raise GEHTypeError(
                f"layer={self.name!r} puts out {_kind(out)} there, not a tensor. Its tensors: "
                f"{_listed(out)}. Choose one with layer=Layer({self.name!r}, pick=...)."
            )
        return out

    def replaced(self, out: Any, tensor: Tensor) -> Any:
        """Return what the layer puts out, with another tensor in the chosen place."""
        return _replace(out, self._path(out), tensor)

    def _path(self, out: Any) -> tuple[Any, ...]:
        if self.pick is not None or isinstance(out, Tensor):
            return self.pick or ()
        if isinstance(self.module, _FIRST_OF_SEVERAL):
            return (0,)
        tensors = [path for path, value in _tensors(out) if value.is_floating_point()]
        if len(tensors) == 1:
            return tensors[0]
        raise GEHTypeError(
            f"layer={self.name!r} puts out {_kind(out)} with {len(tensors)} tensors: {_listed(out)}. Choose one with "
            f"layer=Layer({self.name!r}, pick={tensors[0][0] if tensors and len(tensors[0]) == 1 else '...'!r})."
        )


def find_layer(model: nn.Module, layer: str | nn.Module | Layer | None) -> LayerRef:
    """Find ``layer`` in the model; None stands for the inputs."""
    if layer is None:
        return LayerRef()
    if isinstance(layer, Layer):
        site = find_layer(model, layer.layer)
        pick = None if layer.pick is None else layer.pick if isinstance(layer.pick, tuple) else (layer.pick,)
        return LayerRef(site.name, site.module, pick, None if layer.call is None else check_int("call", layer.call, 0))
    if isinstance(model, CallableModel):
        raise GEHTypeError(
            f"layer={layer!r} needs a torch.nn.Module, but model is a plain callable, which has no layers; pass the "
            "module itself and put what the callable does into output=."
        )
    modules = dict(model.named_modules())
    if isinstance(layer, nn.Module):
        for name, module in modules.items():
            if module is layer:
                return LayerRef(name or "(model)", module)
        raise GEHValueError(
            f"layer={type(layer).__name__}(...) is not part of the model; pass one of its own modules or a dotted name."
        )
    if not isinstance(layer, str):
        raise GEHTypeError(f"layer={layer!r} is a {type(layer).__name__}; pass a dotted name, a module or a Layer.")
    if layer in modules and layer:
        return LayerRef(layer, modules[layer])
    names = [name for name in modules if name]
    close = difflib.get_close_matches(layer, names, n=3, cutoff=0.5) or names[:8]
    raise GEHValueError(
        f"layer={layer!r} is not in the model; "
        + (f"did you mean {' or '.join(map(repr, close))}?" if close else "it has no named layers.")
        + " dict(model.named_modules()) lists them all."
    )


def _entries(out: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the entries of a container by the key they are picked with."""
    if isinstance(out, Mapping):
        yield from out.items()
    elif isinstance(out, (tuple, list)):
        yield from enumerate(out)
    elif dataclasses.is_dataclass(out):
        yield from ((field.name, getattr(out, field.name)) for field in dataclasses.fields(out))


def _tensors(out: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Tensor]]:
    if isinstance(out, Tensor):
        yield path, out
    for key, value in _entries(out):
        yield from _tensors(value, (*path, key))


def tensors_in(out: Any) -> list[Tensor]:
    """Return all tensors in what a module puts out, however it is packed."""
    return [tensor for _, tensor in _tensors(out)]


def _listed(out: Any) -> str:
    found = [f"{path[0] if len(path) == 1 else path!r}: {tuple(value.shape)}" for path, value in _tensors(out)]
    return ", ".join(found) or "none"


def _kind(out: Any) -> str:
    return f"a {type(out).__name__}"


def _get(out: Any, key: Any, name: str) -> Any:
    for known, value in _entries(out):
        if known == key:
            return value
    raise GEHValueError(
        f"layer={name!r} puts out {_kind(out)} without {key!r}; pick one of its tensors: {_listed(out)}."
    )


def _replace(out: Any, path: tuple[Any, ...], tensor: Tensor) -> Any:
    if not path:
        return tensor
    key, rest = path[0], path[1:]
    new = _replace(_get(out, key, ""), rest, tensor)
    if isinstance(out, tuple):
        parts = [new if number == key else value for number, value in enumerate(out)]
        return type(out)(*parts) if hasattr(out, "_fields") else tuple(parts)
    changed = copy.copy(out)
    if isinstance(changed, (list, Mapping)):
        changed[key] = new  # type: ignore[index]
    else:
        object.__setattr__(changed, key, new)
    return changed
