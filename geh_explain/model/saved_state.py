"""One piece of a model's state each: what it was, whether it has changed, and its restoration."""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

#: Containers whose contents are state; subclasses too, through the methods of these.
CONTAINERS = (dict, list, set, deque)
GENERATORS = (torch.Generator, np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random)
#: Values without parts.
PLAIN = (int, float, complex, str, bytes, type(None))


class SavedState(Protocol):
    """A piece of state at the moment at which it was saved."""

    def changes(self) -> Iterator[str]:
        """Yield the names of what differs now."""
        ...

    def restore(self) -> bool:
        """Restore it where it differs; return whether it did."""
        ...


@dataclass
class SavedTensor:
    """A tensor: its memory, values, gradient, and whether it requires one."""

    name: str
    tensor: Tensor
    #: Shares memory with the tensor, also after the model assigns other memory to it.
    data: Tensor
    requires_grad: bool
    grad: Tensor | None
    #: The values; None as long as none were copied.
    values: Tensor | None

    @classmethod
    def of(cls, name: str, tensor: Tensor, copied: bool) -> SavedTensor:
        """Save a tensor, with a copy of its values if ``copied``."""
        # Tensors of torch.inference_mode() cannot be written to outside of it.
        values = tensor.detach().clone() if copied and not tensor.is_inference() else None
        return cls(name, tensor, tensor.data, tensor.requires_grad, gradient(tensor), values)

    def changes(self) -> Iterator[str]:
        """Yield the names of what differs from the saved state."""
        if self._moved() or self._written():
            yield self.name
        if gradient(self.tensor) is not self.grad:
            yield f"{self.name}.grad"

    def restore(self) -> bool:
        """Write back what differs, and return whether anything did."""
        tensor = self.tensor
        moved = self._moved()
        if moved:
            tensor.data = self.data
        if tensor.is_leaf and tensor.requires_grad != self.requires_grad:
            tensor.requires_grad_(self.requires_grad)
        # Only where needed: a write would raise the version counter that autograd checks.
        written = self._written()
        if written:
            tensor.copy_(self.values)  # type: ignore[arg-type]
        regraded = gradient(tensor) is not self.grad
        if regraded:
            tensor.grad = self.grad
        return moved or written or regraded

    def _moved(self) -> bool:
        """Return whether the tensor has other memory than before."""
        now, before = self.tensor, self.data
        return (now.data_ptr(), now.shape, now.dtype) != (before.data_ptr(), before.shape, before.dtype)

    def _written(self) -> bool:
        """Return whether the values in the original memory have changed, as far as a copy of them was made."""
        return self.values is not None and not _equal(self.data, self.values)


def gradient(tensor: Tensor) -> Tensor | None:
    """Return the gradient of a leaf; torch warns where that of another tensor is read."""
    return tensor.grad if tensor.is_leaf else None


def _equal(tensor: Tensor, values: Tensor) -> bool:
    """Return whether two tensors agree in all values, where NaN agrees with NaN."""
    return torch.equal(tensor, values) or (
        tensor.is_floating_point() and torch.allclose(tensor, values, rtol=0, atol=0, equal_nan=True)
    )


class SavedSparse:
    """The entries of a sparse tensor, in coordinates or in compressed form."""

    def __init__(self, name: str, tensor: Tensor) -> None:
        self._name, self._tensor, self._values = name, tensor, tensor.detach().clone()

    def changes(self) -> Iterator[str]:
        """Yield the names of what differs from the saved state."""
        now, before = (_entries(tensor) for tensor in (self._tensor, self._values))
        if any(one.shape != two.shape or not _equal(one, two) for one, two in zip(now, before, strict=True)):
            yield self._name

    def restore(self) -> bool:
        """Write back what differs, and return whether anything did."""
        changed = any(self.changes())
        if changed:
            with torch.no_grad():
                self._tensor.copy_(self._values)
        return changed


def _entries(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of a sparse tensor and one kind of their indices, without a copy."""
    tensor = tensor.detach()
    if tensor.layout == torch.sparse_coo:
        return tensor._values(), tensor._indices()
    by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    return tensor.values(), tensor.col_indices() if by_row else tensor.row_indices()


class SavedArray:
    """The entries of a NumPy array, compared by their bytes: those of objects are their addresses."""

    def __init__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        self._name, self._array, self._values = name, array, array.copy()

    def changes(self) -> Iterator[str]:
        """Yield the names of what differs from the saved state."""
        if self._array.shape != self._values.shape or self._array.tobytes() != self._values.tobytes():
            yield self._name

    def restore(self) -> bool:
        """Write back what differs, and return whether anything did."""
        changed = any(self.changes())
        if changed and self._array.flags.writeable and self._array.shape == self._values.shape:
            self._array[...] = self._values
        return changed


class SavedGenerator:
    """The state of a random generator of torch, NumPy or Python."""

    def __init__(self, name: str, generator: Any) -> None:
        self._name, self._generator, self._state = name, generator, _state_of(generator)

    def changes(self) -> Iterator[str]:
        """Yield the names of what differs from the saved state."""
        # Arrays and tensors inside of states have no common comparison.
        if repr(_listed(_state_of(self._generator))) != repr(_listed(self._state)):
            yield self._name

    def restore(self) -> bool:
        """Write back what differs, and return whether anything did."""
        generator = self._generator
        if not any(self.changes()):
            return False
        if isinstance(generator, np.random.Generator):
            generator.bit_generator.state = self._state
        elif isinstance(generator, np.random.BitGenerator):
            generator.state = self._state
        elif isinstance(generator, random.Random):
            generator.setstate(self._state)
        else:
            generator.set_state(self._state)
        return True


def _state_of(generator: Any) -> Any:
    """Return the state of a random generator."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.BitGenerator):
        return generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.getstate()


def _listed(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _listed(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, (Tensor, np.ndarray)) else state


class SavedItems:
    """The contents of a dict, list, set or deque, by identity of the entries.

    Parameters
    ----------
    name
        Name of the container in the model.
    container
        The container. The namespace of an object is a dict too.
    """

    __slots__ = ("_before", "_container", "_name")

    def __init__(self, name: str, container: Any) -> None:
        self._name, self._container, self._before = name, container, contents(container)

    def changes(self) -> Iterator[str]:
        """Yield the names of what differs from the saved state."""
        now, before = contents(self._container), self._before
        if isinstance(now, dict):
            for key in {**before, **now}:
                if key not in before or key not in now or not _same(now[key], before[key]):
                    yield join(self._name, key)
        elif not _same_contents(now, before):
            yield self._name

    def restore(self, *, counts: bool = True) -> bool:
        """Restore the contents; without ``counts`` numbers and strings that replaced each other stay as they are."""
        now, before, container = contents(self._container), self._before, self._container
        if _same_contents(now, before):
            return False
        if isinstance(now, dict):
            return _fill_dict(container, now, before if counts else {**before, **_counted(now, before)})
        if not counts and all(map(_is_count, (*before, *now))):
            return False
        if isinstance(container, list):
            list.__setitem__(container, slice(None), before)
        elif isinstance(container, set):
            set.clear(container)
            set.update(container, before)
        else:
            deque.clear(container)
            deque.extend(container, before)
        return True


def _is_count(value: Any) -> bool:
    """Return whether a value may be a counter or a log; booleans are flags, which belong to other state."""
    return isinstance(value, PLAIN) and not isinstance(value, bool)


def _counted(now: dict[Any, Any], before: dict[Any, Any]) -> dict[Any, Any]:
    """Return the entries that are counts, and are new or were counts before."""
    return {
        key: value for key, value in now.items() if _is_count(value) and (key not in before or _is_count(before[key]))
    }


class SavedSlots:
    """The attributes of an object that are in slots; ``__setattr__`` of its class is not called."""

    def __init__(self, name: str, owner: Any) -> None:
        self._name, self._owner = name, owner
        self._before = slot_values(owner)

    def changes(self) -> Iterator[str]:
        """Yield the names of what differs from the saved state."""
        now = slot_values(self._owner)
        for descriptor in {**self._before, **now}:
            if not self._is_same(descriptor, now):
                yield join(self._name, descriptor.__name__)

    def restore(self) -> bool:
        """Write back what differs, and return whether anything did."""
        now = slot_values(self._owner)
        changed = [descriptor for descriptor in {**self._before, **now} if not self._is_same(descriptor, now)]
        for descriptor in changed:
            if descriptor in self._before:
                descriptor.__set__(self._owner, self._before[descriptor])
            else:
                descriptor.__delete__(self._owner)
        return bool(changed)

    def _is_same(self, descriptor: Any, now: dict[Any, Any]) -> bool:
        return descriptor in self._before and descriptor in now and _same(now[descriptor], self._before[descriptor])


def slot_values(owner: Any) -> dict[Any, Any]:
    """Return the values in the slots of an object by their descriptors, without those that are not set."""
    values = {}
    for kind in type(owner).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            # Names of private attributes hold that of the class.
            mangled = f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") and name[-2:] != "__" else name
            descriptor: Any = kind.__dict__.get(mangled)
            if type(descriptor) is _MEMBER_DESCRIPTOR:
                try:
                    values[descriptor] = descriptor.__get__(owner)
                except AttributeError:
                    continue
    return values


class _Slotted:
    __slots__ = ("slot",)


_MEMBER_DESCRIPTOR = type(_Slotted.__dict__["slot"])


def contents(container: Any) -> Any:
    """Return the contents of a container as a dict, list or set of its own."""
    if isinstance(container, OrderedDict):
        return dict(OrderedDict.items(container))
    if isinstance(container, dict):
        return dict(dict.items(container))
    if isinstance(container, set):
        return set(set.__iter__(container))
    return list(list.__iter__(container) if isinstance(container, list) else deque.__iter__(container))


def size(container: Any) -> int:
    """Return the number of entries of a container."""
    base = next(base for base in CONTAINERS if isinstance(container, base))
    return base.__len__(container)


def join(name: str, key: Any) -> str:
    """Return the dotted name of an entry; keys that are no plain values are given by their type."""
    part = str(key) if isinstance(key, PLAIN) else type(key).__name__
    return f"{name}.{part}" if name else part


def _fill_dict(container: Any, now: dict[Any, Any], entries: dict[Any, Any]) -> bool:
    """Give a dict the entries, in their order; return whether that changed any."""
    kind = OrderedDict if isinstance(container, OrderedDict) else dict
    changed = False
    if len(now) != len(entries) or any(key is not other for key, other in zip(now, entries, strict=True)):
        kind.clear(container)
        now, changed = {}, True
    for key, value in entries.items():
        if key not in now or now[key] is not value:
            kind.__setitem__(container, key, value)
            changed = True
    return changed


def _same(value: Any, before: Any) -> bool:
    return value is before or (type(value) is type(before) and type(value) in PLAIN and bool(value == before))


def _same_contents(now: Any, before: Any) -> bool:
    """Return whether a container holds the same objects as before, in the same order."""
    if isinstance(now, set):
        return bool(now == before)
    if len(now) != len(before):
        return False
    if isinstance(now, dict):
        pairs = zip(now.items(), before.items(), strict=True)
        return all(key is old_key and _same(value, old) for (key, value), (old_key, old) in pairs)
    return all(map(_same, now, before))
