"""Checks that the model is one function of each row: the same in every batch, with and without gradients, at any time.

All engines differentiate the sum over rows, which gives the derivatives of each row only if the output of a row depends
on that row alone. Networks of torch's own layers are such functions by construction (``cut.known_layers``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from geh_explain.data.rows import Rows
from geh_explain.errors import GEHRuntimeError
from geh_explain.model.autograd_graph import coarsest_dtype
from geh_explain.model.cut import Cut
from geh_explain.model.estimators import EstimatorModel
from geh_explain.model.view import View

#: Differences below this part of an output are taken for rounding ...
_ROUNDING = 1e-3
#: ... plus this part of the usual size of outputs, for those near 0 ...
_USUAL_ROUNDING = 1e-5
#: ... or both below this many eps of the coarsest precision in the model.
_ROUNDING_EPS = 8
#: The same forward pass twice differs by less than this part of the outputs.
_REPEATED = 1e-5


def check_row_independence(cut: Cut, rows: Rows, alone: Tensor) -> None:
    """Refuse a model that is random or mixes rows: a row then has no Hessian of its own.

    The outputs of ``rows`` are compared with the output ``alone`` (1,) of the first row by itself, and with those of
    the rows in reverse order.

    Raises
    ------
    GEHRuntimeError
        If the outputs differ: because the model is random, or because it mixes rows.
    """
    if cut.known_layers:
        return
    with torch.no_grad():
        outputs = cut.outputs(rows)
        reverse_order = cut.outputs(rows.take(range(len(rows))[::-1])).flip(0)
    for compared, how in ((alone, "alone"), (reverse_order, "in a batch in reverse order")):
        row = _differing(outputs[: len(compared)], compared, outputs, cut, rows)
        if row is not None:
            with torch.no_grad():
                _refuse_random(outputs, [cut.outputs(rows) for _ in range(2)])
                _refuse_random(alone, [cut.outputs(rows[:1])])
            raise _mixes_rows(row, outputs[row], f"in a batch of {len(rows)}", compared[row], how)


def check_parts(cut: Cut, rows: Rows, t: Tensor, outputs: Tensor, parts: Sequence[Sequence[int]]) -> None:
    """Compare the outputs (n,) of a chunk at shifts ``t`` (n, D) with those of parts of it, without gradients.

    Each part is a list of a few indices, and a batch of its own.

    Raises
    ------
    GEHRuntimeError
        If the outputs differ: because the model is random, because it is another function where gradients are needed,
        or because it mixes rows.
    """
    for part in () if cut.known_layers else parts:
        # As a whole: values that are kept for the part below the layer are checked too.
        few, few_shifts = replace(rows.take(part), below=()), t.detach()[part]
        with torch.no_grad():
            alone = cut.outputs(few, few_shifts)
        if bool(_exceeds_rounding(outputs[part], alone, outputs).any()):
            _explain_difference(cut, rows, t, outputs, part)


def check_repeated(cut: Cut, rows: Rows, t: Tensor) -> None:
    """Raise if two forward passes of a chunk at shifts ``t`` (n, D) give different outputs, however small."""
    first, second = (_outputs(cut, rows, t.detach(), t.requires_grad) for _ in range(2))
    if bool(((first - second).abs() > _REPEATED * first.abs().max()).any()):
        raise _not_one_function()


@torch.no_grad()
def repeatable_outputs(cut: Cut, rows: Rows) -> Tensor | None:
    """Return the outputs (n,) of ``rows``, for :func:`check_unchanged_function`; None if they differ at once."""
    if cut.known_layers:
        return cut.outputs(rows)
    if isinstance(cut.model, EstimatorModel):
        # In one call, as those of estimators may be slow; randomness of whole calls shows where draws begin.
        first, second = cut.outputs(rows.repeat(2)).chunk(2)
    else:
        first, second = cut.outputs(rows), cut.outputs(rows)
    return None if bool(_exceeds_rounding(first, second, first).any()) else first


def check_unchanged_function(cut: Cut, rows: Rows, before: Tensor) -> None:
    """Raise if the outputs of ``rows`` are no longer those ``before`` (n,) the first draw.

    Raises
    ------
    GEHRuntimeError
        If a forward pass changes the model.
    """
    with torch.no_grad():
        after = cut.outputs(rows)
    row = _differing(before, after, before, cut, rows)
    if row is not None:
        raise GEHRuntimeError(
            f"model: row {row} gave {float(before[row]):.6g} before the first draw and {float(after[row]):.6g} after "
            "the last one, so it is not one function: something in it changes from call to call (a counter, a cache, "
            "statistics that a forward pass writes). Remove it while explaining."
        )


def _explain_difference(cut: Cut, rows: Rows, t: Tensor, outputs: Tensor, part: Sequence[int]) -> None:
    """Raise with the reason why the rows ``part`` of a chunk have other outputs by themselves."""
    few, shifts, few_shifts = replace(rows.take(part), below=()), t.detach(), t.detach()[part]
    _refuse_random(outputs, [_outputs(cut, rows, shifts, t.requires_grad) for _ in range(2)])
    # Without smoothing: its sharpness depends on the calls before, of which rows of their own may skip some.
    with cut.viewed(View()):
        whole = _outputs(cut, rows, shifts, t.requires_grad)
        alone = _outputs(cut, few, few_shifts, t.requires_grad)
        plain = _outputs(cut, few, few_shifts, False)
    row = _differing(alone, plain, whole, cut, few)
    if row is not None:
        raise GEHRuntimeError(
            f"model: row {rows.index_of(part[row])} gives {float(alone[row]):.6g} where gradients are computed and "
            f"{float(plain[row]):.6g} without, so that derivatives are not those of its predictions. Remove what "
            "depends on torch.is_grad_enabled() or requires_grad, or use engine='difference', which takes no gradients."
        )
    row = _differing(whole[part], plain, whole, cut, few)
    if row is not None:
        raise _mixes_rows(
            rows.index_of(part[row]),
            whole[part[row]],
            f"in a batch of {len(rows)}",
            plain[row],
            f"in a batch of {len(few)}",
        )


def _outputs(cut: Cut, rows: Rows, shifts: Tensor, with_gradients: bool) -> Tensor:
    """Return the values (n,) of the outputs at ``shifts`` (n, D), computed with or without gradients."""
    return cut.outputs(rows, shifts.clone().requires_grad_(with_gradients)).detach()


def _differing(first: Tensor, second: Tensor, outputs: Tensor, cut: Cut, rows: Rows) -> int | None:
    """Return the first row (m,) in which two outputs differ by more than rounding; None without any.

    ``outputs`` are those of further rows, for their usual size. The precision of ``rows`` is looked up where single
    precision would not do.
    """
    differs = _exceeds_rounding(first, second, outputs)
    if bool(differs.any()):
        differs = _exceeds_rounding(first, second, outputs, torch.finfo(computing_dtype(cut, rows)).eps)
    return int(differs.nonzero()[0]) if bool(differs.any()) else None


def _exceeds_rounding(first: Tensor, second: Tensor, outputs: Tensor, eps: float = 0.0) -> Tensor:
    """Return where two outputs (m,) of a model with precision ``eps`` differ by more than rounding."""
    size = first.abs()
    usual = torch.maximum(size.max(), outputs.abs().median())
    tolerance = max(_ROUNDING, _ROUNDING_EPS * eps) * size + max(_USUAL_ROUNDING, _ROUNDING_EPS * eps) * usual
    # Not "is larger", which is false for NaN. The last part is for outputs that are all 0.
    return ~((first - second).abs() <= tolerance + 10 * torch.finfo(first.dtype).eps)


def computing_dtype(cut: Cut, rows: Rows) -> torch.dtype:
    """Return the coarsest type in which the model computes from the units to the output; that of the units if unknown.

    It is unknown for a black box that does not take tensors with gradients.
    """
    if cut.known_layers or isinstance(cut.model, EstimatorModel):
        return cut.dtype
    try:
        return coarsest_dtype(cut.outputs(rows, cut.zeros(rows).requires_grad_()))
    except RuntimeError:
        return cut.dtype


def _refuse_random(outputs: Tensor, repeated: Sequence[Tensor]) -> None:
    """Raise if the same rows gave other outputs than before.

    They are computed twice: a model that alternates between two states would repeat itself once.
    """
    if any(bool(_exceeds_rounding(outputs, values, outputs).any()) for values in repeated):
        raise _not_one_function()


def _not_one_function() -> GEHRuntimeError:
    """Return the error for outputs that differ between calls."""
    return GEHRuntimeError(
        "model: the same rows gave different outputs twice, so it is not one function; put the networks inside "
        "a callable into eval mode, remove what changes from call to call, or pass "
        "posterior=geh_explain.posterior.Stochastic()."
    )


def _mixes_rows(row: int, first: Tensor, how: str, second: Tensor, other: str) -> GEHRuntimeError:
    """Return the error for outputs that depend on the other rows of a batch."""
    return GEHRuntimeError(
        f"model: it mixes rows: row {row} gives {float(first):.6g} {how} and {float(second):.6g} {other}, so it has no "
        "Hessian of its own. Remove what computes over the batch or depends on its size (batch statistics, softmax or "
        "sum over dimension 0, noise per row, dynamic quantisation)."
    )
