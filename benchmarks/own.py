"""The package's own contestants."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm.auto import tqdm

import geh_explain as geh
from benchmarks.timing import Contestant, Target, counted
from geh_explain.engines import GroupSums
from geh_explain.model.borrow import borrow
from geh_explain.run.loop import _sums, run
from geh_explain.run.plan import Job

EXPLAIN, EXPLAIN_EXACT = "explain()", "explain(), exact engine"
BARE, BARE_EXACT = "bare engine", "bare exact engine"
DRAWS = 20
PER_DRAW = f"per draw of {DRAWS}"
#: The choice of engine, whatever it is, must never cost more than this.
NEVER_SLOWER = 1.1

#: Makes the explainer of a case: takes the keywords engine= and posterior=.
Make = Callable[..., geh.GEHExplainer]


def explaining(make: Make, x: Tensor, checked: int, target: int | None = None) -> dict[str, Contestant]:
    """Return whole calls of explain(), with the engine it chooses and with the exact one.

    Their answers are those for the first ``checked`` points.
    """
    found = {}
    for name, engine in ((EXPLAIN, "auto"), (EXPLAIN_EXACT, "exact")):
        explainer = make(engine=engine, posterior=geh.posterior.PointEstimate())
        explain = partial(explainer.explain, target=target, groups=1, progress=False)
        found[name] = Contestant(partial(explain, x), partial(answer_of, explain, x[:checked]))
    return found


def bare(
    make: Make, x: Tensor, checked: int, target: int | None = None, exact_on: int | None = None
) -> dict[str, Contestant]:
    """Return bare engines: sums over all points, without reading, checks, regions or a result around them.

    The exact engine is timed on the first ``exact_on`` points, and scaled.
    """
    found = {}
    for name, engine, rows in ((BARE, "auto", len(x)), (BARE_EXACT, "exact", exact_on or len(x))):
        explainer = make(engine=engine, posterior=geh.posterior.PointEstimate())
        part = "" if rows == len(x) else counted(rows, "point")
        answer = partial(_bare_answer, explainer, x[:checked], target)
        found[name] = Contestant(bare_sums(explainer, x[:rows], target), answer, len(x) / rows, part)
    return found


def per_draw(make: Make, x: Tensor, checked: int) -> dict[str, Contestant]:
    """Return one draw among several, of a network with dropout so rare that none of these draws drops anything."""
    explainer = make(engine="auto", posterior=geh.posterior.MCDropout())
    explain = partial(explainer.explain, groups=1, draws=DRAWS, progress=False)
    return {PER_DRAW: Contestant(partial(explain, x), partial(answer_of, explain, x[:checked]), 1 / DRAWS)}


def against(contestants: dict[str, Contestant], rivals: tuple[str, ...], times: float) -> list[Target]:
    """Return the targets that each of our contestants be so many times faster than the best of ``rivals``."""
    return [Target(name, rivals, 1 / times) for name in (EXPLAIN, PER_DRAW, BARE) if name in contestants]


def never_slower(contestants: dict[str, Contestant]) -> list[Target]:
    """Return the targets that the engine chosen by itself keeps up with the exact one."""
    pairs = ((EXPLAIN, EXPLAIN_EXACT), (BARE, BARE_EXACT))
    return [Target(own, (exact,), NEVER_SLOWER) for own, exact in pairs if {own, exact} <= set(contestants)]


def prepared(explainer: geh.GEHExplainer, x: Tensor, target: int | None = None) -> Job:
    """Return what an explainer works on, ready for any number of sums over one group."""
    with borrow(explainer.model):
        job = explainer._bench.prepare(x, target, None, groups=1, batch_size=None, seed=0)
        run(job, draws=1, seed=0, progress=False)
    return job


def bare_sums(explainer: geh.GEHExplainer, x: Tensor, target: int | None = None) -> Callable[[], GroupSums]:
    """Return the sums over one group without anything around them."""
    return partial(_of_job, prepared(explainer, x, target))


def _of_job(job: Job) -> GroupSums:
    job.engine.start(0)
    return _sums(job, tqdm(disable=True), slice(0, len(job.points)))


def engine_note(explainer: geh.GEHExplainer, x: Tensor, target: int | None = None) -> str:
    """Say which engine the explainer chooses, and whether it spares points."""
    job = prepared(explainer, x, target)
    skipped = _of_job(job).skipped
    estimate = f"; EAH is estimated from {len(x) - skipped} of the points" if skipped else ""
    return f"explain() chose the {job.engine.name} engine: {job.reason}{estimate}"


def aeh_and_eah(result: geh.Interactions) -> NDArray[np.float64]:
    """Return the two measures (2, P) that need no groups, of the last draw."""
    return np.stack([result.aeh.draws[-1], result.eah.draws[-1]])


def answer_of(explain: Callable[..., geh.Interactions], *args: Any, **keywords: Any) -> NDArray[np.float64]:
    """Call ``explain`` and return the measures of its last draw."""
    return aeh_and_eah(explain(*args, **keywords))


def _bare_answer(explainer: geh.GEHExplainer, x: Tensor, target: int | None) -> NDArray[np.float64]:
    sums = bare_sums(explainer, x, target)()
    aeh, eah = sums.signed.abs().flatten() / len(x), sums.absolute.flatten() / (len(x) - sums.skipped)
    return torch.stack([aeh, eah]).numpy()
