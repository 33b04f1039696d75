"""How contestants are timed: in turns, so that whatever else the machine does hits all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: However slow a round is, a case has at least this many.
FEWEST_ROUNDS = 3
#: A turn of a quick contestant repeats it for this many seconds, and gives the best.
TURN = 0.2
#: Between turns the machine rests, as threads of the contestant before may spin for a while.
REST = 0.1
#: How far the contestants' answers may be apart, relative to the largest entry of the first one's.
TOLERANCE = 1e-4

Answer = Callable[[], NDArray[np.float64]]


@dataclass(frozen=True)
class Contestant:
    """One way to do a job.

    ``answer`` gives what all contestants with the same ``job`` must agree on; None says that this one computes
    another quantity, and is there for its cost alone. One that does only ``part`` of the job, in words, has a
    ``scale`` that its time is multiplied by.
    """

    run: Callable[[], Any]
    answer: Answer | None = None
    scale: float = 1.0
    part: str = ""
    job: str = ""


@dataclass(frozen=True)
class Target:
    """One contestant may cost at most ``limit`` times what the best of some rivals does; below 1 it has to win."""

    contestant: str
    rivals: tuple[str, ...]
    limit: float


def counted(count: int, thing: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def clock(call: Callable[[], Any]) -> float:
    """Return the seconds of one call, the best of several if it is quick."""
    begin, best = perf_counter(), float("inf")
    while True:
        start = perf_counter()
        call()
        now = perf_counter()
        best = min(best, now - start)
        if now - begin >= TURN:
            return best


def returned(call: Callable[[], Any]) -> float:
    """Return what the call itself has measured."""
    return float(call())


@dataclass(frozen=True)
class Case:
    """Jobs, the contestants that do them, and what their costs should be to each other.

    ``points`` is how many points are explained, for the cost of one. ``curves`` are sizes and contestants of each
    line in the picture of growth along ``axis``. ``rounds`` sets their number where time should not.
    """

    title: str
    contestants: Mapping[str, Contestant]
    reference: str
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    points: int | None = None
    axis: str = ""
    curves: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    unit: str = "ms"
    meter: Callable[[Callable[[], Any]], float] = clock
    rounds: int | None = None


def check(case: Case) -> float | None:
    """Raise unless all contestants of a job give the same answer; return how far they are apart, None if alone."""
    first: dict[str, tuple[str, NDArray[np.float64]]] = {}
    worst: float | None = None
    for name, contestant in case.contestants.items():
        if contestant.answer is None:
            continue
        found = contestant.answer()
        other, expected = first.setdefault(contestant.job, (name, found))
        if other == name:
            continue
        apart = float(np.abs(found - expected).max() / np.abs(expected).max())
        # Not "apart > TOLERANCE": that lets NaN pass.
        if not apart <= TOLERANCE:
            raise RuntimeError(
                f"{case.title}: {name!r} and {other!r} are {apart:.1e} apart, more than {TOLERANCE:.0e}; "
                "their times cannot be compared."
            )
        worst = max(worst or 0.0, apart)
    return worst


def race(case: Case, seconds: float) -> dict[str, list[float]]:
    """Measure the contestants in turns (A, B, C, A, B, C, ...) for about ``seconds``, after one round to warm up."""
    costs: dict[str, list[float]] = {name: [] for name in case.contestants}
    if case.meter is clock:
        for contestant in case.contestants.values():
            contestant.run()
    end = perf_counter() + seconds
    fewest = case.rounds or FEWEST_ROUNDS
    while len(costs[case.reference]) < fewest or (case.rounds is None and perf_counter() < end):
        for name, contestant in case.contestants.items():
            sleep(REST)
            costs[name].append(case.meter(contestant.run) * contestant.scale)
    return costs
