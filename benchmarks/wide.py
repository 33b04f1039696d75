"""Cases of very many inputs and rows: the search for the strongest pairs, and rows that do not fit into memory."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.timing import Case, Method, Target, returned_cost
from benchmarks.wide_runs import Run, explained, inputs, measure

SEARCH, ALL_PAIRS = "search(top=100)", "explain(), all pairs"
#: What a search may cost, against that of all pairs.
_MAX_TIME_RATIO, _MAX_MEMORY_RATIO = 0.5, 0.1
#: What a search among 100,000 inputs may cost.
_MAX_SECONDS, _MAX_MEGABYTES = 300.0, 4000.0
#: Largest ratio of times for twice the inputs: four times the pairs, and 5 %.
_MAX_GROWTH = 4.2
#: Largest ratios of times and memory for ten times the rows.
_MAX_ROWS_TIME, _MAX_ROWS_MEMORY = 10.5, 1.1
#: Remark on costs of processes.
_IN_PROCESS = "each run has its own process, with one thread; times are CPU times, data excluded"
_WIDE = Run("search", 100_000, points=2000, draws=20)


def _measured(run: Run, what: str) -> Method:
    """Return a method that costs what a run in a fresh process did: its "seconds", "peak" or memory "above"."""
    return Method(lambda: getattr(measure(run), what))


def search_wide() -> Case:
    """Return the case of a search among 5,000 inputs, against all pairs of them."""
    runs = {SEARCH: Run("search", 5000), ALL_PAIRS: Run("explain", 5000)}
    points = inputs(runs[SEARCH])

    def strongest(run: Run) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the scores of the 100 strongest pairs among zeros for all others: a pair amiss is a large error."""
        result = explained(run, points)
        scores = np.zeros(5000 * 4999 // 2)
        scores[result.pairs.positions] = result.geh.pair_mean
        scores[np.argsort(-scores, kind="stable")[100:]] = 0
        return scores

    return Case(
        "Search among 5,000 inputs: hidden 100, 500 points in 4 groups, one draw",
        {
            name: Method(partial(explained, run, points), partial(strongest, run), job="strongest")
            for name, run in runs.items()
        },
        SEARCH,
        [Target(SEARCH, (ALL_PAIRS,), _MAX_TIME_RATIO)],
        notes=["answers: the pairs that were found and their scores, against the 100 strongest of all pairs"],
    )


def search_wide_memory() -> Case:
    """Return the case of the memory of the same."""
    return Case(
        "Peak memory of these above that of a tiny run",
        {
            SEARCH: _measured(Run("search", 5000), "above"),
            ALL_PAIRS: _measured(Run("explain", 5000), "above"),
        },
        SEARCH,
        [Target(SEARCH, (ALL_PAIRS,), _MAX_MEMORY_RATIO)],
        notes=["each run has its own process, which makes the data before memory is measured"],
        unit="MB",
        meter=returned_cost,
        rounds=1,
    )


def search_widest() -> Case:
    """Return the case of the time of a search among 100,000 inputs."""
    return Case(
        "Search among 100,000 inputs: hidden 100, 2,000 points in 4 groups, 20 draws",
        {SEARCH: _measured(_WIDE, "seconds"), "5 minutes": Method(lambda: _MAX_SECONDS)},
        SEARCH,
        [Target(SEARCH, ("5 minutes",), 1.0)],
        notes=[_IN_PROCESS],
        unit="s",
        meter=returned_cost,
        rounds=1,
    )


def search_widest_memory() -> Case:
    """Return the case of the memory of a search among 100,000 inputs."""
    return Case(
        "Peak memory of the whole process of this search",
        {SEARCH: _measured(_WIDE, "peak"), "4 GB": Method(lambda: _MAX_MEGABYTES)},
        SEARCH,
        [Target(SEARCH, ("4 GB",), 1.0)],
        notes=["the inputs take 800 MB of it"],
        unit="MB",
        meter=returned_cost,
        rounds=1,
    )


def search_growth() -> Case:
    """Return the case of twice the inputs of a search, of equal strength and of strengths that differ."""
    methods, targets = {}, []
    for strength, unequal in (("equal", False), ("unequal", True)):
        for units in (50_000, 100_000):
            run = Run("search", units, unequal=unequal)
            methods[f"{strength} inputs, D = {units:,}"] = _measured(run, "seconds")
    targets.append(Target("equal inputs, D = 100,000", ("equal inputs, D = 50,000",), _MAX_GROWTH))
    return Case(
        "Twice the inputs of a search: hidden 100, 500 points in 4 groups, one draw",
        methods,
        "equal inputs, D = 50,000",
        targets,
        notes=[
            _IN_PROCESS,
            "equal inputs: all pairs are compared; unequal inputs have log-normal strengths: bounds leave out pairs",
        ],
        unit="s",
        meter=returned_cost,
        rounds=1,
    )


def _many_rows(title: str, unit: str, limit: float) -> Case:
    """Return a case of ten times the rows, in seconds or megabytes."""
    methods = {}
    for name, points in (("N = 10^6", 10**6), ("N = 10^7", 10**7)):
        run = Run("rows", 20, 32, points, draws=5)
        methods[name] = _measured(run, "seconds" if unit == "s" else "peak")
    return Case(
        title,
        methods,
        "N = 10^6",
        [Target("N = 10^7", ("N = 10^6",), limit)],
        notes=[_IN_PROCESS],
        unit=unit,
        meter=returned_cost,
        rounds=1,
    )


def many_rows() -> Case:
    """Return the case of the time of ten times the rows."""
    title = "Ten times the rows of a memory-mapped array: 20 inputs, hidden 32, 5 draws, 4 groups"
    return _many_rows(title, "s", _MAX_ROWS_TIME)


def many_rows_memory() -> Case:
    """Return the case of the peak memory of ten times the rows."""
    return _many_rows("Peak memory of the whole process of these", "MB", _MAX_ROWS_MEMORY)
