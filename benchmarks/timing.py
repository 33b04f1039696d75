"""Cases, methods and their timing: methods run in turns, so that other load on the machine affects all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Minimal rounds of a case, however slow they are.
MIN_ROUNDS = 3
#: Seconds of a turn: a fast method is repeated for this long, and its best run counts.
TURN_SECONDS = 0.2
#: Seconds between turns, in which idle threads of the previous method stop spinning.
REST_SECONDS = 0.1
#: Largest difference between the answers of two methods, relative to the largest entry of the first answer.
TOLERANCE = 1e-4

#: Computes the numbers on which all methods of a job must agree.
Answer = Callable[[], NDArray[np.float64]]


@dataclass(frozen=True)
class Method:
    """One way to do a job.

    Parameters
    ----------
    run
        The call that is timed.
    answer
        Returns the numbers on which all methods of a job must agree; None for a method that computes another quantity
        and is compared by its cost alone.
    scale
        Factor of the measured cost, for a method that does only a part of the job.
    timed_on
        That part in words, such as "20 points"; empty for the whole job.
    job
        Methods with the same job are compared with each other.
    """

    run: Callable[[], Any]
    answer: Answer | None = None
    scale: float = 1.0
    timed_on: str = ""
    job: str = ""


@dataclass(frozen=True)
class Target:
    """Upper bound of a cost: ``method`` costs at most ``limit`` times the cheapest of ``alternatives``.

    A limit below 1 requires a speed-up.
    """

    method: str
    alternatives: tuple[str, ...]
    limit: float


def count_noun(count: int, noun: str) -> str:
    """Return a count with its noun: "1 point", "1,000 points"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def time_call(call: Callable[[], Any]) -> float:
    """Return the seconds of one call: the best of as many as fit into a turn."""
    turn_start, best = perf_counter(), float("inf")
    while True:
        start = perf_counter()
        call()
        now = perf_counter()
        best = min(best, now - start)
        if now - turn_start >= TURN_SECONDS:
            return best


def returned_cost(call: Callable[[], Any]) -> float:
    """Return the cost that the call has measured itself and returns."""
    return float(call())


@dataclass(frozen=True)
class Case:
    """Methods that are timed together, and targets for the ratios of their costs.

    Parameters
    ----------
    title
        What is computed, for the page.
    methods
        The methods by name, in the order of their turns.
    reference
        Name of the method that the others are compared with in the table.
    targets
        Bounds of ratios.
    notes
        Remarks for the page.
    points
        Number of points that are explained; None where the cost per point is of no interest.
    axis, curves
        For cases of growth: label of the x axis, and for each line the method of each size.
    unit
        ``"ms"``, ``"s"`` or ``"MB"``.
    meter
        Returns the cost of one turn.
    rounds
        Number of rounds; None to fill the time given.
    """

    title: str
    methods: Mapping[str, Method]
    reference: str
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    points: int | None = None
    axis: str = ""
    curves: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    unit: str = "ms"
    meter: Callable[[Callable[[], Any]], float] = time_call
    rounds: int | None = None


def check_agreement(case: Case) -> float | None:
    """Return the largest relative difference between answers for the same job; None if no two are compared.

    Raises
    ------
    RuntimeError
        If two answers differ by more than ``TOLERANCE``, or one of them is NaN.
    """
    references: dict[str, tuple[str, NDArray[np.float64]]] = {}
    largest: float | None = None
    for name, method in case.methods.items():
        if method.answer is None:
            continue
        answer = method.answer()
        reference_name, reference = references.setdefault(method.job, (name, answer))
        if reference_name == name:
            continue
        difference = float(np.abs(answer - reference).max() / np.abs(reference).max())
        # Not "difference > TOLERANCE", which is false for NaN.
        if not difference <= TOLERANCE:
            raise RuntimeError(
                f"{case.title}: the answers of {name!r} and {reference_name!r} differ by {difference:.1e}, more than "
                f"{TOLERANCE:.0e}; their times cannot be compared."
            )
        largest = max(largest or 0.0, difference)
    return largest


def measure_costs(case: Case, seconds: float) -> dict[str, list[float]]:
    """Return the costs of each method, one per round: seconds or megabytes.

    Methods run in turns (A, B, C, A, B, C, ...) for about ``seconds``, after one round that warms them up.
    """
    costs: dict[str, list[float]] = {name: [] for name in case.methods}
    if case.meter is time_call:
        for method in case.methods.values():
            method.run()
    end = perf_counter() + seconds
    min_rounds = case.rounds or MIN_ROUNDS
    while len(costs[case.reference]) < min_rounds or (case.rounds is None and perf_counter() < end):
        for name, method in case.methods.items():
            sleep(REST_SECONDS)
            costs[name].append(case.meter(method.run) * method.scale)
    return costs
