"""Cases on tables: fully connected networks of the paper's kind, from 8 to 5,000 inputs."""

from __future__ import annotations

from functools import partial

import torch

import geh_explain as geh
from benchmarks import own
from benchmarks.networks import mlp, table
from benchmarks.others import others, skipped
from benchmarks.profile import shares
from benchmarks.rivals import RIVALS, double_backward, notebook_loop, of_inputs, rival
from benchmarks.timing import Case, Contestant

LOOP = "notebook loop"
#: The loop over points is timed on the first few, or a round would take seconds.
LOOP_POINTS = 20
#: Dropout so rare that no draw of a benchmark drops anything: all of the work, and the plain network's answer.
RARE = 1e-6
FLOOR = "two products alone"
BARE_RIVALS = "vmap, double backward, loop: bare local Hessians of frozen weights, without sums, checks or a result"


def narrow(
    inputs: int, few: tuple[int, int, int], checked: int, *, loop: bool = False, times: float | None = None
) -> Case:
    """Explain all pairs of a network's inputs at 1,000 points.

    ``few`` are the points for methods of other kinds, ``checked`` those on which answers must agree.
    """
    points = 1000
    model, x = mlp(inputs), table(points, inputs)
    make = partial(geh.GEHExplainer, model)
    contestants = {
        **own.explaining(make, x, checked),
        **({} if times is None else own.per_draw(partial(geh.GEHExplainer, mlp(inputs, dropout=RARE)), x, checked)),
        **own.bare(make, x, checked),
        **{name: rival(form, of_inputs(model, x), checked) for name, form in RIVALS.items()},
    }
    targets = [] if times is None else own.against(contestants, tuple(RIVALS), times)
    if loop:
        contestants[LOOP] = rival(notebook_loop, of_inputs(model, x), checked, LOOP_POINTS)
        targets = [*own.against(contestants, (LOOP,), 300), *targets]
    notes = [own.engine_note(make(), x), BARE_RIVALS, *skipped()]
    if times is not None:
        contestants[FLOOR] = _floor(inputs, points)
        notes += [
            shares(make(posterior=geh.posterior.PointEstimate()), x),
            f"{FLOOR}: every direction of every point through the two inner layers, as two matrix products, with "
            "nothing else; what any method that carries directions cannot go below",
            "explain() does once per call, on a few rows, what does not grow with points or draws: a look for kinks, "
            "two backward passes and the structured engine's answer to compare with them, and whether rows are mixed",
        ]
    return Case(
        title=f"{inputs} inputs, hidden 100-100-100, {points:,} points",
        contestants={**contestants, **others(lambda t: model(t)[:, 0], x, x.mean(dim=0, keepdim=True), few)},
        reference=own.EXPLAIN,
        targets=[*targets, *own.never_slower(contestants)],
        notes=notes,
        points=points,
    )


def _floor(inputs: int, points: int, width: int = 100) -> Contestant:
    directions, weight = torch.randn(inputs * points, width), torch.randn(width, width)
    return Contestant(lambda: directions @ weight @ weight)


def wide(inputs: int, hidden: tuple[int, ...], few: int, columns: int, *, times: float) -> Case:
    """Explain all pairs of very many inputs at 500 points.

    Rivals and the exact engine are timed on ``few`` points, or on ``columns`` of the Hessians at all points, and
    scaled.
    """
    points, checked = 500, 4
    model, x = mlp(inputs, hidden), table(points, inputs)
    make = partial(geh.GEHExplainer, model)
    contestants = {**own.explaining(make, x, checked), **own.bare(make, x, checked, exact_on=few)}
    del contestants[own.EXPLAIN_EXACT]  # minutes
    problem = of_inputs(model, x)
    contestants |= {name: rival(form, problem, checked, few) for name, form in RIVALS.items()}
    # A column costs the same as any other, and is cheapest for all points at once.
    contestants["double backward"] = Contestant(
        partial(double_backward, problem, columns),
        contestants["double backward"].answer,
        inputs / columns,
        f"{columns} columns",
    )
    return Case(
        title=f"{inputs:,} inputs, hidden {'-'.join(map(str, hidden))}, {points} points",
        contestants=contestants,
        reference=own.EXPLAIN,
        targets=[*own.against(contestants, tuple(RIVALS), times), *own.never_slower(contestants)],
        notes=[own.engine_note(make(), x), BARE_RIVALS],
        points=points,
    )
