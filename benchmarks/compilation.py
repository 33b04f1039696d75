"""The gain of ``torch.compile`` for runs of many draws, with the time of compilation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.networks import mlp, table
from benchmarks.timing import Case, Method, returned_cost, time_call
from benchmarks.torch_hessians import aeh_and_eah

#: Sharpness of the networks' softplus.
_BETA = 10.0
#: Draws of a run: the default of explain(), and a long run.
_DRAWS = (100, 1000)

#: Takes points, weights and biases, and returns the local Hessians.
_Hessians = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor]], Tensor]


def compilation(points: int = 1000) -> Case:
    """Return the case of a run's local Hessians, eagerly and compiled, for 8 and 32 inputs."""
    methods = {}
    for inputs in (8, 32):
        for draws in _DRAWS:
            job = f"{inputs} inputs, {draws:,} draws"
            for name, measure in (("eager", _eager_seconds), ("compiled", _compiled_seconds)):
                methods[f"{job}, {name}"] = Method(partial(measure, inputs, points, draws), job=job)
    return Case(
        title=f"torch.compile: local Hessians of networks with hidden layers 100-100-100, {points:,} points",
        methods=methods,
        reference=next(iter(methods)),
        notes=[
            "the arithmetic of the structured engine written out, with weights as arguments, as draws differ in them; "
            "one draw is timed and multiplied, and the time of compilation added",
            "not used by the package: at the default number of draws compilation costs more than it saves, and it "
            "needs a C++ compiler",
        ],
        unit="s",
        meter=returned_cost,
        rounds=3,
    )


def _weights(network: nn.Sequential) -> tuple[list[Tensor], list[Tensor]]:
    """Return the weights and biases of the layers."""
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    return [layer.weight.detach() for layer in layers], [layer.bias.detach() for layer in layers]


def _hessians(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """Return the local Hessians (n, D, D): the sum over layers of J^T diag(g s'') J."""
    inputs, a = [], x
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        inputs.append(F.linear(a, weight, bias))
        a = F.softplus(inputs[-1], _BETA)
    slopes = [torch.sigmoid(_BETA * z) for z in inputs]
    gradients = [weights[-1].expand(len(x), -1)]
    for weight, slope in zip(weights[-2:0:-1], slopes[:0:-1], strict=True):
        gradients.insert(0, (gradients[0] * slope) @ weight)
    directions = weights[0].T[:, None, :].expand(-1, len(x), -1)
    hessians = x.new_zeros(len(x), x.shape[1], x.shape[1])
    for number, (gradient, slope) in enumerate(zip(gradients, slopes, strict=True)):
        second = gradient * _BETA * slope * (1 - slope)
        hessians = hessians + torch.bmm((directions * second).permute(1, 0, 2), directions.permute(1, 2, 0))
        if number + 1 < len(slopes):
            directions = F.linear(directions * slope, weights[number + 1])
    return hessians


def _eager_seconds(inputs: int, points: int, draws: int) -> float:
    """Return the seconds of the draws of a run."""
    return draws * time_call(partial(_hessians, table(points, inputs), *_weights(mlp(inputs))))


def _compiled_seconds(inputs: int, points: int, draws: int) -> float:
    """Return the seconds of the draws of a run that compiles first; nothing that was compiled before is used."""
    arguments = (table(points, inputs), *_weights(mlp(inputs)))
    torch.compiler.reset()
    with torch._inductor.utils.fresh_cache():
        start = perf_counter()
        compiled: _Hessians = torch.compile(_hessians)
        found = compiled(*arguments)
        seconds = perf_counter() - start
        np.testing.assert_allclose(aeh_and_eah(found), aeh_and_eah(_hessians(*arguments)), rtol=1e-3, atol=1e-5)
        return seconds + draws * time_call(partial(compiled, *arguments))
