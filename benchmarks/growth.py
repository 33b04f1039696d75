"""Cases of growth: the same methods at doubled numbers of points, draws and inputs."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import geh_explain as geh
from benchmarks import package_methods as ours
from benchmarks.networks import mlp, table
from benchmarks.timing import Case, Method, Target, returned_cost
from benchmarks.torch_hessians import input_problem, torch_method, vmap_reverse

#: Name of the line of torch.
REVERSE = "vmap(jacrev(jacrev))"
#: Largest ratio of times for twice the points or draws.
MAX_DOUBLING_RATIO = 2.1
#: Largest ratio of peak memory for four times the points or draws.
MAX_MEMORY_RATIO = 1.2

#: Returns the methods of one size, one per line.
MethodsOfSize = Callable[[int], dict[str, Method]]


def _sweep(title: str, axis: str, sizes: Sequence[int], methods_of: MethodsOfSize, limit: float | None) -> Case:
    """Return the case of all ``sizes``, each twice the previous one.

    ``axis`` is the label of the x axis, which ends with the letter of the size, such as "points N". ``limit`` is the
    largest ratio of costs from one size to the next; None for no target.
    """
    letter = axis[-1]
    methods: dict[str, Method] = {}
    curves: dict[str, dict[int, str]] = {}
    for size in sizes:
        for line, method in methods_of(size).items():
            name = f"{line}, {letter} = {size:,}"
            # Answers are compared among the methods of one size.
            methods[name] = replace(method, job=str(size))
            curves.setdefault(line, {})[size] = name
    explain_names = list(curves[ours.EXPLAIN].values())
    doublings = itertools.pairwise(explain_names)
    targets = [] if limit is None else [Target(twice, (once,), limit) for once, twice in doublings]
    for size, name in curves.get(ours.EXPLAIN_EXACT, {}).items():
        targets.append(Target(curves[ours.EXPLAIN][size], (name,), ours.MAX_RATIO_TO_EXACT))
    return Case(title, methods, explain_names[0], targets, axis=axis, curves=curves)


def growth_points() -> Case:
    """Return the case of growth with the points."""
    model = mlp(8)
    make = partial(geh.GEHExplainer, model)

    def methods_of(size: int) -> dict[str, Method]:
        x = table(size, 8)
        return {
            **ours.explain_methods(make, x, 200),
            REVERSE: torch_method(vmap_reverse, input_problem(model, x), 200),
        }

    title = "Growth with the points: 8 inputs, hidden 100-100-100, one draw"
    return _sweep(title, "points N", (1000, 2000, 4000, 8000, 16000), methods_of, MAX_DOUBLING_RATIO)


def growth_draws() -> Case:
    """Return the case of growth with the draws."""
    x = table(154, 8)

    def methods_of(size: int) -> dict[str, Method]:
        methods = {}
        for name, engine in ((ours.EXPLAIN, "auto"), (ours.EXPLAIN_EXACT, "exact")):
            explainer = geh.GEHExplainer(mlp(8, (30,), dropout=0.1), engine=engine)
            explain = partial(explainer.explain, x, groups=1, draws=size, progress=False)
            methods[name] = Method(explain, partial(ours.answer_of, explain))
        return methods

    title = "Growth with the draws: 8 inputs, hidden 30 with dropout, 154 points"
    return _sweep(title, "draws K", (25, 50, 100, 200, 400), methods_of, MAX_DOUBLING_RATIO)


def growth_inputs(max_exact: int = 256) -> Case:
    """Return the case of growth with the inputs; above ``max_exact`` of them only explain() is timed."""

    def methods_of(size: int) -> dict[str, Method]:
        model, x = mlp(size), table(200, size)
        methods = ours.explain_methods(partial(geh.GEHExplainer, model), x, 4)
        if size > max_exact:
            del methods[ours.EXPLAIN_EXACT]
        else:
            methods[REVERSE] = torch_method(vmap_reverse, input_problem(model, x), 4)
        return methods

    title = "Growth with the inputs: hidden 100-100-100, 200 points, one draw"
    return _sweep(title, "inputs D", (8, 16, 32, 64, 128, 256, 512, 1024), methods_of, None)


def growth_memory() -> Case:
    """Return the case of peak memory at four times the points and four times the draws."""
    methods = {
        "N = 20,000": _peak_memory(20_000, 1),
        "N = 80,000": _peak_memory(80_000, 1),
        "K = 200": _peak_memory(1000, 200),
        "K = 800": _peak_memory(1000, 800),
    }
    return Case(
        title="Peak memory above that of a tiny run: 8 inputs, hidden 100-100-100",
        methods=methods,
        reference="N = 20,000",
        targets=[
            Target("N = 80,000", ("N = 20,000",), MAX_MEMORY_RATIO),
            Target("K = 800", ("K = 200",), MAX_MEMORY_RATIO),
        ],
        notes=[
            "each run has its own process, which makes the data and explains ten points before memory is measured",
            "the freed memory that the C library retains varies by tens of MB, whatever the number of draws",
        ],
        unit="MB",
        meter=returned_cost,
        rounds=2,
    )


def _peak_memory(points: int, draws: int) -> Method:
    """Return a method that runs in a fresh process and returns its peak memory in megabytes."""
    command = [sys.executable, "-m", "benchmarks.memory", str(points), str(draws)]
    return Method(lambda: float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
