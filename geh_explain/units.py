"""What one unit is: a set of directions in the space of the inputs or of a layer's output.

A unit set is a linear map from shifts ``t`` of shape (n, D), one number per row and unit, to a tensor
of the layer's shape that is added to the layer's output. The Hessian in ``t`` at 0 is B^T H B, with
the units' directions as the columns of B; engines see ``t`` only.

To write one, subclass :class:`Units` and say how many units a shape has and what a shift adds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geh_explain.errors import GEHTypeError, GEHValueError, whole
from geh_explain.layout import Shape, channels_first

__all__ = ["Channels", "FeatureGroups", "Heads", "Neurons", "Patches", "Subset", "Tokens", "Units"]


class Units(ABC):
    """A set of directions. ``shape`` is always the shape of one row, without the batch dimension.

    >>> import torch, geh_explain as geh
    >>> class Halves(geh.units.Units):  # the first and the second half of the features
    ...     def count(self, shape):
    ...         return 2
    ...     def shift(self, t, shape):
    ...         return t.repeat_interleave(shape[0] // 2, dim=1)
    >>> one = geh.posterior.PointEstimate()
    >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 3], units=Halves(), posterior=one)
    >>> float(explainer.explain(torch.randn(20, 4), groups=1, progress=False).geh.mean[0, 1].round(4))
    1.0
    """

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Units:
        """Return this unit set made definite for one layer (``module`` is None at the inputs)."""
        return self

    @abstractmethod
    def count(self, shape: Shape) -> int:
        """Return the number of units D."""

    @abstractmethod
    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        """Map shifts (n, D) to what is added to the layer, ``(n, *shape)`` or broadcastable to it."""

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        """Return one name per unit; ``columns`` are the names of the inputs' columns, if they have any."""
        return [f"{prefix}{i}" if prefix == "x" else f"{prefix}[{i}]" for i in range(self.count(shape))]

    def values(self, activations: Tensor) -> Tensor:
        """Read the units' values (n, D) off a layer's output: the mean over each unit's members.

        These are the least-squares coordinates (B^T B)^-1 B^T a for units that do not overlap.
        """
        shape = tuple(activations.shape[1:])
        with torch.enable_grad():
            t = activations.new_zeros(len(activations), self.count(shape), requires_grad=True)
            moved = self.shift(t, shape).expand_as(activations)
            (sums,) = torch.autograd.grad(moved, t, activations.detach(), retain_graph=True)
            # B maps a vector of ones to the weight of each coordinate, so B^T B 1 is the squared norm.
            (norms,) = torch.autograd.grad(moved, t, self.shift(torch.ones_like(t), shape).expand_as(activations))
        return sums / norms.clamp_min(torch.finfo(norms.dtype).tiny)

    def members(self, activations: Tensor) -> Tensor:
        """Read the numbers that each unit moves off a layer's output, (n, D, m).

        Unless a unit set knows better, m is all of the layer, and what a unit does not move is -inf.
        """
        shape = tuple(activations.shape[1:])
        t = torch.eye(self.count(shape), device=activations.device, dtype=activations.dtype)
        moved = self.shift(t, shape).expand(len(t), *shape).flatten(1) != 0
        return activations.flatten(1)[:, None].masked_fill(~moved, -math.inf)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Neurons(Units):
    """Every number of the layer is a unit of its own (at the inputs: every feature or pixel).

    >>> Neurons().count((3, 4))
    12
    """

    def count(self, shape: Shape) -> int:
        return math.prod(shape)

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        return t.reshape(-1, *shape)

    def members(self, activations: Tensor) -> Tensor:
        return activations.flatten(1)[:, :, None]

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        if len(shape) < 2:
            return list(columns) if columns is not None else super().names(shape, prefix)
        return [f"{prefix}[{','.join(map(str, index))}]" for index in np.ndindex(*shape)]


class Channels(Units):
    """A whole feature map moves together: one unit per channel.

    ``dim`` is the channel dimension of the layer's output, counted with the batch dimension (1 for
    convolutions, -1 for channels-last layers). None decides by what the layer is made of, or its neighbours if it
    is a bare activation, and takes 1 for images and -1 for sequences where nothing tells, with a warning.

    >>> Channels(dim=1).count((16, 7, 7))
    16
    """

    def __init__(self, dim: int | None = None) -> None:
        if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int)):
            raise GEHTypeError(f"Channels(dim={dim!r}): give the number of a dimension, such as 1 or -1, or None.")
        self.dim = dim

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Channels:
        if self.dim is None:
            return Channels(1 if len(shape) == 1 or channels_first(shape, module) else -1)
        rank = len(shape) + 1
        if not (1 <= self.dim < rank or -rank < self.dim <= -1):
            raise GEHValueError(
                f"units=Channels(dim={self.dim}): the layer's output has {rank} dimensions, batch included; "
                f"take 1 to {rank - 1}, or a negative one down to {1 - rank}."
            )
        return self

    def axis(self, shape: Shape) -> int:
        dim = 1 if self.dim is None else self.dim
        return dim - 1 if dim > 0 else len(shape) + dim

    def count(self, shape: Shape) -> int:
        return shape[self.axis(shape)]

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        axis = self.axis(shape)
        return t.reshape(len(t), *(shape[axis] if i == axis else 1 for i in range(len(shape))))

    def members(self, activations: Tensor) -> Tensor:
        moved = activations.movedim(self.axis(tuple(activations.shape[1:])) + 1, 1)
        return moved.reshape(*moved.shape[:2], -1)

    def __repr__(self) -> str:
        return "Channels()" if self.dim is None else f"Channels(dim={self.dim})"


class Patches(Units):
    """Squares of an image, or of feature maps, that brighten together: all channels of ``size`` x ``size`` pixels.

    ``channels_last`` says that a row is (H, W, C) and not (C, H, W). Patches at the far edges may be smaller.

    >>> Patches(7).count((1, 28, 56))
    32
    """

    def __init__(self, size: int | tuple[int, int], *, channels_last: bool = False) -> None:
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        self.size = (whole("size", height, 1), whole("size", width, 1))
        self.channels_last = channels_last

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Patches:
        if len(shape) not in (2, 3):
            raise GEHValueError(
                f"units=Patches(...): one row has shape {shape}, which is no image; it needs (C, H, W) or (H, W)."
            )
        return self

    def _grid(self, shape: Shape) -> tuple[int, int]:
        height, width = self._image(shape)
        return -(-height // self.size[0]), -(-width // self.size[1])

    def _image(self, shape: Shape) -> tuple[int, int]:
        return (shape[0], shape[1]) if self.channels_last or len(shape) == 2 else (shape[1], shape[2])

    def count(self, shape: Shape) -> int:
        return math.prod(self._grid(shape))

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        rows, columns = self._grid(shape)
        height, width = self._image(shape)
        image = t.reshape(len(t), rows, columns)
        image = image.repeat_interleave(self.size[0], 1)[:, :height].repeat_interleave(self.size[1], 2)[:, :, :width]
        if len(shape) == 2:
            return image
        return image.unsqueeze(-1 if self.channels_last else 1)

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        down, across = self._grid(shape)
        return [f"{prefix}[{row},{column}]" for row in range(down) for column in range(across)]

    def __repr__(self) -> str:
        return f"Patches({self.size}{', channels_last=True' if self.channels_last else ''})"


class Tokens(Units):
    """Positions of a sequence: all features of one token move together, in layers (N, L, C).

    They move by the same amount, which is one direction among many: in a wide embedding it need not mean anything.
    Where words are what matters, explain an embedding of few numbers, or by differences from word to word.

    >>> Tokens().count((12, 64))
    12
    """

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Tokens:
        if len(shape) != 2:
            raise GEHValueError(
                f"units=Tokens(): one row has shape {shape}; a sequence has (length, features), as the output of an "
                "embedding or a transformer block does."
            )
        return self

    def count(self, shape: Shape) -> int:
        return shape[0]

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        return t[:, :, None]

    def members(self, activations: Tensor) -> Tensor:
        return activations


class Heads(Units):
    """Heads of attention: the features (..., C) of a layer, cut into ``count`` equal groups that move together.

    Use it where the heads stand side by side, before the output projection, or at the output of a block.

    >>> Heads(4).count((12, 64))
    4
    """

    def __init__(self, count: int) -> None:
        self.heads = whole("count", count, 1)

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Heads:
        if not shape or shape[-1] % self.heads:
            raise GEHValueError(
                f"units=Heads({self.heads}): one row has shape {shape}, whose last dimension cannot be cut into "
                f"{self.heads} equal heads."
            )
        return self

    def count(self, shape: Shape) -> int:
        return self.heads

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        features = t.repeat_interleave(shape[-1] // self.heads, dim=1)
        return features.reshape(len(t), *(1 for _ in shape[:-1]), shape[-1])

    def members(self, activations: Tensor) -> Tensor:
        return activations.reshape(*activations.shape[:-1], self.heads, -1).movedim(-2, 1).flatten(2)

    def __repr__(self) -> str:
        return f"Heads({self.heads})"


class FeatureGroups(Units):
    """Columns that move together, such as the measurements of one instrument.

    ``groups`` maps a name to its columns, by index or by name (of a DataFrame). Columns in no group
    stay where they are; with ``rest=True`` each of them is a unit of its own. All columns of a group move up
    together: for the columns of a one-hot variable that is no change of category, and opposite effects cancel.
    Explain those one by one, with ``engine="difference"``, which lets each jump between 0 and 1.

    >>> FeatureGroups({"size": [0, 1], "place": [2, 3]}).count((5,))
    2
    """

    def __init__(self, groups: Mapping[str, Sequence[int | str]], *, rest: bool = False) -> None:
        if not isinstance(groups, Mapping) or not groups:
            raise GEHTypeError(
                f"FeatureGroups: groups={groups!r} is not a mapping of names to columns; "
                'pass for instance {"size": [0, 1], "place": [2, 3]}.'
            )
        for name, columns in groups.items():
            if isinstance(columns, str) or not isinstance(columns, Iterable):
                raise GEHTypeError(f"FeatureGroups: group {name!r} has the columns {columns!r}; give them as a list.")
        self.groups = {str(name): list(columns) for name, columns in groups.items()}
        self.rest = rest
        self._members: list[list[int]] = []

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> FeatureGroups:
        total = math.prod(shape)
        bound = FeatureGroups(self.groups, rest=self.rest)
        bound._members = [
            [_column(name, column, total, columns) for column in members] for name, members in self.groups.items()
        ]
        taken = [i for members in bound._members for i in members]
        if len(set(taken)) < len(taken) or not all(bound._members):
            raise GEHValueError(
                f"FeatureGroups: groups={self.groups!r} has an empty group or a column in two groups; "
                "give every group at least one column, and every column one group."
            )
        if self.rest:
            bound._members += [[i] for i in sorted(set(range(total)) - set(taken))]
        return bound

    def count(self, shape: Shape) -> int:
        return len(self._members or self.groups)

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        flat = t.new_zeros(len(t), math.prod(shape))
        members = torch.tensor([i for group in self._members for i in group], device=t.device)
        sizes = torch.tensor([len(group) for group in self._members], device=t.device)
        owners = torch.arange(len(sizes), device=t.device).repeat_interleave(sizes)
        return flat.index_copy(1, members, t.index_select(1, owners)).reshape(len(t), *shape)

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        singles = Neurons().names(shape, prefix, columns)
        return [*self.groups, *(singles[members[0]] for members in self._members[len(self.groups) :])]

    def __repr__(self) -> str:
        return f"FeatureGroups({self.groups!r}{', rest=True' if self.rest else ''})"


def _column(group: str, column: int | str, total: int, columns: Sequence[str] | None) -> int:
    if isinstance(column, str):
        if columns is None or column not in columns:
            have = "the inputs have no column names" if columns is None else f"the columns are {list(columns)}"
            raise GEHValueError(f"FeatureGroups: group {group!r} has the column {column!r}, but {have}.")
        return list(columns).index(column)
    if isinstance(column, bool) or not isinstance(column, (int, np.integer)):
        raise GEHTypeError(f"FeatureGroups: group {group!r} has the column {column!r}; give indices or names.")
    index = int(column)
    if not -total <= index < total:
        raise GEHValueError(f"FeatureGroups: group {group!r} has the column {index}, but there are {total} columns.")
    return index % total


class Subset(Units):
    """Some units of another set (by default of the layer's usual one), by index.

    >>> Subset([3, 1, 4]).count((10,))
    3
    """

    def __init__(
        self,
        indices: Sequence[int] | Tensor | np.ndarray[Any, Any],
        of: Units | None = None,
        importance: np.ndarray[Any, Any] | None = None,
    ) -> None:
        if not isinstance(indices, (Tensor, np.ndarray, Iterable)) or isinstance(indices, str):
            raise GEHTypeError(f"units=Subset({indices!r}): give at least one index, in a list.")
        given = indices.tolist() if isinstance(indices, (Tensor, np.ndarray)) else list(indices)
        numbers = all(isinstance(i, (int, np.integer)) and not isinstance(i, bool) for i in given)
        if not given or not numbers or len(set(given)) < len(given):
            raise GEHValueError(f"units=Subset({given!r}): give at least one index, each a whole number and only once.")
        self.indices = [int(i) for i in given]
        self.of = of
        #: What the units were chosen by, where ``explainer.screen`` did.
        self.importance = importance

    def bind(self, shape: Shape, module: nn.Module | None, columns: Sequence[str] | None) -> Subset:
        of = (self.of or default_units(shape, module)).bind(shape, module, columns)
        total = of.count(shape)
        wrong = [i for i in self.indices if not 0 <= i < total]
        if wrong:
            raise GEHValueError(
                f"units=Subset(...): there are {total} units, numbered 0 to {total - 1}; "
                f"remove {wrong[:5]}{' and others' if len(wrong) > 5 else ''}."
            )
        return Subset(self.indices, of)

    def _of(self) -> Units:
        return self.of or Neurons()

    def count(self, shape: Shape) -> int:
        return len(self.indices)

    def shift(self, t: Tensor, shape: Shape) -> Tensor:
        whole = t.new_zeros(len(t), self._of().count(shape))
        return self._of().shift(whole.index_copy(1, torch.tensor(self.indices, device=t.device), t), shape)

    def members(self, activations: Tensor) -> Tensor:
        return self._of().members(activations)[:, self.indices]

    def names(self, shape: Shape, prefix: str, columns: Sequence[str] | None = None) -> list[str]:
        names = self._of().names(shape, prefix, columns)
        return [names[i] for i in self.indices]

    def __repr__(self) -> str:
        of = "" if self.of is None else f", of={self.of!r}"
        return f"Subset({self.indices!r}{of})"


def default_units(shape: Shape, module: nn.Module | None) -> Units:
    """Return what ``units=None`` means: features at the inputs, else neurons, or channels of maps."""
    return Neurons() if module is None or len(shape) <= 1 else Channels()
