"""Record of a forward pass above the cut, as steps that directions can be pushed through."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import tree_leaves

from geh_explain.data.rows import Rows
from geh_explain.engines.structured.jacobians import Jacobian
from geh_explain.model.view import View


class UnsupportedOp(Exception):
    """Something above the cut is not supported by the structured engine. The message says what, as a noun phrase."""


@dataclass(frozen=True)
class HessianTerm:
    """One term of the local Hessians, left^T diag(weight) right, plus its transpose where ``right`` is given.

    Attributes
    ----------
    left
        Directions ``(D, n or 1, *shape)``.
    weight
        Weights ``(n, *shape)``: the output's gradient times a second derivative.
    right
        Directions ``(D, n or 1, *shape)``; None where they are ``left``.
    """

    left: Jacobian
    weight: Tensor
    right: Jacobian | None = None


@dataclass(frozen=True)
class Step:
    """One recorded call of the forward pass.

    Attributes
    ----------
    sources
        Slots of the tensors that the call takes and that depend on the units.
    out
        Slot of the tensor that it returns.
    push_forward
        Takes the Jacobians of the sources, and returns the Jacobian of ``out``.
    hessian_terms
        Takes the gradient ``(n, *shape)`` of the output at ``out`` and the Jacobians of the sources, and returns the
        step's terms of the Hessian. None for linear steps.
    edge
        Where autograd delivers the gradient at ``out``; None for linear steps.
    size
        Number of entries per row of ``out``.
    n_channels
        Number of channels of ``out``: entries of its second dimension.
    keeps_uniform
        Whether directions that are the same at all positions of a channel stay so.
    """

    sources: tuple[int, ...]
    out: int
    push_forward: Callable[..., Jacobian]
    hessian_terms: Callable[..., list[HessianTerm]] | None = None
    edge: GradientEdge | None = None
    size: int = 0
    n_channels: int = 0
    keeps_uniform: bool = False


class Recorder(View):
    """Records the torch calls above the cut that depend on the units as steps.

    Tensors that depend on the units are tracked under integer slots, as one tensor may be overwritten in place and then
    be another function of the units.

    Some calls cannot be seen here: ``autograd.Function.apply``, functions of TorchScript, transforms of ``torch.func``,
    assignments to a part of a tensor. Nothing may depend on the units behind the recorder's back, so that every tensor
    which enters a call, and the output, is examined. It must be tracked and unchanged since it was, or be a constant:
    autograd's graph must not lead from it to the units (:meth:`check_followed`).

    Parameters
    ----------
    executor
        The view that executes the calls, such as a smoothing.
    apply_rule
        Executes one call and records it, see :mod:`geh_explain.engines.structured.rules.table`. It is an argument
        because rules need the recorder.

    Attributes
    ----------
    steps
        The steps so far.
    entries
        For each crossing of the cut, the slots of the tensors that cross it.
    work
        Multiplications per row in linear maps: the cost of pushing one direction through the network.
    detaches
        Whether the network takes tensors that depend on the units for constants, by ``detach()`` or ``no_grad()``.
    """

    def __init__(self, executor: View, apply_rule: Rule) -> None:
        super().__init__()
        self.executor = executor
        self._apply_rule = apply_rule
        self.begin()

    def prepare(self, rows: Rows) -> None:
        """Prepare the view that executes the calls."""
        self.executor.prepare(rows)

    def begin(self) -> None:
        """Start a forward pass, with an empty record."""
        super().begin()
        self.executor.begin()
        self.steps: list[Step] = []
        self.entries: list[tuple[int, ...]] = []
        self.work = 0
        self.detaches = False
        self._slots: dict[int, int] = {}
        # For each tracked tensor itself, as an id is unique only as long as the tensor lives, its version, and the node
        # of autograd that computed it. Both change when the tensor is changed in place.
        self._states: dict[int, tuple[Tensor, int, Any]] = {}
        # Which nodes of autograd's graph depend on the units, as far as they were examined.
        self._depends: dict[Any, bool] = {}
        self._n_slots = 0

    def enter(self, before: tuple[Tensor, ...], after: tuple[Tensor, ...]) -> None:
        """Cross the cut: track the shifted tensors ``after``."""
        super().enter(before, after)
        if any(id(tensor) in self._slots for tensor in before):
            raise UnsupportedOp("a layer that is called several times")
        # Integers, such as ids of an embedding, are no functions of the units; they have a slot and are not tracked.
        self.entries.append(tuple(map(self._track_entry, after)))

    def is_tracked(self, value: Any) -> bool:
        """Return whether ``value`` is a tensor that depends on the units."""
        return isinstance(value, Tensor) and id(value) in self._slots

    def check_followed(self, values: Any) -> bool:
        """Return whether some of ``values``, a tensor or nested collection of them, are tracked.

        Raises
        ------
        UnsupportedOp
            If a tracked tensor was changed in place by a call that was not recorded, or if an untracked one depends on
            the units.
        """
        tensors = [value for value in tree_leaves(values) if isinstance(value, Tensor)]
        for tensor in tensors:
            if id(tensor) in self._slots:
                _, version, node = self._states[id(tensor)]
                if tensor._version != version or tensor.grad_fn is not node:
                    raise UnsupportedOp("a tensor that is changed in place")
            elif tensor.grad_fn is not None and self._depends_on_units(tensor.grad_fn):
                raise UnsupportedOp(f"a function that it cannot record ({tensor.grad_fn.name()})")
        return any(id(tensor) in self._slots for tensor in tensors)

    def _depends_on_units(self, node: Any) -> bool:
        """Return whether a node of autograd's graph leads back to the units."""
        pending = [node]
        while pending:
            current = pending[-1]
            sources = [source for source, _ in current.next_functions if source is not None]
            open_sources = [source for source in sources if source not in self._depends]
            if current not in self._depends and open_sources:
                pending += open_sources
                continue
            self._depends.setdefault(current, any(self._depends[source] for source in sources))
            pending.pop()
        return self._depends[node]

    def _track_entry(self, tensor: Tensor) -> int:
        """Return a new slot for a tensor that crosses the cut."""
        if tensor.is_floating_point():
            return self._track(tensor)
        self._n_slots += 1
        return self._n_slots - 1

    def _track(self, tensor: Tensor) -> int:
        """Return a new slot for a tensor, or for the new values of one that was changed in place."""
        self._states[id(tensor)] = tensor, tensor._version, tensor.grad_fn
        if tensor.grad_fn is not None:
            self._depends[tensor.grad_fn] = True
        self._slots[id(tensor)] = self._n_slots
        self._n_slots += 1
        return self._n_slots - 1

    def note_detached(self) -> None:
        """Note that a tensor that depends on the units is a constant from here on."""
        self.detaches = True

    def add_work(self, multiplications: int) -> None:
        """Count the multiplications per row of a linear map."""
        self.work += multiplications

    def add_step(
        self,
        sources: Sequence[Tensor],
        out: Tensor,
        push_forward: Callable[..., Jacobian],
        hessian_terms: Callable[..., list[HessianTerm]] | None = None,
        keeps_uniform: bool = False,
    ) -> Tensor:
        """Record that ``out`` was computed from ``sources``, and return it; see :class:`Step`.

        ``keeps_uniform`` says that directions which are the same at all positions of a channel stay so.

        Raises
        ------
        UnsupportedOp
            If ``out`` does not have the rows of its sources in its first dimension, or is in half precision.
        """
        slots = tuple(self._slots[id(source)] for source in sources)
        if not out.requires_grad:
            # Under torch.no_grad() in the model: a constant for autograd, and so for all further calls.
            if any(out is source for source in sources):
                raise UnsupportedOp("a tensor that is changed in place under torch.no_grad()")
            return out
        if out.ndim == 0 or out.shape[0] != sources[0].shape[0]:
            raise UnsupportedOp("a call that moves or mixes the rows")
        if out.dtype.itemsize < torch.float32.itemsize:
            raise UnsupportedOp(f"numbers in {out.dtype}, as under torch.autocast")
        edge = get_gradient_edge(out) if hessian_terms is not None else None
        size = math.prod(out.shape[1:])
        n_channels = out.shape[1] if out.ndim > 1 else 1
        slot = self._track(out)
        self.steps.append(Step(slots, slot, push_forward, hessian_terms, edge, size, n_channels, keeps_uniform))
        return out

    def handle(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Execute one torch call, and record it if it depends on the units."""
        if forward_ad._current_level >= 0:
            raise UnsupportedOp("a network that carries directions of its own (forward-mode derivatives)")
        if "dropout" in getattr(func, "__name__", ""):
            # Posteriors intercept dropout by torch functions too, to replay the masks of a draw.
            return self._apply_rule(self, func, args, kwargs)
        # What a rule calls besides is no part of the network, and must not be intercepted.
        with torch._C.DisableTorchFunction():
            return self._apply_rule(self, func, args, kwargs)


#: Executes a call of torch and records its step: takes the recorder, the function, its arguments and keywords.
Rule = Callable[[Recorder, Callable[..., Any], Sequence[Any], dict[str, Any]], Any]
