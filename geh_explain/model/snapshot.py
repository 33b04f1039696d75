"""All state that a model holds, and its restoration.

A forward pass may change more than its output: batch statistics, the weights of a momentum encoder, a queue in a plain
attribute, a counter, a generator of the model's own. A :class:`Snapshot` finds and undoes such changes.
"""

from __future__ import annotations

import random
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

#: Tensors of up to this many bytes are copied at once, larger ones when they are first written to.
_COPIED_BYTES = 2**20
#: Containers that are searched and restored. Subclasses may do other things when they are written to.
_CONTAINERS = (dict, OrderedDict, defaultdict, list, set)
#: Values that are not restored where they are replaced by each other.
_PLAIN = (int, float, complex, str, bytes, type(None))
#: Tables of a module whose entries are attributes of the module.
_TABLES = ("_parameters", "_buffers", "_modules")


@dataclass
class _SavedTensor:
    """A tensor of a model, and what is needed to restore it."""

    name: str
    tensor: Tensor
    #: Shares memory with the tensor, also after the model assigns other memory to it.
    data: Tensor
    requires_grad: bool
    #: The values; None as long as none were copied.
    values: Tensor | None

    def moved(self) -> bool:
        """Return whether the tensor has other memory than before."""
        now, before = self.tensor, self.data
        return (now.data_ptr(), now.shape, now.dtype) != (before.data_ptr(), before.shape, before.dtype)

    def written(self) -> bool:
        """Return whether the values in the original memory have changed, as far as a copy of them was made."""
        return self.values is not None and not _equal(self.data, self.values)

    def restore(self) -> None:
        if self.moved():
            self.tensor.data = self.data
        if self.tensor.is_leaf and self.tensor.requires_grad != self.requires_grad:
            self.tensor.requires_grad_(self.requires_grad)
        # Only where needed: a write would raise the version counter that autograd checks.
        if self.values is not None and self.written():
            self.tensor.copy_(self.values)


class Snapshot:
    """The state of a model: attributes of its modules, contents of lists and dicts in them, tensors and generators.

    Plain numbers and strings, such as a counter of calls, are compared, but not restored.

    Modules, tensors and generators are found wherever attributes, lists, dicts, sets and tuples lead, so that buffers
    and hooks are covered, as well as a teacher network that is hidden in a list. Buffers and small tensors are copied.
    The values of larger ones are copied before the first write to them that :meth:`guarded` sees.

    Parameters
    ----------
    model
        The network. Of scripted modules only parameters and buffers are accessible.

    Examples
    --------
    >>> net = nn.Linear(2, 1)
    >>> snapshot = Snapshot(net)
    >>> net.kept = [1, 2]
    >>> net.weight.data.zero_()
    tensor([[0., 0.]])
    >>> snapshot.changes()
    ['kept', 'weight']
    >>> snapshot.restore()
    >>> snapshot.changes()
    []
    """

    def __init__(self, model: nn.Module) -> None:
        #: Classes of modules change when lazy ones get their parameters, which cannot be undone.
        self._classes: list[tuple[nn.Module, type]] = []
        #: Containers with the module that they belong to and a copy.
        self._containers: list[tuple[str, Any, Any, nn.Module]] = []
        self._tensors: list[_SavedTensor] = []
        self._generators: list[tuple[str, Any, Any]] = []
        seen: set[int] = set()
        # What is to be searched: name, value, and the module that it belongs to.
        found: list[tuple[str, Any, nn.Module]] = [("", model, model)]
        while found:
            name, value, owner = found.pop()
            if id(value) not in seen and self._save(name, value, owner):
                seen.add(id(value))
                found.extend(_inside(name, value, owner))

    def _save(self, name: str, value: Any, owner: nn.Module) -> bool:
        """Save a value if it is of a kind that has state; return whether it is."""
        if isinstance(value, Tensor):
            self._save_tensor(name, value, owner)
        elif isinstance(value, nn.Module):
            self._classes.append((value, type(value)))
        elif type(value) in _CONTAINERS:
            self._containers.append((name, value, value.copy(), owner))
        elif _state_of(value) is not None:
            self._generators.append((name, value, _state_of(value)))
        else:
            return isinstance(value, tuple)
        return True

    def _save_tensor(self, name: str, tensor: Tensor, owner: nn.Module) -> None:
        # Others are wrappers, or have no memory that could be compared.
        if tensor.layout != torch.strided or tensor.is_meta or nn.parameter.is_lazy(tensor):
            return
        is_buffer = any(tensor is buffer for buffer in owner._buffers.values())
        copied = is_buffer or tensor.nbytes <= _COPIED_BYTES
        # Tensors of torch.inference_mode() cannot be written to outside of it.
        values = tensor.detach().clone() if copied and not tensor.is_inference() else None
        self._tensors.append(_SavedTensor(name, tensor, tensor.data, tensor.requires_grad, values))

    def changes(self) -> list[str]:
        """Return the names of what differs from the snapshot, by dotted name in the model."""
        names = [saved.name for saved in self._tensors if saved.moved() or saved.written()]
        names += [name for name, generator, state in self._generators if not _same_state(_state_of(generator), state)]
        for name, container, before, _ in self._containers:
            if isinstance(container, dict):
                names += [
                    _join(name, key) for key in {**before, **container} if not _same_entry(before, container, key)
                ]
            elif not _same_items(container, before):
                names.append(name)
        return sorted(set(names))

    def restore(self) -> None:
        """Give the model the state of the snapshot."""
        replaced = {id(module) for module, kind in self._classes if type(module) is not kind}
        for _, container, before, owner in self._containers:
            if id(owner) not in replaced and not _same_items(container, before):
                _restore_items(container, before)
        with torch.no_grad():
            for saved in self._tensors:
                saved.restore()
        for _, generator, state in self._generators:
            _set_state(generator, state)

    def guarded(self) -> CallWatch:
        """Return a context that copies tensors before they are written to. Torch functions are slower inside."""
        return CallWatch([saved for saved in self._tensors if saved.values is None])


class CallWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches the torch operations of one thread.

    Copies the values of tensors before an operation writes to their memory, also through ``.data``, and notes whether
    any operation draws from the global generators.
    """

    def __init__(self, tensors: Sequence[_SavedTensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        #: Whether an operation has drawn from the global generators of torch.
        self.draws = False
        self._written: set[int] = set()
        self._by_memory: dict[int, list[_SavedTensor]] = {}
        for saved in tensors:
            self._by_memory.setdefault(_memory(saved.data), []).append(saved)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise the first call imports torch's compiler, which takes more than a second.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags and kwargs.get("generator") is None:
            self.draws = True
        for position, name in _written_arguments(func):
            value = args[position] if position < len(args) else kwargs.get(name)
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(tensor, Tensor):
                    self._copy(tensor)
        return func(*args, **kwargs)

    def has_written(self, tensor: Tensor) -> bool:
        """Return whether an operation has written to the memory of a tensor."""
        return _memory(tensor) in self._written

    def _copy(self, tensor: Tensor) -> None:
        if tensor.layout == torch.strided:
            self._written.add(_memory(tensor))
            for saved in self._by_memory.pop(_memory(tensor), ()):
                with torch._C.DisableTorchFunction():
                    saved.values = saved.data.clone()


@cache
def _written_arguments(func: Callable[..., Any]) -> tuple[tuple[int, str], ...]:
    """Return positions and names of the arguments that a torch operation writes to."""
    arguments = func._schema.arguments  # type: ignore[attr-defined]
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _memory(tensor: Tensor) -> int:
    # Not seen by function modes, some of which note the calls of a model.
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage().data_ptr()


def _inside(name: str, value: Any, owner: nn.Module) -> Iterator[tuple[str, Any, nn.Module]]:
    """Yield name, value and module of everything directly inside of a value."""
    if isinstance(value, torch.jit.ScriptModule):
        for part, tensor in [*value.named_parameters(), *value.named_buffers()]:
            yield _join(name, part), tensor, value
    elif isinstance(value, nn.Module):
        yield name, value.__dict__, value
    elif isinstance(value, dict):
        for key, entry in value.items():
            is_table = value is owner.__dict__ and key in _TABLES
            yield name if is_table else _join(name, key), entry, owner
    elif type(value) in _CONTAINERS or isinstance(value, tuple):
        for number, entry in enumerate(value):
            yield _join(name, number), entry, owner


def _join(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)


def _restore_items(container: Any, before: Any) -> None:
    """Give a container the objects that it had before; numbers and strings stay, as counters of calls do."""
    if isinstance(container, dict):
        kept = {key: value for key, value in container.items() if isinstance(value, _PLAIN)}
        restored = {key: value for key, value in before.items() if not isinstance(value, _PLAIN) or key not in kept}
        # In the order of before; entries that are new come last.
        entries = {**before, **kept, **restored}
        container.clear()
        container.update(entries)
    elif any(not isinstance(value, _PLAIN) for value in (*before, *container)):
        container.clear()
        if isinstance(container, list):
            container.extend(before)
        else:
            container.update(before)


def _same_entry(before: dict[Any, Any], now: dict[Any, Any], key: Any) -> bool:
    return key in before and key in now and before[key] is now[key]


def _same_items(container: Any, before: Any) -> bool:
    """Return whether a container holds the same objects as before, in the same order."""
    if isinstance(container, set):
        return bool(container == before)
    if len(container) != len(before):
        return False
    if isinstance(container, dict):
        pairs = zip(container.items(), before.items(), strict=True)
        return all(key is old_key and value is old_value for (key, value), (old_key, old_value) in pairs)
    return all(value is old for value, old in zip(container, before, strict=True))


def _equal(tensor: Tensor, values: Tensor) -> bool:
    """Return whether two tensors agree in all values, where NaN agrees with NaN."""
    return torch.equal(tensor, values) or (
        tensor.is_floating_point() and torch.allclose(tensor, values, rtol=0, atol=0, equal_nan=True)
    )


def _state_of(generator: Any) -> Any:
    """Return the state of a random generator, None for anything else."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.getstate() if isinstance(generator, random.Random) else None


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


def _same_state(state: Any, other: Any) -> bool:
    # Arrays and tensors inside of states have no common comparison.
    return repr(_listed(state)) == repr(_listed(other))


def _listed(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _listed(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, (Tensor, np.ndarray)) else state
