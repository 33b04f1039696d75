"""Cases on tabular data: fully connected networks as in the paper, with 8 to 5,000 inputs."""

from __future__ import annotations

from functools import partial

import torch

import geh_explain as geh
from benchmarks import other_methods
from benchmarks import package_methods as ours
from benchmarks.networks import mlp, table
from benchmarks.profiling import describe_call, describe_operations
from benchmarks.timing import Case, Method, Target
from benchmarks.torch_hessians import TORCH_HESSIANS, double_backward, input_problem, notebook_loop, torch_method

#: Name of the loop over points and columns in Python.
LOOP = "notebook loop"
#: Points on which the loop is timed; with all of them a round would take seconds.
LOOP_POINTS = 20
#: Dropout rate so small that no draw drops a unit: the work of dropout with the answer of the plain network.
RARE_DROPOUT = 1e-6
#: Name of the lower bound.
FLOOR = "two products alone"
#: Note on the methods of torch.
TORCH_NOTE = "vmap, double backward, loop: bare local Hessians of frozen weights, without sums, checks or a result"


def narrow(
    inputs: int,
    points_of_others: tuple[int, int, int],
    checked: int,
    *,
    with_loop: bool = False,
    speedup: float | None = None,
) -> Case:
    """Return the case of all pairs of a network's inputs at 1,000 points.

    Parameters
    ----------
    inputs
        Number of inputs.
    points_of_others
        Points on which SHAP, shapiq and integrated Hessians are timed.
    checked
        Points on which the answers must agree.
    with_loop
        Time the loop of the paper's notebook too.
    speedup
        Target against the methods of torch; None for no target and no lower bound.
    """
    points = 1000
    model, x = mlp(inputs), table(points, inputs)
    make = partial(geh.GEHExplainer, model)
    make_dropout = partial(geh.GEHExplainer, mlp(inputs, dropout=RARE_DROPOUT))
    methods = {
        **ours.explain_methods(make, x, checked),
        **({} if speedup is None else ours.per_draw_method(make_dropout, x, checked)),
        **ours.engine_methods(make, x, checked),
        **{name: torch_method(form, input_problem(model, x), checked) for name, form in TORCH_HESSIANS.items()},
    }
    targets = [] if speedup is None else ours.speedup_targets(methods, tuple(TORCH_HESSIANS), speedup)
    if with_loop:
        methods[LOOP] = torch_method(notebook_loop, input_problem(model, x), checked, LOOP_POINTS)
        targets = [*ours.speedup_targets(methods, (LOOP,), 300), *targets, Target(ours.EXPLAIN, (ours.BARE,), 1.3)]
    notes = [ours.engine_note(make(), x), TORCH_NOTE, *other_methods.missing_notes()]
    if speedup is not None:
        methods[FLOOR] = _floor_method(inputs, points)
        notes += [
            describe_operations(make(posterior=geh.posterior.PointEstimate()), x),
            f"{FLOOR}: the matrix products that take every direction of every point through the two inner layers; a "
            "lower bound for any method that propagates directions",
            describe_call(partial(make(posterior=geh.posterior.PointEstimate()).explain, x, groups=1, progress=False)),
            "explain() is timed on an explainer that was called before: its structured engine is not compared with two "
            "backward passes again",
        ]
    others = other_methods.make_methods(lambda t: model(t)[:, 0], x, x.mean(dim=0, keepdim=True), points_of_others)
    return Case(
        title=f"{inputs} inputs, hidden 100-100-100, {points:,} points",
        methods={**methods, **others},
        reference=ours.EXPLAIN,
        targets=[*targets, *ours.exact_targets(methods)],
        notes=notes,
        points=points,
    )


def _floor_method(inputs: int, points: int, width: int = 100) -> Method:
    """Return two matrix products of the size that all directions of all points have."""
    directions, weight = torch.randn(inputs * points, width), torch.randn(width, width)
    return Method(lambda: directions @ weight @ weight)


def wide(inputs: int, hidden: tuple[int, ...], timed_points: int, columns: int, *, speedup: float) -> Case:
    """Return the case of all pairs of very many inputs at 500 points.

    The methods of torch and the exact engine are timed on ``timed_points`` points, double backward on ``columns``
    columns of the Hessians at all points; costs are scaled. ``speedup`` is the target against the methods of torch.
    """
    points, checked = 500, 4
    model, x = mlp(inputs, hidden), table(points, inputs)
    make = partial(geh.GEHExplainer, model)
    methods = {
        **ours.explain_methods(make, x, checked),
        **ours.engine_methods(make, x, checked, exact_points=timed_points),
    }
    del methods[ours.EXPLAIN_EXACT]  # takes minutes
    problem = input_problem(model, x)
    methods |= {name: torch_method(form, problem, checked, timed_points) for name, form in TORCH_HESSIANS.items()}
    # All columns cost the same, and a column is cheapest for all points at once.
    methods["double backward"] = Method(
        partial(double_backward, problem, columns),
        methods["double backward"].answer,
        inputs / columns,
        f"{columns} columns",
    )
    return Case(
        title=f"{inputs:,} inputs, hidden {'-'.join(map(str, hidden))}, {points} points",
        methods=methods,
        reference=ours.EXPLAIN,
        targets=[*ours.speedup_targets(methods, tuple(TORCH_HESSIANS), speedup), *ours.exact_targets(methods)],
        notes=[ours.engine_note(make(), x), TORCH_NOTE],
        points=points,
    )
