"""The input tensors of a model as one tensor at the cut, and shifts of them.

Inputs may be integers, such as ids that go to an embedding, where units leave them fixed (see
:class:`~geh_explain.units.Categorical`).
"""

from __future__ import annotations

import torch
from torch import Tensor


def join_inputs(inputs: tuple[Tensor, ...]) -> Tensor:
    """Return a single input (n, ...) as it is, several ones flattened and side by side (n, d); in floating point.

    >>> join_inputs((torch.zeros(2, 1), torch.tensor([5, 6])))
    tensor([[0., 5.],
            [0., 6.]])
    """
    joined = inputs[0] if len(inputs) == 1 else torch.cat([x.reshape(len(x), -1) for x in inputs], dim=1)
    return joined if joined.is_floating_point() else joined.to(torch.get_default_dtype())


def shift_inputs(inputs: tuple[Tensor, ...], shift: Tensor) -> tuple[Tensor, ...]:
    """Return the inputs with ``shift`` (n, ...) of :func:`join_inputs` added; those that are integers stay as they are.

    Units that move integers are refused before.
    """
    parts = [shift]
    if len(inputs) > 1:
        parts = list(torch.split(shift, [x[0].numel() for x in inputs], dim=1))
        parts = [part.reshape(x.shape) for x, part in zip(inputs, parts, strict=True)]
    return tuple(x + part if x.is_floating_point() else x.clone() for x, part in zip(inputs, parts, strict=True))
