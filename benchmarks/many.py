"""Cases of many draws: the paper's energy data, and every number of groups at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

import geh_explain as geh
from benchmarks import own
from benchmarks.networks import mlp, table
from benchmarks.rivals import Form, aeh_and_eah, double_backward, notebook_loop, of_inputs
from benchmarks.tables import BARE_RIVALS, LOOP, LOOP_POINTS
from benchmarks.timing import Case, Contestant, Target

#: Rivals are timed on this many draws; answers must agree for the last of them.
FEW_DRAWS = 3


def energy(points: int = 154, draws: int = 200) -> Case:
    """Explain 200 draws of MC dropout at as many points as the energy data has for tests."""
    model, x = mlp(8, (30,), dropout=0.1), table(points, 8)
    contestants = {}
    for name, engine in ((own.EXPLAIN, "auto"), (own.EXPLAIN_EXACT, "exact")):
        explainer = geh.GEHExplainer(model, posterior=geh.posterior.MCDropout(), engine=engine)
        explain = partial(explainer.explain, x, groups=1, progress=False)
        contestants[name] = Contestant(partial(explain, draws=draws), partial(own.answer_of, explain, draws=FEW_DRAWS))
    networks = list(_drawn(model, x, FEW_DRAWS))
    for name, form, rows in ((LOOP, notebook_loop, LOOP_POINTS), ("double backward", double_backward, points)):
        part = f"{FEW_DRAWS} draws" + ("" if rows == points else f", {rows} points")
        run, answer = partial(_all, form, networks, x[:rows]), partial(_last, form, networks, x)
        contestants[name] = Contestant(run, answer, draws / FEW_DRAWS * points / rows, part)
    return Case(
        title=f"8 inputs, hidden 30 with dropout, {points} points, {draws} draws",
        contestants=contestants,
        reference=own.EXPLAIN,
        targets=[Target(own.EXPLAIN, (LOOP,), 1 / 500), *own.never_slower(contestants)],
        notes=[own.engine_note(geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate()), x), BARE_RIVALS],
        points=points * draws,
    )


def group_curve() -> Case:
    """Score every number of groups from 1 to 60 in one pass, against 11 groups alone."""
    explainer, x = geh.GEHExplainer(mlp(8, dropout=0.1)), table(1000, 8)
    explain = partial(explainer.explain, x, groups=11, draws=20, progress=False)
    choose = partial(explainer.choose_groups, x, max_groups=60, draws=20, progress=False)
    curve, alone = "choose_groups(), 1 to 60", "explain(), 11 groups"
    return Case(
        title="Every number of groups: 8 inputs, hidden 100-100-100 with dropout, 1,000 points, 20 draws",
        # Regions are nested, so the curve's point at 11 groups is the score that explain() gives for 11.
        contestants={
            curve: Contestant(choose, lambda: choose().scores[10]),
            alone: Contestant(explain, lambda: explain().geh.draws.mean(axis=0)),
        },
        reference=alone,
        targets=[Target(curve, (alone,), 1.2)],
    )


class _Masked(nn.Module):
    """A dropout that has drawn."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask


def _drawn(model: nn.Sequential, x: Tensor, draws: int) -> Iterator[nn.Sequential]:
    """Yield the networks that MC dropout draws, with masks as plain factors: the notebook's fixed noise."""
    for draw in geh.posterior.MCDropout().draws(model, draws, seed=0):
        masks: dict[int, nn.Module] = {}

        def note(place: int, module: nn.Module, args: Any, out: Tensor, masks: dict[int, nn.Module] = masks) -> None:
            masks[place] = _Masked((out / args[0])[0])  # what enters is a softplus, and never 0

        places = [place for place, module in enumerate(model) if isinstance(module, nn.Dropout)]
        handles = [model[place].register_forward_hook(partial(note, place)) for place in places]
        with draw:
            model(x[:1])
        for handle in handles:
            handle.remove()
        yield nn.Sequential(*(masks.get(place, module) for place, module in enumerate(model)))


def _all(form: Form, networks: list[nn.Sequential], x: Tensor) -> None:
    for network in networks:
        form(of_inputs(network, x))


def _last(form: Form, networks: list[nn.Sequential], x: Tensor) -> NDArray[np.float64]:
    return aeh_and_eah(form(of_inputs(networks[-1], x)))
