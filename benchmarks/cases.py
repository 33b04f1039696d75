"""The jobs that are timed. To add one, write a function that returns a :class:`Case` and list it in ``CASES``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm.auto import tqdm

import geh_explain as geh
from benchmarks.rivals import aeh_and_eah, double_backward, notebook_loop, vmap_hessian
from benchmarks.timing import Case, Target
from geh_explain.hessian import GroupSums
from geh_explain.run import _sums

POINTS, UNITS = 1000, 8
#: The loop over points is timed on the first few, or a round would take seconds.
LOOP_POINTS = 50


def one_draw() -> Case:
    """Explain all pairs of eight inputs of one network, against bare Hessians."""
    model, x = _network(), _points()
    explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
    explain = partial(explainer.explain, x, groups=1, progress=False)
    engine = _bare_engine(explainer, x)
    rivals = {"vmap(hessian)": vmap_hessian, "double backward": double_backward, "notebook loop": notebook_loop}
    # With weights that want gradients torch.func would record a graph for them too, and take up to twice as long.
    frozen = _network().requires_grad_(False)
    contestants = {name: partial(rival, frozen, x) for name, rival in rivals.items()}
    answers = {name: _answer(call) for name, call in contestants.items()}
    contestants["notebook loop"] = partial(notebook_loop, frozen, x[:LOOP_POINTS])
    return Case(
        name=f"{UNITS} inputs, 100-100-100 softplus, {POINTS:,} points, one draw",
        contestants={"explain()": explain, "bare engine": engine, **contestants},
        reference="vmap(hessian)",
        targets=[Target("explain()", "notebook loop", 1 / 100), Target("explain()", "vmap(hessian)", 1.2)],
        answers={
            "explain()": lambda: _aeh_and_eah_of(explain()),
            "bare engine": lambda: _aeh_and_eah_of_sums(engine()),
            **answers,
        },
        scales={"notebook loop": POINTS / LOOP_POINTS},
        notes=[
            f"notebook loop: timed on {LOOP_POINTS} points, scaled to {POINTS:,}; its answer is checked on all of them",
            "rivals: bare local Hessians, without sums, checks or a result; frozen weights, their best",
        ],
    )


def group_curve() -> Case:
    """Score every number of groups from 1 to 60 in one pass, against 11 groups alone."""
    explainer, x = geh.GEHExplainer(_network(dropout=0.1)), _points()
    explain = partial(explainer.explain, x, groups=11, draws=20, progress=False)
    choose = partial(explainer.choose_groups, x, max_groups=60, draws=20, progress=False)
    return Case(
        name=f"{UNITS} inputs, 100-100-100 softplus with dropout, {POINTS:,} points, 20 draws",
        contestants={"choose_groups, 1..60": choose, "explain, 11 groups": explain},
        reference="explain, 11 groups",
        targets=[Target("choose_groups, 1..60", "explain, 11 groups", 1.5)],
        # Regions are nested, so the curve's point at 11 groups is the score that explain() gives for 11.
        answers={
            "choose_groups, 1..60": lambda: choose().scores[10],
            "explain, 11 groups": lambda: explain().geh.draws.mean(axis=0),
        },
    )


#: Every case by the name it has on the command line.
CASES: dict[str, Callable[[], Case]] = {"one-draw": one_draw, "group-curve": group_curve}


def _network(dropout: float = 0.0) -> nn.Module:
    """Return an untrained network of the paper's size: curvature costs the same before training."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for width in (UNITS, 100, 100):
            layers += [nn.Linear(width, 100), nn.Softplus(beta=10), *([nn.Dropout(dropout)] if dropout else [])]
        return nn.Sequential(*layers, nn.Linear(100, 1)).eval()


def _points() -> Tensor:
    return 0.5 + torch.rand(POINTS, UNITS, generator=torch.Generator().manual_seed(1))


def _bare_engine(explainer: geh.GEHExplainer, x: Tensor) -> Callable[[], GroupSums]:
    """Return the sums over one group without anything around them: no reading, checks, regions or result."""
    job = explainer._prepare(x, None, None, groups=1, batch_size=None, seed=0)
    return partial(_sums, job, tqdm(disable=True))


def _answer(hessians: Callable[[], Tensor]) -> Callable[[], NDArray[np.float64]]:
    return lambda: aeh_and_eah(hessians())


def _aeh_and_eah_of(result: geh.Interactions) -> NDArray[np.float64]:
    return np.stack([result.aeh.draws[0], result.eah.draws[0]])


def _aeh_and_eah_of_sums(sums: GroupSums) -> NDArray[np.float64]:
    return torch.stack([sums.signed[0].abs(), sums.absolute]).numpy() / POINTS
