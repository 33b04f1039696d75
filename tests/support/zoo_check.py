"""Comparison of one architecture with a plain double backward, which does not use the package."""

from __future__ import annotations

import copy
import time
import warnings
from dataclasses import dataclass

import numpy as np
import reference
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from zoo import Entry

import geh_explain as geh

#: Rows compared with the reference.
ROWS = 3


@dataclass(frozen=True)
class Row:
    """Results for one architecture.

    Attributes
    ----------
    entry
        The architecture.
    error
        Largest difference of the AEH of probabilities from the reference over its largest entry, without smoothing, in
        double precision.
    single_error
        The same in single precision, with the engine that ``"auto"`` chooses.
    scores
        AEH (D, D) of logits, with smoothing.
    engine, smoothed
        Engine and smoothing of that explanation, as in ``result.settings``.
    largest
        Largest entry of the reference; if it is almost 0, the comparison is meaningless.
    messages
        Warnings of the explanation of logits.
    seconds
        Time of the explanation of logits.
    """

    entry: Entry
    error: float
    single_error: float
    scores: np.ndarray
    engine: str
    smoothed: dict | None
    largest: float
    messages: list[str]
    seconds: float

    @property
    def functions(self) -> dict[str, int]:
        """Number of smoothed calls of each kinked function, by name."""
        return {} if self.smoothed is None else self.smoothed["functions"]

    @property
    def change(self) -> float | None:
        """Mean change of the output by smoothing in units of its standard deviation, None if nothing was smoothed."""
        return None if self.smoothed is None else self.smoothed["relative_change"]


class _Hardsigmoid(nn.Module):
    """``nn.Hardsigmoid`` in operations that torch differentiates twice."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + 3).clamp(0, 6) / 6


class _Hardswish(nn.Module):
    """``nn.Hardswish`` in operations that torch differentiates twice."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (x + 3).clamp(0, 6) / 6


def check(entry: Entry) -> Row:
    """Explain one architecture and compare it with the reference."""
    model, inputs = entry.make()
    start = time.perf_counter()
    smooth, messages = _explain(entry, model, inputs, entry.logits, smooth="auto")
    seconds = time.perf_counter() - start
    rows = inputs[:ROWS]
    is_kinked = smooth.settings["smoothed"] is not None
    single, _ = _explain(entry, model, rows, _probabilities(entry), smooth=None)
    # A unit within 1e-7 of its kink may fall to either side of it by rounding, so kinked networks of different
    # precision are different functions, and each needs its own reference.
    single_reference = reference_aeh(entry, model, rows) if is_kinked else None
    model = model.double()
    rows = rows.double() if rows.is_floating_point() else rows
    double, _ = _explain(entry, model, rows, _probabilities(entry), smooth=None, engine="exact")
    double_reference = reference_aeh(entry, model, rows)
    return Row(
        entry,
        error=_relative_error(double.aeh.mean, double_reference),
        single_error=_relative_error(
            single.aeh.mean, double_reference if single_reference is None else single_reference
        ),
        scores=smooth.aeh.mean,
        engine=smooth.settings["engine"],
        smoothed=smooth.settings["smoothed"],
        largest=float(np.abs(double_reference).max()),
        messages=messages,
        seconds=seconds,
    )


def _probabilities(entry: Entry):
    """Return the argument ``output`` that turns the model's return value into class probabilities."""
    return lambda out: entry.logits(out).softmax(-1)


def _explain(entry: Entry, model: nn.Module, inputs: Tensor, output, **settings) -> tuple[geh.Interactions, list[str]]:
    """Explain with the point estimate, and return the result and the warnings."""
    explainer = geh.GEHExplainer(
        model,
        entry.layer,
        units=geh.units.Subset(entry.units),
        output=output,
        posterior=geh.posterior.PointEstimate(),
        **settings,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = explainer.explain(inputs, entry.target, groups=1, draws=1, progress=False)
    return result, [str(warning.message) for warning in caught]


def reference_aeh(entry: Entry, model: nn.Module, inputs: Tensor) -> np.ndarray:
    """Return the AEH (D, D) of the probabilities, in the model's precision, by a forward hook and double backward."""
    original = entry.logits(model(inputs)).detach()
    model = _twice_differentiable(model)
    t = torch.zeros(len(inputs), len(entry.units), dtype=original.dtype, requires_grad=True)

    def shift_units(module: nn.Module, args: object, out: Tensor) -> Tensor:
        for unit, channel in enumerate(entry.units):
            direction = torch.zeros_like(out)
            direction.select(entry.axis, channel).fill_(1.0)
            out = out + t[:, unit].reshape(-1, *(1 for _ in out.shape[1:])) * direction
        return out

    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    handle = model.get_submodule(entry.layer).register_forward_hook(shift_units)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            logits = entry.logits(model(inputs))
    finally:
        handle.remove()
        torch.backends.mha.set_fastpath_enabled(fast_path)
    torch.testing.assert_close(logits, original, rtol=1e-4, atol=1e-4)  # the replacements compute the same outputs
    probability = logits.softmax(-1)[:, entry.target]
    (gradient,) = torch.autograd.grad(probability.sum(), t, create_graph=True)
    columns = [torch.autograd.grad(column.sum(), t, retain_graph=True)[0] for column in gradient.unbind(1)]
    return reference.aeh(torch.stack(columns, dim=2).double().numpy())


def _relative_error(scores: np.ndarray, reference_scores: np.ndarray) -> float:
    """Return the largest difference over the largest entry of the reference."""
    return float(np.abs(scores - reference_scores).max() / np.abs(reference_scores).max())


def _twice_differentiable(model: nn.Module) -> nn.Module:
    """Return the model, or a copy without the functions that have no second derivative in torch."""
    hard = {nn.Hardsigmoid: _Hardsigmoid, nn.Hardswish: _Hardswish}
    if any(type(module) in hard for module in model.modules()):
        model = copy.deepcopy(model)
        for name, module in list(model.named_modules()):
            if type(module) in hard:
                model.set_submodule(name, hard[type(module)]())
    return model
