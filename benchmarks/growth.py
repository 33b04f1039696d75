"""How the cost grows with points, draws and inputs: the same contestants at doubled sizes."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import geh_explain as geh
from benchmarks import own
from benchmarks.networks import mlp, table
from benchmarks.rivals import of_inputs, rival, vmap_reverse
from benchmarks.timing import Case, Contestant, Target, returned

REVERSE = "vmap(jacrev(jacrev))"
#: Twice the points or draws may take this many times as long.
DOUBLED = 2.1
#: Four times the points or draws may take this many times the memory.
CONSTANT = 1.2

#: Makes the contestants of one size, one for each line.
Lines = Callable[[int], dict[str, Contestant]]


def _sweep(title: str, axis: str, letter: str, sizes: Sequence[int], lines: Lines, *, limit: float | None) -> Case:
    """Return the case of all ``sizes``, each twice the one before."""
    contestants: dict[str, Contestant] = {}
    curves: dict[str, dict[int, str]] = {}
    for size in sizes:
        for line, contestant in lines(size).items():
            name = f"{line}, {letter} = {size:,}"
            contestants[name] = contestant
            curves.setdefault(line, {})[size] = name
    own_names = list(curves[own.EXPLAIN].values())
    doubled = itertools.pairwise(own_names)
    targets = [] if limit is None else [Target(twice, (once,), limit) for once, twice in doubled]
    for size, name in curves.get(own.EXPLAIN_EXACT, {}).items():
        targets.append(Target(curves[own.EXPLAIN][size], (name,), own.NEVER_SLOWER))
    return Case(title, contestants, own_names[0], targets, axis=axis, curves=curves)


def growth_points() -> Case:
    """Double the points."""
    model = mlp(8)
    make = partial(geh.GEHExplainer, model)

    def lines(size: int) -> dict[str, Contestant]:
        x = table(size, 8)
        found = {**own.explaining(make, x, 200), REVERSE: rival(vmap_reverse, of_inputs(model, x), 200)}
        return _of_job(found, size)

    title = "Growth with the points: 8 inputs, hidden 100-100-100, one draw"
    return _sweep(title, "points N", "N", (1000, 2000, 4000, 8000, 16000), lines, limit=DOUBLED)


def growth_draws() -> Case:
    """Double the draws."""
    x = table(154, 8)

    def lines(size: int) -> dict[str, Contestant]:
        found = {}
        for name, engine in ((own.EXPLAIN, "auto"), (own.EXPLAIN_EXACT, "exact")):
            explainer = geh.GEHExplainer(mlp(8, (30,), dropout=0.1), engine=engine)
            explain = partial(explainer.explain, x, groups=1, draws=size, progress=False)
            found[name] = Contestant(explain, partial(own.answer_of, explain))
        return _of_job(found, size)

    title = "Growth with the draws: 8 inputs, hidden 30 with dropout, 154 points"
    return _sweep(title, "draws K", "K", (25, 50, 100, 200, 400), lines, limit=DOUBLED)


def growth_inputs(most_exact: int = 256) -> Case:
    """Double the inputs."""

    def lines(size: int) -> dict[str, Contestant]:
        model, x = mlp(size), table(200, size)
        found = own.explaining(partial(geh.GEHExplainer, model), x, 4)
        if size > most_exact:
            del found[own.EXPLAIN_EXACT]
        else:
            found[REVERSE] = rival(vmap_reverse, of_inputs(model, x), 4)
        return _of_job(found, size)

    title = "Growth with the inputs: hidden 100-100-100, 200 points, one draw"
    return _sweep(title, "inputs D", "D", (8, 16, 32, 64, 128, 256, 512, 1024), lines, limit=None)


def memory() -> Case:
    """Multiply points and draws by four, and measure the peak of memory."""
    contestants = {
        "N = 20,000": _peak(20_000, 1),
        "N = 80,000": _peak(80_000, 1),
        "K = 200": _peak(1000, 200),
        "K = 800": _peak(1000, 800),
    }
    return Case(
        title="Peak memory above that of a tiny run: 8 inputs, hidden 100-100-100",
        contestants=contestants,
        reference="N = 20,000",
        targets=[Target("N = 80,000", ("N = 20,000",), CONSTANT), Target("K = 800", ("K = 200",), CONSTANT)],
        notes=[
            "each run in a process of its own, which first explains ten points; the data are there before",
            "pieces of freed memory that the C library keeps come and go by tens of MB, however many draws there are",
        ],
        unit="MB",
        meter=returned,
        rounds=2,
    )


def _peak(points: int, draws: int) -> Contestant:
    command = [sys.executable, "-m", "benchmarks.memory", str(points), str(draws)]
    return Contestant(lambda: float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def _of_job(contestants: dict[str, Contestant], size: int) -> dict[str, Contestant]:
    return {name: replace(contestant, job=str(size)) for name, contestant in contestants.items()}
