"""All state that a model holds, and its restoration.

A forward pass may change more than its output: batch statistics, the weights of a momentum encoder, a queue in a plain
attribute, an object with moving averages, a generator of the model's own. A :class:`Snapshot` finds and undoes such
changes.
"""

from __future__ import annotations

import torch
from torch import nn

from geh_explain.model.call_watch import CallWatch
from geh_explain.model.object_graph import Holder, Kind, Part, walk
from geh_explain.model.saved_state import (
    SavedArray,
    SavedGenerator,
    SavedItems,
    SavedSlots,
    SavedSparse,
    SavedState,
    SavedTensor,
)

#: Tensors of up to this many bytes are copied at once, larger ones when they are first written to.
_COPIED_BYTES = 2**20
#: Layouts of sparse tensors.
_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
#: Bytes of NumPy arrays that are copied, together.
_ARRAY_BYTES = 2**26


class Snapshot:
    """The state of a model: attributes, contents of containers, tensors with their gradients, arrays and generators.

    They are found wherever attributes, containers, objects and functions lead, within the bounds of
    :func:`~geh_explain.model.object_graph.walk`, so that hooks are covered, as well as a teacher network that is hidden
    in a list, the shadow weights of an object for moving averages, or the network behind a function. Buffers and small
    tensors are copied. The values of larger ones are copied before the first write to them that :meth:`guarded` sees.
    NumPy arrays are copied up to 64 MB in total, further ones are left out.

    Numbers and strings in attributes, lists and dicts of a module are restored only together with other state that this
    module leads to: the number of updates belongs to a moving average, while a counter of calls counts on.

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
        #: Containers in attributes of modules, with the module.
        self._containers: list[tuple[SavedItems, nn.Module]] = []
        self._tensors: list[tuple[SavedTensor, nn.Module]] = []
        #: Everything else, and what is in objects that are no modules.
        self._others: list[tuple[SavedState, nn.Module]] = []
        #: The module that leads to each module.
        self._owners: dict[int, nn.Module] = {}
        self._room = _ARRAY_BYTES
        for part in walk(model, model):
            self._save(part)

    def _save(self, part: Part) -> None:
        """Save one part of the model, by its kind."""
        name, value, module, holder, kind = part
        if kind is Kind.TENSOR:
            self._save_tensor(part)
        elif kind is Kind.MODULE:
            self._classes.append((value, type(value)))
            self._owners.setdefault(id(value), module)
        elif kind is Kind.CONTAINER:
            saved = self._containers if holder is Holder.MODULE else self._others
            saved.append((SavedItems(name, value), module))
        elif kind is Kind.OBJECT:
            self._others.append((SavedSlots(name, value), module))
        elif kind is Kind.GENERATOR:
            self._others.append((SavedGenerator(name, value), module))
        elif kind is Kind.ARRAY and value.nbytes <= self._room:
            self._room -= value.nbytes
            self._others.append((SavedArray(name, value), module))

    def _save_tensor(self, part: Part) -> None:
        """Save a tensor: small ones and buffers with their values, others by their version."""
        tensor = part.value
        # Others are wrappers, or have no memory that could be compared.
        if tensor.is_meta or nn.parameter.is_lazy(tensor) or tensor.is_nested:
            return
        if tensor.layout in _SPARSE and not tensor.is_inference():
            self._others.append((SavedSparse(part.name, tensor), part.module))
        if tensor.layout != torch.strided:
            return
        is_buffer = any(tensor is buffer for buffer in part.module._buffers.values())
        copied = is_buffer or tensor.nbytes <= _COPIED_BYTES
        self._tensors.append((SavedTensor.of(part.name, tensor, copied), part.module))

    def changes(self) -> list[str]:
        """Return the names of what differs from the snapshot, by dotted name in the model."""
        saved: list[tuple[SavedState, nn.Module]] = [*self._tensors, *self._others, *self._containers]
        return sorted({name for state, _ in saved for name in state.changes()})

    def restore(self) -> None:
        """Give the model the state of the snapshot."""
        replaced = {id(module) for module, kind in self._classes if type(module) is not kind}
        containers = [(items, module) for items, module in self._containers if id(module) not in replaced]
        # Modules in which more has changed than numbers and strings.
        changed = {id(module) for items, module in containers if items.restore(counts=False)}
        with torch.no_grad():
            changed |= {id(module) for tensor, module in self._tensors if tensor.restore()}
        changed |= {id(module) for state, module in self._others if state.restore()}
        leads_to_change = self._with_owners(changed)
        for items, module in containers:
            if id(module) in leads_to_change:
                items.restore()

    def _with_owners(self, modules: set[int]) -> set[int]:
        """Return the ids of modules, and of those that lead to them."""
        found, pending = set(modules), list(modules)
        while pending:
            owner = self._owners.get(pending.pop())
            if owner is not None and id(owner) not in found:
                found.add(id(owner))
                pending.append(id(owner))
        return found

    def guarded(self) -> CallWatch:
        """Return a context that copies tensors before they are written to. Torch functions are slower inside."""
        return CallWatch([saved for saved, _ in self._tensors if saved.values is None])
