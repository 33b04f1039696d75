"""What a network computes at a few points: its outputs, and their first and second derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from geh_explain.data.rows import Rows
from geh_explain.model.cut import Cut
from geh_explain.run.threads import one_thread


def identifying_numbers(cut: Cut, parts: Sequence[Rows], draws: int, differentiates: bool) -> Tensor:
    """Return numbers (draws, m) that identify the network in the draws that are entered, in double precision.

    They are the outputs f of all rows and, where the engine ``differentiates``, the sums over units of grad f and of
    H 1, with H the local Hessian: two networks may have the same outputs and other derivatives. One thread makes them
    independent of the number of threads, to the last bit.
    """
    found: list[Tensor] = []
    with one_thread():
        for part in parts:
            # Values that are kept for the part below the layer were computed in other batches.
            rows = replace(part.repeat(draws) if draws > 1 else part, below=())
            found += _with_derivatives(cut, rows) if differentiates else [_outputs(cut, rows)]
    return torch.cat([values.reshape(draws, -1) for values in found], dim=1).double().cpu()


@torch.no_grad()
def _outputs(cut: Cut, rows: Rows) -> Tensor:
    return cut.outputs(rows)


@torch.enable_grad()
def _with_derivatives(cut: Cut, rows: Rows) -> list[Tensor]:
    """Return the outputs (n,) and the sums (n,) over units of the gradient and of H 1, as far as torch has them."""
    t = cut.zeros(rows).requires_grad_()
    value = cut.outputs(rows, t)
    found = [value.detach()]
    try:
        for _ in range(2):
            if not value.requires_grad:
                break
            (gradient,) = torch.autograd.grad(value.sum(), t, create_graph=True, allow_unused=True)
            if gradient is None:
                break
            # Only finite numbers are stored; engines report others where they matter.
            found.append(gradient.detach().sum(dim=1).nan_to_num())
            value = gradient
    except RuntimeError:
        pass  # an operator without a derivative; engines report it
    return found
