"""Cases of many draws: the paper's energy data, an ensemble, every number of groups, and the held-out test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import geh_explain as geh
from benchmarks import package_methods as ours
from benchmarks.networks import mlp, table
from benchmarks.profiling import describe_call
from benchmarks.tabular import LOOP, LOOP_POINTS, TORCH_NOTE
from benchmarks.timing import Case, Method, Target
from benchmarks.torch_hessians import (
    HessianFunction,
    aeh_and_eah,
    double_backward,
    input_problem,
    notebook_loop,
    vmap_reverse,
)
from geh_explain import bnn

#: Draws on which the methods of torch are timed; the answers for the last one must agree.
TIMED_DRAWS = 3


def energy(points: int = 154, draws: int = 200) -> Case:
    """Return the case of 200 draws of MC dropout at as many points as the test set of the energy data."""
    model, x = mlp(8, (30,), dropout=0.1), table(points, 8)
    methods = {}
    for name, engine in ((ours.EXPLAIN, "auto"), (ours.EXPLAIN_EXACT, "exact")):
        explainer = geh.GEHExplainer(model, posterior=geh.posterior.MCDropout(), engine=engine)
        explain = partial(explainer.explain, x, groups=1, progress=False)
        methods[name] = Method(partial(explain, draws=draws), partial(ours.answer_of, explain, draws=TIMED_DRAWS))
    networks = list(_drawn_networks(model, x, TIMED_DRAWS))
    for name, hessians, rows in ((LOOP, notebook_loop, LOOP_POINTS), ("double backward", double_backward, points)):
        timed_on = f"{TIMED_DRAWS} draws" + ("" if rows == points else f", {rows} points")
        run = partial(_hessians_of_all, hessians, networks, x[:rows])
        answer = partial(_answer_of_last, hessians, networks, x)
        methods[name] = Method(run, answer, draws / TIMED_DRAWS * points / rows, timed_on)
    return Case(
        title=f"8 inputs, hidden 30 with dropout, {points} points, {draws} draws",
        methods=methods,
        reference=ours.EXPLAIN,
        targets=[Target(ours.EXPLAIN, (LOOP,), 1 / 500), *ours.exact_targets(methods)],
        notes=[ours.engine_note(geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate()), x), TORCH_NOTE],
        points=points * draws,
    )


def group_curve() -> Case:
    """Return the case of all numbers of groups from 1 to 60 in one pass, against 11 groups alone."""
    explainer, x = geh.GEHExplainer(mlp(8, dropout=0.1)), table(1000, 8)
    explain = partial(explainer.explain, x, groups=11, draws=20, progress=False)
    choose = partial(explainer.choose_groups, x, max_groups=60, draws=20, progress=False)
    curve_name, single_name = "choose_groups(), 1 to 60", "explain(), 11 groups"
    return Case(
        title="Every number of groups: 8 inputs, hidden 100-100-100 with dropout, 1,000 points, 20 draws",
        # Groups are nested, so the scores at 11 groups are those that explain() gives for 11.
        methods={
            curve_name: Method(choose, lambda: choose().scores[10]),
            single_name: Method(explain, lambda: explain().geh.draws.mean(axis=0)),
        },
        reference=single_name,
        targets=[Target(curve_name, (single_name,), 1.2)],
    )


def evidence(points: int = 1000, draws: int = 100) -> Case:
    """Return the case of the held-out test of all pairs, against one explanation of the same points."""
    x = table(points, 8)
    y = x[:, 0] * x[:, 1] + np.random.default_rng(0).normal(size=points).astype(np.float32)
    networks = {"MC dropout": mlp(8, dropout=0.1), "Gaussian weights": bnn.HybridNet(8, weights="gaussian", seed=0)}
    methods, targets = {}, []
    for name, network in networks.items():
        explainer = geh.GEHExplainer(network)
        explained, tested = f"explain(), {draws} draws, {name}", f"test_pairs(), {name}"
        methods[explained] = Method(partial(explainer.explain, x, groups=11, draws=draws, progress=False), job=name)
        methods[tested] = Method(partial(explainer.test_pairs, x, y, progress=False), job=name)
        targets.append(Target(tested, (explained,), 1.0))
    return Case(
        title=f"Held-out test: 8 inputs, hidden 100-100-100, {points:,} points, 28 pairs",
        methods=methods,
        reference=next(iter(methods)),
        targets=targets,
        notes=["With Gaussian weights the mean function of ten draws is tested, with MC dropout the network itself."],
    )


def ensemble(points: int = 50, inputs: int = 784, columns: int = 100) -> Case:
    """Return the case of four networks of very many inputs at few points, with and without EAH.

    The methods of torch are timed on few points or columns, and scaled.
    """
    networks, x = _different_networks(inputs, 4), table(points, inputs)
    explainer = geh.GEHExplainer(networks[0], posterior=geh.posterior.Ensemble(networks))
    explain = partial(explainer.explain, x, groups=1, progress=False)
    without_eah = partial(explain, measures=("aeh", "geh"))
    methods = {
        name: Method(call, partial(_aeh_of, call))
        for name, call in ((ours.EXPLAIN, explain), ("explain(), AEH and GEH", without_eah))
    }
    targets = [Target(name, ("vmap(jacrev(jacrev))", "double backward"), 1 / 25) for name in methods]
    all_points, few = (partial(_hessians_of_all, networks=networks, x=rows) for rows in (x, x[:4]))
    first = partial(double_backward, columns=columns)
    methods["vmap(jacrev(jacrev))"] = Method(partial(few, vmap_reverse), None, points / 4, "4 points")
    methods["double backward"] = Method(partial(all_points, first), None, inputs / columns, f"{columns} columns")
    return Case(
        title=f"An ensemble of 4: {inputs} inputs, hidden 100-100-100, {points} points",
        methods=methods,
        reference=ours.EXPLAIN,
        targets=targets,
        notes=[
            TORCH_NOTE,
            "of each point EAH needs the interactions of all pairs, which are more work than the network",
            f"without EAH, {describe_call(without_eah)}",
        ],
        points=4 * points,
    )


def _aeh_of(explain: Callable[[], geh.Interactions]) -> NDArray[np.float64]:
    """Call ``explain`` and return AEH (P,), the mean over its draws."""
    mean: NDArray[np.float64] = explain().aeh.draws.mean(axis=0)
    return mean


def _different_networks(inputs: int, count: int) -> list[nn.Sequential]:
    """Return networks with hidden layers 100-100-100 whose weights differ."""
    networks = [mlp(inputs) for _ in range(count)]
    generator = torch.Generator().manual_seed(0)
    for network in networks:
        for parameter in network.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
    return networks


class _Masked(nn.Module):
    """A dropout layer with a fixed mask."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask


def _drawn_networks(model: nn.Sequential, x: Tensor, draws: int) -> Iterator[nn.Sequential]:
    """Yield the networks that MC dropout draws, with fixed masks in place of dropout layers, as in the notebook."""
    for draw in geh.posterior.MCDropout().draws(model, draws, seed=0):
        masks: dict[int, nn.Module] = {}

        def record(index: int, module: nn.Module, args: Any, out: Tensor, masks: dict[int, nn.Module] = masks) -> None:
            masks[index] = _Masked((out / args[0])[0])  # inputs are outputs of softplus and never 0

        indices = [index for index, module in enumerate(model) if isinstance(module, nn.Dropout)]
        handles = [model[index].register_forward_hook(partial(record, index)) for index in indices]
        with draw:
            model(x[:1])
        for handle in handles:
            handle.remove()
        yield nn.Sequential(*(masks.get(index, module) for index, module in enumerate(model)))


def _hessians_of_all(hessians: HessianFunction, networks: Sequence[nn.Sequential], x: Tensor) -> None:
    """Compute the Hessians of every network, and discard them."""
    for network in networks:
        hessians(input_problem(network, x))


def _answer_of_last(hessians: HessianFunction, networks: list[nn.Sequential], x: Tensor) -> NDArray[np.float64]:
    """Return AEH and EAH (2, P) of the last network."""
    return aeh_and_eah(hessians(input_problem(networks[-1], x)))
