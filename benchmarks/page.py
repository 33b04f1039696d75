"""The page docs/benchmarks.md, from results."""

from __future__ import annotations

import textwrap

from benchmarks.picture import FITTED
from benchmarks.report import TARGET_HEADS, costs, markdown, method, notes, verdict_cells
from benchmarks.results import Result
from benchmarks.timing import counted

HOW = """Each case is one job done by several contestants. Before anything is timed, all those that compute the
second derivatives must give the same answer (AEH and EAH, to a ten-thousandth of the largest entry). Then they run in
turns, A, B, C, A, B, C, so that whatever else the machine does hits all of them alike; a turn of a quick contestant
is its best run within a fifth of a second. The best round decides, the range beside it holds eight of ten rounds'
ratios."""
WHO = """- **explain()**: the whole call as users make it, with `groups=1` and one draw: reading, checks, regions,
choice of engine, result.
- **explain(), exact engine**: the same with `engine="exact"`, two backward passes.
- **per draw of 20**: a twentieth of explain() over 20 draws. What is done once per call is spread over the draws, as it
is in real use.
- **bare engine**: the sums alone, with nothing around them: the like of what rivals are timed for.
- **vmap(hessian), vmap(jacrev(jacrev)), double backward**: bare local Hessians by torch, of frozen weights, in the
chunks that suit them; they need not even sum.
- **notebook loop**: point by point and column by column, as in the paper's reference notebook.
- **shapiq, SHAP, integrated Hessians**: other kinds of interactions, there for what a point costs."""
FOOT = (
    "*Written by `make bench`, numbers in [benchmarks.json](benchmarks.json). One case: `python -m benchmarks mlp-8`.*"
)


def page(results: list[Result]) -> str:
    """Return the page."""
    blocks = ["# Benchmarks", _fill(HOW), _list(WHO), *map(_fill, _where(results))]
    blocks += ["## Targets", *_targets(results, False), "### The engine chosen, against the exact one"]
    blocks += [*_targets(results, True)]
    if any(result.curves for result in results):
        blocks += [
            "## Growth",
            _fill(f"Best times, on logarithmic axes; slopes are those of the {FITTED} largest sizes."),
            "![Time against points, draws and inputs](images/benchmarks.png)",
        ]
    blocks += ["## Cases"]
    for result in results:
        blocks += [f"### {result.key}", _fill(f"{result.title}. {method(result)}."), markdown(*costs(result))]
        blocks += [_list("\n".join(f"- {note}." for note in notes(result)))] if notes(result) else []
    return "\n\n".join([*blocks, FOOT]) + "\n"


def _targets(results: list[Result], exact: bool) -> list[str]:
    """Return how many targets are met, and their table: those against our own exact engine, or all others."""
    shown = [
        (result.key, verdict)
        for result in results
        for verdict in result.verdicts
        if ("exact engine" in verdict.rival) is exact
    ]
    met = sum(verdict.met for _, verdict in shown)
    rows = [_marked([key, *verdict_cells(verdict)]) for key, verdict in shown]
    return [f"{met} of {len(shown)} are met.", markdown(["case", *TARGET_HEADS], rows)]


def _where(results: list[Result]) -> list[str]:
    """Say on what the numbers were measured, and when."""
    places = list({tuple(result.where.items()): result.where for result in results}.values())
    words = [
        f"Python {place['python']}, torch {place['torch']}, {counted(place['threads'], 'thread')}, "
        f"{place['processor']}, {place['date']}."
        for place in places
    ]
    return words if len(words) < 2 else ["The cases come from several runs.", *words]


def _marked(row: list[str]) -> list[str]:
    return [*row[:-1], f"**{row[-1]}**" if row[-1] == "missed" else row[-1]]


def _fill(block: str) -> str:
    return textwrap.fill(" ".join(block.split()), 118)


def _list(block: str) -> str:
    items = block.removeprefix("- ").split("\n- ")
    return "\n".join(textwrap.fill("- " + " ".join(item.split()), 118, subsequent_indent="  ") for item in items)
