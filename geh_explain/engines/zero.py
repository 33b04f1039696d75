"""The warning for interactions that are all exactly 0: the cause, and the way out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from geh_explain.data.rows import Rows
from geh_explain.engines.selection import depends_on_units
from geh_explain.engines.smoothing.smooth_functions import FORMS
from geh_explain.model.cut import Cut
from geh_explain.model.view import View
from geh_explain.units.pair_set import PairSet


class _KinkNames(View):
    """Collects the names of the kinked functions that are called above the cut, without changing them.

    Attributes
    ----------
    names
        Keys of ``FORMS``, one per call, in the order of the calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def handle(self, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "").strip("_")
        if name in FORMS:
            self.names.append(name)
        return func(*args, **kwargs)


def explain_zero(cut: Cut, rows: Rows, pairs: PairSet, smoothed: bool, noise: str | None = None) -> str:
    """Return a warning that says why all local interactions of ``cut`` are exactly 0.

    The causes are checked in this order: the output does not depend on the units; the model has no gradients, and its
    mixed differences are 0; the network above the cut is piecewise linear, as ReLU networks are, and was not smoothed;
    at the inputs, the model is additive; at a layer, the path from it to the output is linear or elementwise. A few
    forward passes and one backward pass of ``rows`` suffice.

    Parameters
    ----------
    cut
        The model as a function of the units' shifts. It runs without the view of the run, so as it is.
    rows
        A few rows.
    pairs
        The pairs that were computed.
    smoothed
        Whether kinked functions were smoothed in the run.
    noise
        The engine in words, if it moves rows across kinks by noise; None for others.
    """
    zero = f"all {len(pairs)} pairs are exactly 0" if len(pairs) > 1 else "the only pair is exactly 0"
    if not pairs.complete:
        zero = zero.replace("only pair", "pair").replace("pairs", "pairs that were computed")
    kinks = _KinkNames()
    with cut.viewed(kinks):
        has_gradients = _has_gradients(cut, rows)
    if not has_gradients:
        return f"{zero}: {_why_no_differences(cut, rows, pairs)}"
    if kinks.names and not smoothed:
        # dict.fromkeys drops repeated names and keeps the order of the calls.
        names = ", ".join(dict.fromkeys(kinks.names))
        if noise is not None:
            return (
                f"{zero}: the noise of {noise} moved two units of no row together across a kink above {cut.place} "
                f"({names}), where second derivatives vanish; use a larger scale of the noise, or more samples."
            )
        return (
            f"{zero}: above {cut.place} the network is piecewise linear ({names}), so its second derivatives vanish "
            "almost everywhere. Use smooth='auto', or output='probability' if it is a classifier."
        )
    if not pairs.complete:
        return (
            f"{zero}: these units do not interact at these points, or the path from {cut.place} to the output is "
            "linear. Other pairs were not computed; explain(...) without pairs=, unit= and rows= computes all."
        )
    if cut.layer is None:
        return (
            f"{zero}: the model is additive in the inputs, so that none of them act together; or it is flat at these "
            "points, or its kinks cannot be smoothed, such as comparisons (use engine='difference'), or the directions "
            "of the units cancel."
        )
    return (
        f"{zero}: the path from {cut.name!r} to the output is linear, or a function of each unit alone; choose an "
        "earlier layer or output='probability'."
    )


def _has_gradients(cut: Cut, rows: Rows) -> bool:
    """Return whether the outputs have gradients in the units."""
    t = cut.zeros(rows).requires_grad_()
    try:
        value = cut.outputs(rows, t)
    except Exception:
        # The run is finished, and called the model without gradients: a black box, such as one that calls x.numpy().
        return False
    return value.requires_grad and torch.autograd.grad(value.sum(), t, allow_unused=True)[0] is not None


def _why_no_differences(cut: Cut, rows: Rows, pairs: PairSet) -> str:
    """Return why all mixed differences of a model without gradients are exactly 0."""
    if not depends_on_units(cut, rows):
        way = "pass other points" if cut.layer is None else "choose a layer that leads to the explained output"
        return f"the output does not depend on {cut.place}; {way}."
    larger = "engine=Difference(step=1.0) takes larger steps"
    if not pairs.complete:
        return (
            f"these units do not interact at these points, or no step crosses a threshold of the model; {larger}. "
            "Other pairs were not computed; explain(...) without pairs=, unit= and rows= computes all."
        )
    return (
        f"the model is additive in {cut.place}, so that none of them act together, or no step crosses a threshold of "
        f"the model; {larger}."
    )
