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
    """

    sources: tuple[int, ...]
    out: int
    push_forward: Callable[..., Jacobian]
    hessian_terms: Callable[..., list[HessianTerm]] | None = None
    edge: GradientEdge | None = None
    size: int = 0


class Recorder(View):
    """Records the torch calls above the cut that depend on the units as steps.

    Tensors that depend on the units are tracked under integer slots, as one tensor may be overwritten in place and then
    be another function of the units.

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
    """

    def __init__(self, executor: View, apply_rule: Rule) -> None:
        super().__init__()
        self.executor = executor
        self._apply_rule = apply_rule
        self.begin()

    def begin(self) -> None:
        """Start a forward pass, with an empty record."""
        super().begin()
        self.executor.begin()
        self.steps: list[Step] = []
        self.entries: list[tuple[int, ...]] = []
        self.work = 0
        self._slots: dict[int, int] = {}
        # The id of a tensor is unique only as long as the tensor lives.
        self._alive: list[Tensor] = []
        self._n_slots = 0

    def enter(self, before: tuple[Tensor, ...], after: tuple[Tensor, ...]) -> None:
        """Cross the cut: track the shifted tensors ``after``."""
        super().enter(before, after)
        if any(id(tensor) in self._slots for tensor in before):
            raise UnsupportedOp("a layer that is called several times")
        self.entries.append(tuple(self._track(tensor) for tensor in after))

    def is_tracked(self, value: Any) -> bool:
        """Return whether ``value`` is a tensor that depends on the units."""
        return isinstance(value, Tensor) and id(value) in self._slots

    def contains_tracked(self, value: Any) -> bool:
        """Return whether ``value`` is a tracked tensor, or a nested list or tuple with one in it."""
        if isinstance(value, Tensor):
            return id(value) in self._slots
        return isinstance(value, (list, tuple)) and any(self.contains_tracked(item) for item in value)

    def _track(self, tensor: Tensor) -> int:
        """Return a new slot for a tensor, or for the new values of one that was changed in place."""
        self._alive.append(tensor)
        self._slots[id(tensor)] = self._n_slots
        self._n_slots += 1
        return self._n_slots - 1

    def add_work(self, multiplications: int) -> None:
        """Count the multiplications per row of a linear map."""
        self.work += multiplications

    def add_step(
        self,
        sources: Sequence[Tensor],
        out: Tensor,
        push_forward: Callable[..., Jacobian],
        hessian_terms: Callable[..., list[HessianTerm]] | None = None,
    ) -> Tensor:
        """Record that ``out`` was computed from ``sources``, and return it; see :class:`Step`.

        Raises
        ------
        UnsupportedOp
            If ``out`` does not have the rows of its sources in its first dimension.
        """
        slots = tuple(self._slots[id(source)] for source in sources)
        if out.ndim == 0 or out.shape[0] != sources[0].shape[0]:
            raise UnsupportedOp("a call that moves or mixes the rows")
        # Under torch.no_grad() in the model autograd has no gradient at this step, and the step has no term.
        if hessian_terms is not None and not out.requires_grad:
            hessian_terms = None
        edge = get_gradient_edge(out) if hessian_terms is not None else None
        size = math.prod(out.shape[1:])
        self.steps.append(Step(slots, self._track(out), push_forward, hessian_terms, edge, size))
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
