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

#: Rows compared with the reference, which goes through them one by one.
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
    few = inputs[:ROWS]
    single, _ = _explain(entry, model, few, _probabilities(entry), smooth=None)
    model, few = model.double(), few.double() if few.is_floating_point() else few
    double, _ = _explain(entry, model, few, _probabilities(entry), smooth=None, engine="exact")
    truth = plain(entry, model, few)
    largest = np.abs(truth).max()
    return Row(
        entry,
        error=float(np.abs(double.aeh.mean - truth).max() / largest),
        single_error=float(np.abs(single.aeh.mean - truth).max() / largest),
        scores=smooth.aeh.mean,
        engine=smooth.settings["engine"],
        smoothed=smooth.settings["smoothed"],
        largest=float(largest),
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
    """AEH (D, D) of the probabilities of a model in double precision: a forward hook and two backward passes."""
    model = _twice_differentiable(model)
    shift: list[Tensor] = []

    def move(module: nn.Module, args: object, out: Tensor) -> Tensor:
        for unit, channel in enumerate(entry.units):
            direction = torch.zeros_like(out)
            direction.select(entry.axis, channel).fill_(1.0)
            out = out + shift[-1][:, unit].reshape(-1, *(1 for _ in out.shape[1:])) * direction
        return out

    def probability(t: Tensor) -> Tensor:
        shift.append(t)
        return entry.logits(model(inputs)).softmax(-1)[:, entry.target]

    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    handle = model.get_submodule(entry.layer).register_forward_hook(move)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            return reference.aeh(reference.local_hessians(probability, torch.zeros(len(inputs), len(entry.units))))
    finally:
        handle.remove()
        torch.backends.mha.set_fastpath_enabled(fast_path)


def _twice_differentiable(model: nn.Module) -> nn.Module:
    """Return the model, or a copy in plain operations where torch's own have no second derivative."""
    hard = {nn.Hardsigmoid: _Hardsigmoid, nn.Hardswish: _Hardswish}
    if any(type(module) in hard for module in model.modules()):
        model = copy.deepcopy(model)
        for name, module in list(model.named_modules()):
            if type(module) in hard:
                model.set_submodule(name, hard[type(module)]())
    return model
