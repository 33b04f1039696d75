"""Check that the rows of a batch do not influence each other."""

from __future__ import annotations

import torch
from torch import Tensor

from geh_explain.data.rows import Rows
from geh_explain.errors import GEHRuntimeError
from geh_explain.model.cut import Cut


def check_row_independence(cut: Cut, rows: Rows, alone: Tensor) -> None:
    """Refuse a model that is random or mixes rows: a row then has no Hessian of its own.

    All engines differentiate the sum over rows, which gives the derivatives of each row only if the output of a row
    depends on that row alone. The outputs of ``rows`` are compared with the output ``alone`` (1,) of the first row by
    itself, and with those of the rows in reverse order. Differences below 0.1 % of the output are taken for rounding.

    Raises
    ------
    GEHRuntimeError
        If the outputs differ: because the model is random, or because it mixes rows.
    """
    with torch.no_grad():
        outputs = cut.outputs(rows)
        reverse_order = cut.outputs(rows.take(range(len(rows))[::-1])).flip(0)
    size = outputs.abs()
    # The second part covers outputs near 0 in a batch of larger ones, the third outputs that are all 0.
    tolerance = 1e-3 * size + 1e-5 * size.max() + 10 * torch.finfo(outputs.dtype).eps
    for compared, how in ((alone, "alone"), (reverse_order, "in a batch in reverse order")):
        differs = (outputs[: len(compared)] - compared).abs() > tolerance[: len(compared)]
        if bool(differs.any()):
            _refuse_random(cut, rows, outputs, tolerance)
            row = int(differs.nonzero()[0])
            raise GEHRuntimeError(
                f"model: it mixes rows: row {row} gives {float(outputs[row]):.6g} in a batch of {len(rows)} and "
                f"{float(compared[row]):.6g} {how}, so it has no Hessian of its own. Remove what computes over the "
                "batch (batch statistics, softmax or sum over dimension 0, noise per row, dynamic quantisation)."
            )


def _refuse_random(cut: Cut, rows: Rows, outputs: Tensor, tolerance: Tensor) -> None:
    """Raise if the same rows give other outputs than before.

    They are computed twice: a model that alternates between two states would repeat itself once.
    """
    with torch.no_grad():
        repeated = [cut.outputs(rows) for _ in range(2)]
    if any(bool(((outputs - values).abs() > tolerance).any()) for values in repeated):
        raise GEHRuntimeError(
            "model: the same rows gave different outputs twice, so it is not one function; put the networks inside "
            "a callable into eval mode, or pass posterior=geh_explain.posterior.Stochastic()."
        )
