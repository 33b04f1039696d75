"""One architecture of the zoo against a plain double backward, which uses nothing of the package."""

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
    """What came out for one architecture."""

    entry: Entry
    #: Of probabilities, kinks as they are: largest difference from the reference over its largest entry ...
    error: float
    #: ... and the same in single precision, with the engine that "auto" takes.
    single_error: float
    #: Of logits, kinks smoothed: the scores (D, D), and what the result says of itself.
    scores: np.ndarray
    engine: str
    smoothed: dict | None
    #: The largest reference entry, so that a comparison of zeros is seen.
    largest: float
    notes: list[str]
    #: Time of the explanation of logits.
    seconds: float

    @property
    def functions(self) -> dict[str, int]:
        """Return how often each kinked function was smoothed."""
        return {} if self.smoothed is None else self.smoothed["functions"]

    @property
    def change(self) -> float | None:
        """Return by how much smoothing moved the output, relative to its spread."""
        return None if self.smoothed is None else self.smoothed["relative_change"]


class _Hardsigmoid(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x + 3).clamp(0, 6) / 6


class _Hardswish(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * (x + 3).clamp(0, 6) / 6


def check(entry: Entry) -> Row:
    """Explain one architecture and compare."""
    model, inputs = entry.make()
    started = time.perf_counter()
    smooth, notes = _explain(entry, model, inputs, entry.logits, smooth="auto")
    seconds = time.perf_counter() - started
    few, kinked = inputs[:ROWS], smooth.settings["smoothed"] is not None
    single, _ = _explain(entry, model, few, _probabilities(entry), smooth=None)
    # A unit at 1e-7 from its kink may fall to either side of it by rounding, so kinked networks of different
    # precision are different functions.
    single_truth = plain(entry, model, few) if kinked else None
    model, few = model.double(), few.double() if few.is_floating_point() else few
    double, _ = _explain(entry, model, few, _probabilities(entry), smooth=None, engine="exact")
    truth = plain(entry, model, few)
    single_truth = truth if single_truth is None else single_truth
    return Row(
        entry,
        error=_relative(double.aeh.mean, truth),
        single_error=_relative(single.aeh.mean, single_truth),
        scores=smooth.aeh.mean,
        engine=smooth.settings["engine"],
        smoothed=smooth.settings["smoothed"],
        largest=float(np.abs(truth).max()),
        notes=notes,
        seconds=seconds,
    )


def _probabilities(entry: Entry):
    return lambda out: entry.logits(out).softmax(-1)


def _explain(entry: Entry, model: nn.Module, inputs: Tensor, output, **settings) -> tuple[geh.Interactions, list[str]]:
    """Explain with the point estimate, and hand back what was warned of."""
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


def plain(entry: Entry, model: nn.Module, inputs: Tensor) -> np.ndarray:
    """AEH (D, D) of the probabilities, in the model's own precision: a forward hook and two backward passes."""
    model, before = _twice_differentiable(model), entry.logits(model(inputs)).detach()
    t = torch.zeros(len(inputs), len(entry.units), dtype=before.dtype, requires_grad=True)

    def move(module: nn.Module, args: object, out: Tensor) -> Tensor:
        for unit, channel in enumerate(entry.units):
            direction = torch.zeros_like(out)
            direction.select(entry.axis, channel).fill_(1.0)
            out = out + t[:, unit].reshape(-1, *(1 for _ in out.shape[1:])) * direction
        return out

    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    handle = model.get_submodule(entry.layer).register_forward_hook(move)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            logits = entry.logits(model(inputs))
    finally:
        handle.remove()
        torch.backends.mha.set_fastpath_enabled(fast_path)
    torch.testing.assert_close(logits, before, rtol=1e-4, atol=1e-4)  # still the same network
    probability = logits.softmax(-1)[:, entry.target]
    (gradient,) = torch.autograd.grad(probability.sum(), t, create_graph=True)
    columns = [torch.autograd.grad(column.sum(), t, retain_graph=True)[0] for column in gradient.unbind(1)]
    return reference.aeh(torch.stack(columns, dim=2).double().numpy())


def _relative(ours: np.ndarray, truth: np.ndarray) -> float:
    return float(np.abs(ours - truth).max() / np.abs(truth).max())


def _twice_differentiable(model: nn.Module) -> nn.Module:
    """Return the model, or a copy in plain operations where torch's own have no second derivative."""
    hard = {nn.Hardsigmoid: _Hardsigmoid, nn.Hardswish: _Hardswish}
    if any(type(module) in hard for module in model.modules()):
        model = copy.deepcopy(model)
        for name, module in list(model.named_modules()):
            if type(module) in hard:
                model.set_submodule(name, hard[type(module)]())
    return model
