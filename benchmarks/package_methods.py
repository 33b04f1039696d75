"""Methods of the package: whole calls of explain(), and its engines alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import geh_explain as geh
from benchmarks.timing import Method, Target, count_noun
from geh_explain.engines import GroupSums
from geh_explain.model.preserve import preserved
from geh_explain.run.loop import run_draws
from geh_explain.run.options import RunOptions
from geh_explain.run.plan import RunPlan, make_plan
from geh_explain.run.resources import run_resources

#: Names of whole calls of explain(), with the engine that it chooses and with the exact one.
EXPLAIN = "explain()"
EXPLAIN_EXACT = "explain(), exact engine"
#: Names of the engines alone.
BARE = "bare engine"
BARE_EXACT = "bare exact engine"
#: Draws over which the cost of one draw is averaged.
DRAWS = 20
PER_DRAW = f"per draw of {DRAWS}"
#: Largest cost of the engine that is chosen automatically, relative to the exact engine.
MAX_RATIO_TO_EXACT = 1.1

#: Returns the explainer of a case for the keywords engine= and posterior=.
MakeExplainer = Callable[..., geh.GEHExplainer]


def explain_methods(make: MakeExplainer, x: Tensor, checked: int, target: int | None = None) -> dict[str, Method]:
    """Return whole calls of explain(), with the engine that it chooses and with the exact one.

    Their answers are for the first ``checked`` points.
    """
    methods = {}
    for name, engine in ((EXPLAIN, "auto"), (EXPLAIN_EXACT, "exact")):
        explainer = make(engine=engine, posterior=geh.posterior.PointEstimate())
        explain = partial(explainer.explain, target=target, groups=1, progress=False)
        methods[name] = Method(partial(explain, x), partial(answer_of, explain, x[:checked]))
    return methods


def engine_methods(
    make: MakeExplainer, x: Tensor, checked: int, target: int | None = None, exact_points: int | None = None
) -> dict[str, Method]:
    """Return the engines alone: sums over all points, without reading, checks, groups or a result.

    The exact engine is timed on the first ``exact_points`` points and scaled.
    """
    methods = {}
    for name, engine, rows in ((BARE, "auto", len(x)), (BARE_EXACT, "exact", exact_points or len(x))):
        explainer = make(engine=engine, posterior=geh.posterior.PointEstimate())
        timed_on = "" if rows == len(x) else count_noun(rows, "point")
        answer = partial(_bare_answer, explainer, x[:checked], target)
        methods[name] = Method(bare_sums(explainer, x[:rows], target), answer, len(x) / rows, timed_on)
    return methods


def per_draw_method(make: MakeExplainer, x: Tensor, checked: int) -> dict[str, Method]:
    """Return one of several draws; the dropout of the network should be so rare that no draw drops a unit."""
    explainer = make(engine="auto", posterior=geh.posterior.MCDropout())
    explain = partial(explainer.explain, groups=1, draws=DRAWS, progress=False)
    return {PER_DRAW: Method(partial(explain, x), partial(answer_of, explain, x[:checked]), 1 / DRAWS)}


def speedup_targets(methods: dict[str, Method], alternatives: tuple[str, ...], speedup: float) -> list[Target]:
    """Return the targets that the package's methods are ``speedup`` times faster than the best alternative."""
    return [Target(name, alternatives, 1 / speedup) for name in (EXPLAIN, PER_DRAW, BARE) if name in methods]


def exact_targets(methods: dict[str, Method]) -> list[Target]:
    """Return the targets that the engine chosen automatically is not slower than the exact one."""
    pairs = ((EXPLAIN, EXPLAIN_EXACT), (BARE, BARE_EXACT))
    return [Target(auto, (exact,), MAX_RATIO_TO_EXACT) for auto, exact in pairs if {auto, exact} <= set(methods)]


def warmed_up_plan(explainer: geh.GEHExplainer, x: Tensor, target: int | None = None) -> RunPlan:
    """Return the plan of a run over one group, after one draw that warms its engine up."""
    options = RunOptions(target=target, groups=1, draws=1, progress=False)
    with preserved(explainer.model), run_resources(options) as resources:
        plan = make_plan(explainer._setup, x, options, resources)
        run_draws(plan)
    return plan


def bare_sums(explainer: geh.GEHExplainer, x: Tensor, target: int | None = None) -> Callable[[], GroupSums]:
    """Return a function that computes the sums over one group, without any other work."""
    return partial(_sum_points, warmed_up_plan(explainer, x, target))


def _sum_points(plan: RunPlan) -> GroupSums:
    """Return the sums over all points of a plan, of one draw, by calling its engine alone."""
    engine, labels = plan.engine, plan.grouping.labels
    sums = GroupSums.zeros(len(plan.grouping.names), plan.cut.n_units)
    with plan.cut.viewed(plan.view):
        engine.begin_draw(0)
        for rows in plan.points.batches():
            for chunk in rows.split(engine.chunk_rows(rows)):
                engine.add(sums, chunk, labels[chunk.start : chunk.start + len(chunk)])
        engine.end_draw(sums)
    return sums


def engine_note(explainer: geh.GEHExplainer, x: Tensor, target: int | None = None) -> str:
    """Return the engine that the explainer chooses, its reason, and the points that it skips, in words."""
    plan = warmed_up_plan(explainer, x, target)
    skipped = _sum_points(plan).skipped
    estimate = f"; EAH is estimated from {len(x) - skipped} of the points" if skipped else ""
    return f"explain() chose the {plan.engine.name} engine: {plan.engine_reason}{estimate}"


def aeh_and_eah(result: geh.Interactions) -> NDArray[np.float64]:
    """Return AEH and EAH (2, P) of the last draw, the measures that need no groups."""
    return np.stack([result.aeh.draws[-1], result.eah.draws[-1]])


def answer_of(explain: Callable[..., geh.Interactions], *args: Any, **kwargs: Any) -> NDArray[np.float64]:
    """Call ``explain`` and return AEH and EAH (2, P) of its last draw."""
    return aeh_and_eah(explain(*args, **kwargs))


def _bare_answer(explainer: geh.GEHExplainer, x: Tensor, target: int | None) -> NDArray[np.float64]:
    """Return AEH and EAH (2, P) from the sums of the engine alone."""
    sums = bare_sums(explainer, x, target)()
    aeh, eah = sums.signed.abs().flatten() / len(x), sums.absolute.flatten() / (len(x) - sums.skipped)
    return torch.stack([aeh, eah]).numpy()
