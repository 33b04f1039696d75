"""The part of a model below the layer: what it passes on, and forward passes that do not compute it again.

What is below the layer is the same in all draws and for all shifts of the units, unless something there is random or a
weight there is drawn. :func:`record_below` runs the model on a few rows and finds the tensors from below that the part
above uses: the layer's output and, for instance, the other end of a skip connection. Their values are kept for all rows
(:mod:`geh_explain.model.kept_points`), and :mod:`geh_explain.model.replay` puts them into later forward passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain.model.view import View

#: Functions that do not depend on the values of tensors: of shapes and types, besides attributes such as ``shape``, and
#: of torch's own modes.
_OF_SHAPES = {
    *("size", "dim", "ndimension", "numel", "nelement", "__len__", "is_contiguous"),
    *("is_floating_point", "is_complex", "is_signed", "element_size", "get_device", "is_inference"),
    "_set_grad_enabled",
}
#: Attributes of a tensor that are tensors.
_TENSOR_ATTRIBUTES = {"T", "mT", "H", "mH", "data", "real", "imag", "grad"}
#: Functions whose result has a shape that depends on values.
_SHAPE_OF_VALUES = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount"}
#: Difference that batches of another size may make, as a part of the largest value.
_ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-9}


class NotReplayable(BaseException):
    """The part below the layer has to be computed in each forward pass; the message says why.

    Not an Exception, so that no ``except Exception`` in a model catches it.
    """


@dataclass(frozen=True)
class Passed:
    """A tensor from below the layer that the part above uses.

    ``dim`` is its dimension of rows, in which each row has ``size`` entries. A tensor without such a dimension is the
    same for all rows; it is ``constant``.
    """

    dim: int = 0
    size: int = 1
    constant: Tensor | None = None

    def to_rows(self, tensor: Tensor) -> Tensor:
        """Return a tensor of a forward pass with one entry per row in its first dimension."""
        moved = tensor.movedim(self.dim, 0)
        return moved if self.size == 1 else moved.reshape(-1, self.size, *moved.shape[1:])

    def from_rows(self, tensor: Tensor) -> Tensor:
        """Return the tensor of a forward pass that :meth:`to_rows` was given, as a copy."""
        flat = tensor if self.size == 1 else tensor.flatten(0, 1)
        return flat.movedim(0, self.dim).clone()


@dataclass(frozen=True)
class Item:
    """A tensor in the result of a call: its shape for one row, and its number among the passed ones, if it is one.

    Sizes with ``scales`` are multiplied by the number of rows.
    """

    sizes: tuple[int, ...]
    scales: tuple[bool, ...]
    like: Tensor
    passed: int | None

    def shape(self, n_rows: int) -> tuple[int, ...]:
        """Return the shape for ``n_rows`` rows."""
        return tuple(size * n_rows if scales else size for size, scales in zip(self.sizes, self.scales, strict=True))

    def placeholder(self, n_rows: int) -> Tensor:
        """Return a tensor of this shape without values: an operation that needs them fails."""
        return torch.empty(self.shape(n_rows), dtype=self.like.dtype, device="meta")

    def stand_in(self, n_rows: int) -> Tensor:
        """Return a tensor of this shape, type and device, all of whose entries share the memory of one."""
        return self.like.expand(self.shape(n_rows))


@dataclass(frozen=True)
class Call:
    """A call below the layer: the function's name, the tensors of its result, and the sequence that holds them.

    ``sequence`` is None for a single tensor, and for a call that returns nothing.
    """

    name: str
    items: tuple[Item, ...]
    sequence: Callable[..., Any] | None


@dataclass(frozen=True)
class Below:
    """What happens below the layer in a forward pass.

    Attributes
    ----------
    calls
        The torch calls in their order, without those that only ask for a shape or a type.
    passed
        The tensors that are used above. The first one is the layer's output.
    weights
        Tensors that the calls use and that are older than the forward pass, each with its memory and number of writes.
    """

    calls: tuple[Call, ...]
    passed: tuple[Passed, ...]
    weights: tuple[tuple[Tensor, tuple[int, int]], ...]

    def holds(self, trace: BelowTrace, kept: Sequence[Tensor]) -> bool:
        """Return whether another pass is the same but for rounding; ``kept`` are the values of its rows."""
        known = {id(weight) for weight, _ in self.weights}
        if [name for name, _ in trace.calls] != [call.name for call in self.calls] or trace.used.keys() - known:
            return False
        if trace.draws_masks or any((w.data_ptr(), w._version) != before for w, before in self.weights):
            return False
        found: dict[int, Tensor] = {}
        for call, (_, result) in zip(self.calls, trace.calls, strict=True):
            for item, tensor in zip(call.items, tensors_of(result), strict=True):
                if item.passed is not None:
                    found[item.passed] = tensor
        return self.has_constants(found) and equal_up_to_rounding(self.by_row(found), kept)

    def has_constants(self, found: Mapping[int, Tensor]) -> bool:
        """Return whether the passed tensors of a pass, by their number, have the values of the constants."""
        pairs = enumerate(self.passed)
        return all(torch.equal(found[n], passed.constant) for n, passed in pairs if passed.constant is not None)

    def by_row(self, found: Mapping[int, Tensor]) -> tuple[Tensor, ...]:
        """Return the passed tensors that belong to rows, by their number in a pass, with rows in dimension 0."""
        pairs = enumerate(self.passed)
        return tuple(passed.to_rows(found[number]) for number, passed in pairs if passed.constant is None)

    def layer_output(self, kept: Sequence[Tensor]) -> Tensor:
        """Return the layer's output for rows with these ``kept`` values."""
        return self.passed[0].from_rows(kept[0])

    def tensors(self, kept: Sequence[Tensor]) -> list[Tensor]:
        """Return all passed tensors; ``kept`` are the values of some rows, those of constants excepted."""
        values = iter(kept)
        return [
            passed.from_rows(next(values)) if passed.constant is None else passed.constant.clone()
            for passed in self.passed
        ]


@dataclass
class _Masks:
    """How many random masks posteriors have applied in this process."""

    applied: int = 0


_MASKS = _Masks()


def note_mask() -> None:
    """Note that a posterior applies a random mask: what is below it differs from draw to draw.

    The values of a few rows do not show that where the entries that a mask drops happen to be 0.
    """
    _MASKS.applied += 1


class ForwardStart:
    """Knows whether the forward method of the model has begun: hooks of posteriors may make calls of their own before.

    ``inputs`` are the tensors that it was given.
    """

    def __init__(self) -> None:
        super().__init__()
        self.started = False
        self.inputs: dict[int, Tensor] = {}

    def start(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Begin; a hook of the model, the last one before its forward method."""
        self.started = True
        self.inputs = {id(tensor): tensor for tensor in tensors_of((*args, *kwargs.values()))}


class BelowTrace(ForwardStart, View):
    """Notes the torch calls of a forward pass below the layer, and which of their results the calls above use.

    As a view of a cut it covers a whole forward pass; entered as a context, one that ends at the layer. It holds all
    results, so that no identity is used twice: it is for a few rows.

    Attributes
    ----------
    calls
        Name and result of each call below the layer.
    passed
        Tensors from below that calls above use, by identity; the layer's output first.
    used, used_above
        Tensors that calls below and above the layer use, and that no call has made.
    draws_masks
        Whether random masks are applied below the layer, see :func:`note_mask`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, Any]] = []
        self.passed: dict[int, Tensor] = {}
        self.used: dict[int, Tensor] = {}
        self.used_above: dict[int, Tensor] = {}
        self._made: dict[int, Tensor] = {}
        self._made_above: dict[int, Tensor] = {}
        self._paused = False
        self._masks_before = _MASKS.applied
        self.draws_masks = False

    def start(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Begin below the layer; a hook of the model, the last one before its forward method."""
        super().start(module, args, kwargs)
        self.active = False
        self._masks_before = _MASKS.applied

    def pause(self) -> None:
        """Note nothing until :meth:`enter`, while the units are shifted."""
        self._paused = True

    def enter(self, before: tuple[Tensor, ...], after: tuple[Tensor, ...]) -> None:
        """Go on above the layer, whose output ``before`` is replaced by ``after``."""
        if not self.active:
            self.draws_masks = _MASKS.applied != self._masks_before
        super().enter(before, after)
        self._paused = False
        for tensor in before:
            self._use_above(tensor)
        self._made_above.update((id(tensor), tensor) for tensor in after)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if only_shapes(func) or self._paused or not self.started:
            return result
        made = {id(tensor): tensor for tensor in tensors_of(result)}
        arguments = tensors_of((*args, *kwargs.values()))
        if self.active:
            for tensor in arguments:
                self._use_above(tensor)
            self._made_above.update(made)
        else:
            self.calls.append((function_name(func), result))
            known = self._made.keys() | self.inputs.keys()
            self.used.update((id(tensor), tensor) for tensor in arguments if id(tensor) not in known)
            self._made.update(made)
        return result

    def _use_above(self, tensor: Tensor) -> None:
        if id(tensor) in self._made:
            self.passed[id(tensor)] = tensor
        elif id(tensor) not in self._made_above and id(tensor) not in self.inputs:
            self.used_above[id(tensor)] = tensor


def record_below(first: BelowTrace, n_first: int, second: BelowTrace, n_second: int) -> Below:
    """Return what happens below the layer, from forward passes over different numbers of rows.

    Raises
    ------
    NotReplayable
        If the calls depend on values, or if a tensor that is used above comes from elsewhere.
    """
    if [name for name, _ in first.calls] != [name for name, _ in second.calls]:
        raise NotReplayable("other functions are called for other rows")
    if first.used_above.keys() != second.used_above.keys():
        raise NotReplayable("a tensor that is used above the layer is not made by a torch function")
    pairs = [_paired(name, result, other) for (name, result), (_, other) in zip(first.calls, second.calls, strict=True)]
    by_identity = {id(one): (one, two) for of_call in pairs for one, two in of_call}
    # The layer's output first, then what is used above in either pass.
    keys = list(first.passed)
    keys += [key for key, (_, two) in by_identity.items() if id(two) in second.passed and key not in first.passed]
    if any(key not in by_identity for key in keys) or len(first.passed) != len(second.passed) or not keys:
        raise NotReplayable("the layer's output is not made by a torch function")
    numbers = {key: number for number, key in enumerate(keys)}
    shape = partial(_scaled, n_one=n_first, n_two=n_second)
    calls = [
        Call(name, tuple(_item(one, shape(one, two), n_first, numbers) for one, two in of_call), _sequence(result))
        for (name, result), of_call in zip(first.calls, pairs, strict=True)
    ]
    if _share_memory([by_identity[key][0] for key in keys], first.inputs.values()):
        raise NotReplayable("tensors share memory, so that one could be changed through another")
    passed = [_passed(*by_identity[key], shape(*by_identity[key]), n_first) for key in keys]
    if passed[0].constant is not None:
        raise NotReplayable("the layer's output does not depend on the rows")
    weights = [tensor for key, tensor in first.used.items() if key in second.used]
    return Below(tuple(calls), tuple(passed), tuple((w, (w.data_ptr(), w._version)) for w in weights))


def _share_memory(passed: Sequence[Tensor], inputs: Iterable[Tensor]) -> bool:
    """Return whether two of the passed tensors, or one of them and an input, have the same memory."""
    memory = [tensor.untyped_storage().data_ptr() for tensor in passed if tensor.numel()]
    of_inputs = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    return len(set(memory)) < len(memory) or not of_inputs.isdisjoint(memory)


def _sequence(result: Any) -> Callable[..., Any] | None:
    """Return the type of a sequence of tensors, None for anything else."""
    return type(result) if isinstance(result, (tuple, list)) else None


def _paired(name: str, result: Any, other: Any) -> list[tuple[Tensor, Tensor]]:
    """Return the tensors in two results of a call, side by side."""
    if result is None and other is None:
        return []
    if isinstance(result, Tensor) and isinstance(other, Tensor) and name not in _SHAPE_OF_VALUES:
        return [(result, other)]
    if isinstance(result, (tuple, list)) and type(result) is type(other) and len(result) == len(other):
        pairs = list(zip(result, other, strict=True))
        if all(isinstance(one, Tensor) and isinstance(two, Tensor) for one, two in pairs):
            return pairs
    raise NotReplayable(f"the result of {name} depends on values")


def _scaled(one: Tensor, two: Tensor, n_one: int, n_two: int) -> tuple[bool, ...]:
    """Return for each dimension whether it grows with the number of rows."""
    scales = tuple(size != other for size, other in zip(one.shape, two.shape, strict=False))
    sizes = [(size, other) for size, other, grows in zip(one.shape, two.shape, scales, strict=False) if grows]
    if one.ndim != two.ndim or any(size * n_two != other * n_one or size % n_one for size, other in sizes):
        raise NotReplayable("the shape of a tensor depends on values")
    return scales


def _passed(one: Tensor, two: Tensor, scales: tuple[bool, ...], n_rows: int) -> Passed:
    """Return how a passed tensor belongs to the rows; ``one`` and ``two`` are its values in two passes."""
    if not any(scales):
        if not torch.equal(one, two):
            raise NotReplayable("a tensor without a dimension of rows depends on the rows")
        return Passed(constant=one)
    if sum(scales) > 1:
        raise NotReplayable("a tensor has several dimensions of rows")
    dim = scales.index(True)
    return Passed(dim, one.shape[dim] // n_rows)


def _item(one: Tensor, scales: tuple[bool, ...], n_rows: int, numbers: dict[int, int]) -> Item:
    sizes = tuple(size // n_rows if grows else size for size, grows in zip(one.shape, scales, strict=True))
    return Item(sizes, scales, torch.empty(1, dtype=one.dtype, device=one.device), numbers.get(id(one)))


def equal_up_to_rounding(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    """Return whether tensors are equal but for the rounding that batches of another size have."""
    return all(_close(one, two) for one, two in zip(first, second, strict=True))


def _close(one: Tensor, two: Tensor) -> bool:
    if torch.equal(one, two):
        return True
    if one.shape != two.shape or one.dtype != two.dtype or not one.is_floating_point():
        return False
    return bool(((one - two).abs() <= _ROUNDING.get(one.dtype, 1e-2) * two.abs().max()).all())


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in a value, also those in tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_of(item)
    elif isinstance(value, dict):
        yield from tensors_of(tuple(value.values()))


def function_name(func: Callable[..., Any]) -> str:
    """Return the name of a torch function; that of the attribute for the access to one."""
    name = getattr(func, "__name__", "")
    return str(func.__self__.__name__) if name == "__get__" else name  # type: ignore[attr-defined]


def only_shapes(func: Callable[..., Any]) -> bool:
    """Return whether a function depends on shapes and types only, and returns no tensor."""
    if getattr(func, "__name__", "") == "__get__":
        return function_name(func) not in _TENSOR_ATTRIBUTES
    return function_name(func) in _OF_SHAPES
