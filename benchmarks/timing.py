"""How contestants are timed: in turns, so that whatever else the machine does hits all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: However slow a round is, a case has at least this many.
FEWEST_ROUNDS = 3
#: How far the contestants' answers may be apart, relative to the largest entry of the reference's.
TOLERANCE = 1e-4
#: A median this many times the best means that the machine was busy with something else.
QUIET = 1.5


@dataclass(frozen=True)
class Target:
    """One contestant may take at most ``limit`` times as long as another; below 1 it has to be faster."""

    contestant: str
    rival: str
    limit: float

    def met(self, ratio: float) -> bool:
        """Tell whether a ratio of times keeps the target."""
        return ratio <= self.limit

    def words(self, ratio: float) -> str:
        """Say a ratio of times the way the target is said."""
        return f"{1 / ratio:.3g}x faster" if self.limit < 1 else f"{ratio:.3g}x the time"


@dataclass(frozen=True)
class Case:
    """One job, the contestants that do it, and what their times should be to each other.

    ``answers`` give what must be the same for all contestants, in the same shape. A contestant that does
    only a part of the job has a factor in ``scales`` that its time is multiplied by.
    """

    name: str
    contestants: Mapping[str, Callable[[], Any]]
    reference: str
    targets: list[Target]
    answers: Mapping[str, Callable[[], NDArray[np.float64]]]
    scales: Mapping[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Times:
    """The seconds that each round of one contestant took."""

    seconds: list[float]

    @property
    def best(self) -> float:
        """The fastest round: the one that was disturbed least."""
        return min(self.seconds)

    @property
    def middle(self) -> float:
        """The median round."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """How many times longer the median round took than the best: 1 on a quiet machine."""
        return self.middle / self.best


def check(case: Case) -> float:
    """Raise unless all contestants give the reference's answer; return how far they are apart."""
    if set(case.answers) != set(case.contestants):
        raise ValueError(f"{case.name}: every contestant needs an answer, and only contestants have one.")
    expected = case.answers[case.reference]()
    worst = 0.0
    for name, answer in case.answers.items():
        apart = float(np.abs(answer() - expected).max() / np.abs(expected).max())
        # Not "apart > TOLERANCE": that lets NaN pass.
        if not apart <= TOLERANCE:
            raise RuntimeError(
                f"{case.name}: {name!r} and {case.reference!r} are {apart:.1e} apart, more than {TOLERANCE:.0e}; "
                "their times cannot be compared."
            )
        worst = max(worst, apart)
    return worst


def race(case: Case, seconds: float) -> dict[str, Times]:
    """Time the contestants in turns (A, B, C, A, B, C, ...) for about ``seconds``, after one round to warm up."""
    times = {name: Times([]) for name in case.contestants}
    for call in case.contestants.values():
        call()
    end = perf_counter() + seconds
    done = 0
    while done < FEWEST_ROUNDS or perf_counter() < end:
        for name, call in case.contestants.items():
            start = perf_counter()
            call()
            times[name].seconds.append((perf_counter() - start) * case.scales.get(name, 1.0))
        done += 1
    return times
