"""Markdown page docs/benchmarks.md, from results."""

from __future__ import annotations

import textwrap

from benchmarks.formatting import TARGET_HEADS, collect_notes, cost_table, describe_timing, verdict_cells
from benchmarks.growth_figure import FITTED_SIZES
from benchmarks.package_methods import BARE
from benchmarks.results import Result
from benchmarks.tabular import FLOOR
from benchmarks.timing import count_noun
from studies.text import PAGE_WIDTH, fill_paragraph, markdown_table

#: How costs are measured.
PROCEDURE = """Each case is one job that several methods do. Before anything is timed, all methods that compute the
second derivatives must give the same answer (AEH and EAH, to a ten-thousandth of the largest entry). Then they run in
turns, A, B, C, A, B, C, so that other load on the machine affects all of them; a turn of a fast method is its best run
within a fifth of a second. Ratios are those of the best rounds; the range beside them contains the ratios of eight
rounds of ten."""
#: What the names of the methods mean.
METHODS = """- **explain()**: the whole call as users make it, with `groups=1` and one draw: reading, checks, groups,
choice of engine, result.
- **explain(), exact engine**: the same with `engine="exact"`, two backward passes.
- **per draw of 20**: a twentieth of explain() over 20 draws. The fixed cost of a call is spread over the draws, as in
real use.
- **bare engine**: only the sums over the points, comparable with what the methods of torch are timed for.
- **vmap(hessian), vmap(jacrev(jacrev)), double backward**: bare local Hessians by torch, of frozen weights, in chunks
of the best size, without sums over points.
- **notebook loop**: point by point and column by column, as in the paper's reference notebook.
- **shapiq, SHAP, integrated Hessians**: other kinds of interactions, for the cost of one point."""
#: Last line of the page.
FOOTER = (
    "*Written by `make bench`, numbers in [benchmarks.json](benchmarks.json). One case: `python -m benchmarks mlp-8`.*"
)


def build_page(results: list[Result]) -> str:
    """Return the page as Markdown."""
    blocks = [
        "# Benchmarks",
        fill_paragraph(PROCEDURE),
        _fill_list(METHODS),
        *map(fill_paragraph, _environments(results)),
    ]
    blocks += ["## Targets", *_targets(results, against_exact=False)]
    blocks += _reasons(results)
    blocks += ["### The engine chosen, against the exact one", *_targets(results, against_exact=True)]
    if any(result.curves for result in results):
        blocks += [
            "## Growth",
            fill_paragraph(f"Best times, on logarithmic axes; slopes are those of the {FITTED_SIZES} largest sizes."),
            "![Time against points, draws and inputs](images/benchmarks.png)",
        ]
    blocks += ["## Cases"]
    for result in results:
        timing = fill_paragraph(f"{result.title}. {describe_timing(result)}.")
        blocks += [f"### {result.key}", timing, markdown_table(*cost_table(result))]
        notes = collect_notes(result)
        blocks += [_fill_list("\n".join(f"- {note}." for note in notes))] if notes else []
    return "\n\n".join([*blocks, FOOTER]) + "\n"


def _targets(results: list[Result], *, against_exact: bool) -> list[str]:
    """Return the number of targets that are met, and their table: those against the exact engine, or all others."""
    chosen = [
        (result.key, verdict)
        for result in results
        for verdict in result.verdicts
        if ("exact engine" in verdict.alternative) is against_exact
    ]
    met = sum(verdict.met for _, verdict in chosen)
    rows = [_mark_missed([key, *verdict_cells(verdict)]) for key, verdict in chosen]
    return [f"{met} of {len(chosen)} are met.", markdown_table(["case", *TARGET_HEADS], rows)]


def _reasons(results: list[Result]) -> list[str]:
    """Return why targets of short calls are missed, in numbers of the cases; notes of the cases have their profiles."""
    lines = []
    for result in results:
        best = {row.name: row.best for row in result.rows}
        missed = [verdict for verdict in result.verdicts if not verdict.met and verdict.unit == "ms"]
        if FLOOR not in best or BARE not in best or not missed:
            continue
        allowed = ", ".join(
            f"{verdict.method}: {1000 * verdict.limit * best[verdict.alternative]:.3g} ms" for verdict in missed
        )
        lines.append(
            f"- **{result.key}.** The targets allow {allowed}. The two matrix products that any method needs which "
            f"takes all directions of all points through the inner layers take {1000 * best[FLOOR]:.3g} ms, the bare "
            f"engine {1000 * best[BARE]:.3g} ms: slopes and second derivatives, their products with the directions, "
            "the forward and the backward pass come on top. A whole call adds the snapshot of the network, from which "
            "it is restored, the plan, warnings and the record."
        )
    if any(result.key == "ensemble-784" for result in results):
        lines.append(
            "- **ensemble-784.** The Hessians at the first hidden layer are a part of the call. Each point at which "
            "EAH or the errors over points are measured needs a pull-back to 306,936 pairs, and each member is "
            "examined and restored; the shares are at the case."
        )
    return ["### Why short calls miss their targets", _fill_list("\n".join(lines))] if lines else []


def _environments(results: list[Result]) -> list[str]:
    """Return one paragraph per environment of the runs: versions, threads, processor and date."""
    environments = list({tuple(result.environment.items()): result.environment for result in results}.values())
    paragraphs = [
        f"Python {run['python']}, torch {run['torch']}, {count_noun(run['threads'], 'thread')}, {run['processor']}, "
        f"{run['date']}."
        for run in environments
    ]
    return paragraphs if len(paragraphs) < 2 else ["The cases come from several runs.", *paragraphs]


def _mark_missed(row: list[str]) -> list[str]:
    """Return a row with its last cell in bold if the target is missed."""
    return [*row[:-1], f"**{row[-1]}**" if row[-1] == "missed" else row[-1]]


def _fill_list(block: str) -> str:
    """Return a list of items that start with "- ", each broken at the width of the page."""
    items = block.removeprefix("- ").split("\n- ")
    return "\n".join(textwrap.fill("- " + " ".join(item.split()), PAGE_WIDTH, subsequent_indent="  ") for item in items)
