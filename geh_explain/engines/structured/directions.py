"""The directions of the units at the cut, from which the structured engine starts."""

from __future__ import annotations

from functools import partial

import torch

from geh_explain.data.rows import Rows
from geh_explain.engines.structured.jacobians import DiagonalJacobian, Jacobian, UniformJacobian, UnitJacobian
from geh_explain.model.cut import Cut
from geh_explain.units.neurons import Neurons

#: Directions of units that are no neurons are formed up to this many numbers.
_MAX_NUMBERS = 2**24


def unit_directions(cut: Cut, rows: Rows) -> list[Jacobian]:
    """Return the units' directions at the cut, ``(D, 1, *shape)`` for each tensor that crosses it.

    Direction i is what a shift t_i = 1 adds: column i of the units' map B. It is the same for all rows, and for neurons
    the identity.
    """
    n_units = cut.n_units
    # Neurons are the entries of the tensor themselves: a diagonal Jacobian costs D numbers instead of D^2.
    if isinstance(cut.units, Neurons) and (cut.layer is not None or len(rows.inputs) == 1):
        return [DiagonalJacobian(torch.ones(1, n_units, device=cut.device, dtype=cut.dtype), cut.shape)]
    single = cut.layer is not None or len(rows.inputs) == 1
    if single and len(cut.shape) == 1 and n_units * cut.shape[0] > _MAX_NUMBERS:
        of_units = partial(cut.units.shift, shape=cut.shape)
        return [UnitJacobian(of_units, n_units, torch.ones(1, *cut.shape, device=cut.device, dtype=cut.dtype))]
    eye = torch.eye(n_units, device=cut.device, dtype=cut.dtype)
    shift = cut.units.shift(eye, cut.shape)
    if cut.layer is not None and shift.shape[1:] == (cut.shape[0], *(1 for _ in cut.shape[1:])) and len(cut.shape) > 1:
        return [UniformJacobian(shift.reshape(n_units, 1, -1), cut.shape)]
    basis = shift.expand(n_units, *cut.shape)
    if cut.layer is not None or len(rows.inputs) == 1:
        return [basis[:, None]]
    parts = torch.split(basis, [x[0].numel() for x in rows.inputs], dim=1)
    return [part.reshape(n_units, 1, *x.shape[1:]) for x, part in zip(rows.inputs, parts, strict=True)]
