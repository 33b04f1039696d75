"""The cost of the checks of outputs and second derivatives that a run makes at random points."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import geh_explain as geh
from benchmarks import package_methods as ours
from benchmarks.networks import convolutional, images, mlp, table
from benchmarks.timing import Case, Method, Target

#: Largest cost of a run with checks, relative to one without.
MAX_RATIO = 1.05
#: What to replace for a run without checks: the choice of points, for the structured and the exact engine and for
#: outputs, and the comparison of the model before the first draw and after the last one.
_NO_CHECKS: dict[str, Callable[..., Any]] = {
    "geh_explain.engines.structured.engine.choose_points": lambda *args, **options: None,
    "geh_explain.engines.exact.choose_points": lambda *args, **options: None,
    "geh_explain.engines.probes.PartChoice.parts": lambda self, rows: [],
    "geh_explain.engines.exact.custom_functions": lambda value, t: [],
    "geh_explain.run.plan.repeatable_outputs": lambda cut, rows: None,
}


def checks(points: int = 1000, draws: int = 20) -> Case:
    """Return the case of explain() with its checks and without them, at inputs and at a hidden layer."""
    dense, pictures = table(points, 8), images(points, 1, 12, 12)
    jobs = {
        "8 inputs": (geh.GEHExplainer(mlp(8, dropout=0.1)), dense),
        "8 inputs, exact engine": (geh.GEHExplainer(mlp(8, dropout=0.1), engine="exact"), dense),
        "16 channels": (geh.GEHExplainer(convolutional(dropout=0.1), "conv2"), pictures),
    }
    methods, targets = {}, []
    for job, (explainer, x) in jobs.items():
        explain = partial(explainer.explain, x, groups=1, draws=draws, progress=False)
        checked, unchecked = f"explain(), {job}", f"without checks, {job}"
        methods[checked] = Method(explain, partial(ours.answer_of, explain), job=job)
        methods[unchecked] = Method(partial(_unchecked, explain), partial(ours.answer_of, _unchecked, explain), job=job)
        targets.append(Target(checked, (unchecked,), MAX_RATIO))
    return Case(
        title=f"Checks of outputs and second derivatives: 100-100-100, and a small convolutional network, {points:,} "
        f"points, {draws} draws",
        methods=methods,
        reference=next(iter(methods)),
        targets=targets,
        notes=[
            "outputs of chunks are compared with those of a few rows, the structured engine with double backward, and "
            "double backward with differences of gradients"
        ],
    )


def _unchecked(explain: partial[geh.Interactions]) -> Any:
    """Call ``explain`` without checks."""
    with ExitStack() as stack:
        for name, replacement in _NO_CHECKS.items():
            stack.enter_context(patch(name, replacement))
        return explain()
