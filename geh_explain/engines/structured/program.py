"""What happens above the cut, step by step, and how directions go through it.

A forward pass is recorded as steps: linear maps, which carry directions as they are, and curved ones, each of
which adds its part to the Hessian. For a network of linear maps and elementwise functions s that is

    H = sum over curved steps of J^T diag(g * s''(z)) J,

with J the Jacobian of what enters the step and g the output's gradient at what leaves it: one backward pass gives
all g, one forward pass of directions all J.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from geh_explain.model.view import View

#: Products of two directions are tabled, if they are the same for all rows, up to this many numbers.
_MOST_PRODUCTS = 2**22


#: A place is narrow if the units are this many times as many.
_NARROW = 2


class UnsupportedOp(Exception):
    """Something above the cut is no step that is known here. The message says what."""


@dataclass(frozen=True)
class Scaled:
    """A Jacobian that is diagonal: the numbers at this place are the units, each times its ``scale`` (rows or 1, D)."""

    scale: Tensor
    shape: tuple[int, ...]

    def full(self) -> Tensor:
        """Return it as a tensor (D, rows or 1, *shape)."""
        return torch.diag_embed(self.scale).transpose(0, 1).reshape(self.scale.shape[1], -1, *self.shape)


@dataclass
class Weighted:
    """Directions ``base`` (D, rows or 1, ...) that are yet to be multiplied by ``factor`` (rows, ...).

    Factors that follow each other are cheaper multiplied first, as they have no directions.
    """

    base: Tensor
    factor: Tensor | None

    def full(self) -> Tensor:
        """Return them multiplied."""
        if self.factor is not None:
            self.base, self.factor = self.base * self.factor, None
        return self.base


#: Directions at one place: (D, rows, ...), with 1 in place of the rows where all rows share them.
Jacobian = Tensor | Scaled | Weighted


def full(jacobian: Jacobian) -> Tensor:
    """Return directions as a tensor."""
    return jacobian if isinstance(jacobian, Tensor) else jacobian.full()


def shared(jacobian: Jacobian) -> bool:
    """Tell whether all rows share the directions."""
    if isinstance(jacobian, Scaled):
        return jacobian.scale.shape[0] == 1
    return isinstance(jacobian, Tensor) and jacobian.shape[1] == 1


@dataclass(frozen=True)
class Term:
    """A part of the Hessian: left^T diag(weight) right, plus its transpose where ``right`` is not ``left`` (None)."""

    left: Jacobian
    weight: Tensor
    right: Jacobian | None = None


@dataclass(frozen=True)
class Step:
    """One call of the forward pass.

    ``move`` takes directions through it. ``curve`` is there if it bends: given the gradient at the output and the
    directions that enter, it returns the step's parts of the Hessian.
    """

    sources: tuple[int, ...]
    out: int
    move: Callable[..., Jacobian]
    curve: Callable[..., list[Term]] | None = None
    edge: GradientEdge | None = None
    size: int = 0


class Recorder(View):
    """Records the steps above the cut, as another view answers them."""

    def __init__(self, inner: View) -> None:
        super().__init__()
        self.answers = inner
        self.begin()

    def begin(self) -> None:
        super().begin()
        self.answers.begin()
        self.steps: list[Step] = []
        self.entries: list[tuple[int, ...]] = []
        self.slots: dict[int, int] = {}
        self.work = 0
        # Numbers of tensors stand for them only as long as they live.
        self._alive: list[Tensor] = []
        self._count = 0

    def enter(self, before: tuple[Tensor, ...], after: tuple[Tensor, ...]) -> None:
        super().enter(before, after)
        if any(id(tensor) in self.slots for tensor in before):
            raise UnsupportedOp("a layer that is called several times")
        self.entries.append(tuple(self.new_slot(tensor) for tensor in after))

    def slot(self, value: Any) -> int | None:
        """Return the number under which a tensor is followed, None if it does not depend on the units."""
        return self.slots.get(id(value)) if isinstance(value, Tensor) else None

    def follows(self, value: Any) -> bool:
        """Tell whether a tensor, or one in a list of them, depends on the units."""
        if isinstance(value, Tensor):
            return id(value) in self.slots
        return isinstance(value, (list, tuple)) and any(self.follows(each) for each in value)

    def new_slot(self, tensor: Tensor) -> int:
        """Follow a tensor, or the new contents of one that was changed in place."""
        self._alive.append(tensor)
        self.slots[id(tensor)] = self._count
        self._count += 1
        return self._count - 1

    def note(
        self,
        sources: Sequence[Tensor],
        out: Tensor,
        move: Callable[..., Jacobian],
        curve: Callable[..., list[Term]] | None = None,
    ) -> Tensor:
        """Record that ``out`` comes from ``sources``."""
        numbers = tuple(self.slots[id(source)] for source in sources)
        if out.ndim == 0 or out.shape[0] != sources[0].shape[0]:
            raise UnsupportedOp("a call that moves or mixes the rows")
        if curve is not None and not out.requires_grad:
            curve = None
        edge = get_gradient_edge(out) if curve is not None else None
        self.steps.append(Step(numbers, self.new_slot(out), move, curve, edge, math.prod(out.shape[1:])))
        return out

    def handle(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        from geh_explain.engines.structured.rules.table import record

        if forward_ad._current_level >= 0:
            raise UnsupportedOp("a network that carries directions of its own (forward-mode derivatives)")
        if "dropout" in getattr(func, "__name__", ""):
            return record(self, func, args, kwargs)
        # Only dropout is answered by others; what is done for the record is nobody's business.
        with torch._C.DisableTorchFunction():
            return record(self, func, args, kwargs)


@dataclass(frozen=True)
class Local:
    """Local Hessians (n, d, d), at the units, or at ``via`` (d, D) linear maps of them."""

    hessians: Tensor
    via: Tensor | None


class Program:
    """The recorded steps that matter, ready to take directions through; ``slopes`` (n, D) is the gradient at ``t``."""

    def __init__(self, recorder: Recorder, value: Tensor, t: Tensor) -> None:
        if len(recorder.entries) != 1:
            raise UnsupportedOp("a layer that is called several times")
        self.entry = recorder.entries[0]
        self.rows = value.shape[0]
        curved = [step for step in recorder.steps if step.curve is not None]
        gradients: Sequence[Tensor | None] = ()
        slopes: Tensor | None = None
        if value.requires_grad:
            edges = [step.edge for step in curved if step.edge is not None]
            *gradients, slopes = torch.autograd.grad(value.sum(), [*edges, get_gradient_edge(t)], allow_unused=True)
        self.slopes = torch.zeros_like(t) if slopes is None else slopes
        self.gradients = {
            step.out: gradient for step, gradient in zip(curved, gradients, strict=True) if gradient is not None
        }
        # Backwards: a step matters if it bends, or if a later one that matters takes what it puts out.
        needed: set[int] = set()
        kept = []
        for step in reversed(recorder.steps):
            if step.out in needed or step.out in self.gradients:
                kept.append(step)
                needed.update(step.sources)
        self.steps = kept[::-1]
        self.last_use = {source: number for number, step in enumerate(self.steps) for source in step.sources}

    @property
    def width(self) -> int:
        """How many numbers per row the curved steps put out."""
        return sum(step.size for step in self.steps if step.out in self.gradients)

    @property
    def size(self) -> int:
        """How many numbers per row all steps put out."""
        return sum(step.size for step in self.steps)

    @property
    def widest(self) -> int:
        """How many numbers per row the largest step puts out."""
        return max((step.size for step in self.steps), default=1)

    @torch.no_grad()
    def run(self, basis: Sequence[Jacobian], judge: Callable[[int], None] | None = None) -> Local | None:
        """Take the units' directions ``basis``, one entry per input, through all steps; None if nothing bends.

        ``judge`` is told before the first curved step how many numbers the Hessian is taken at, if those are fewer than
        the units, else 0. It may raise.
        """
        jacobians: dict[int, Jacobian] = dict(zip(self.entry, basis, strict=True))
        hessians: Tensor | None = None
        via: Tensor | None = None
        for number, step in enumerate(self.steps):
            if hessians is None and via is None and len(jacobians) == 1:
                via = self._narrowed(jacobians, step)
            sources = [jacobians[source] for source in step.sources]
            gradient = self.gradients.get(step.out)
            if gradient is not None:
                assert step.curve is not None
                if judge is not None and hessians is None:
                    judge(0 if via is None else len(via))
                for term in step.curve(gradient, *sources):
                    hessians = _added(hessians, term, self.rows)
            for source in set(step.sources):
                if self.last_use[source] == number:
                    del jacobians[source]
            if step.out in self.last_use:
                jacobians[step.out] = step.move(*sources)
        if judge is not None and hessians is None:
            judge(0)
        return None if hessians is None else Local(hessians, via)

    def _narrowed(self, jacobians: dict[int, Jacobian], step: Step) -> Tensor | None:
        """Go on from a place that is narrower than the units and a linear map of them, as if its numbers were units.

        Returns that map (d, D), or None where there is no such place at this step.
        """
        ((slot, jacobian),) = jacobians.items()
        if not isinstance(jacobian, Tensor) or not shared(jacobian) or step.out not in self.gradients:
            return None
        units, shape = jacobian.shape[0], jacobian.shape[2:]
        if _NARROW * math.prod(shape) > units:
            return None
        jacobians[slot] = Scaled(jacobian.new_ones(1, math.prod(shape)), tuple(shape))
        return jacobian.reshape(units, -1).T.contiguous()


def _added(hessians: Tensor | None, term: Term, rows: int) -> Tensor:
    """Add one term to local Hessians (n, D, D), which may be overwritten."""
    weight = term.weight.reshape(rows, -1)
    if isinstance(term.left, Scaled) and term.right is None:
        if hessians is None:
            hessians = weight.new_zeros(rows, weight.shape[1], weight.shape[1])
        hessians.diagonal(dim1=1, dim2=2).add_(term.left.scale**2 * weight)
        return hessians
    left = term.left
    if isinstance(left, Weighted) and left.factor is not None and left.base.shape[1] == 1 and term.right is None:
        weight, left = weight * left.factor.reshape(rows, -1) ** 2, left.base
    left = full(left)
    left = left.reshape(*left.shape[:2], -1)
    right = left if term.right is None else full(term.right).reshape(len(left), -1, left.shape[2])
    units, width = left.shape[0], left.shape[2]
    if left.shape[1] == right.shape[1] == 1 and units**2 * width <= _MOST_PRODUCTS:
        products = (left[:, None, 0] * right[None, :, 0]).reshape(units**2, width)
        part = (weight @ products.T).reshape(rows, units, units)
    else:
        first, second = (left * weight).transpose(0, 1), right.expand(-1, rows, -1).permute(1, 2, 0)
        if hessians is not None and term.right is None:
            return hessians.baddbmm_(first, second)
        part = torch.bmm(first, second)
    if term.right is not None:
        part = part + part.transpose(1, 2)
    return part if hessians is None else hessians.add_(part)
