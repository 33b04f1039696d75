"""The paper's three tables: false positives, injected interactions, and the strongest pairs with their p-values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter

from geh_explain.inference.jsonl import Store, complete
from studies.real import experiment
from studies.real.settings import SETTINGS


def run(
    folder: Path, docs: Path | None = None, *, quick: bool = False, workers: int = 2, data: str | None = None
) -> Iterator[str]:
    """Run the study, and yield what happens; records are kept in ``folder``, page and pictures written to ``docs``.

    ``data`` is the folder of the data files; None for the environment's, or a download.
    """
    size = experiment.QUICK if quick else experiment.FULL
    kept = folder / f"real_{'quick' if quick else 'full'}"
    times, store = Store(kept / "minutes.jsonl"), Store(kept / "injected.jsonl")
    tested = {}
    for name, setting in SETTINGS.items():
        start = perf_counter()
        tested[name] = experiment.examine(name, size, kept / name, workers, data)
        times.add({"minutes": (perf_counter() - start) / 60})
        yield f"real: {setting.title}, {len(tested[name].raw.null)} permutations"
    start = perf_counter()
    for done, total in complete(store, experiment.tasks(size), partial(experiment.inject, folder=data), workers):
        yield f"real: {done} of {total} injected interactions"
    times.add({"minutes": (perf_counter() - start) / 60})
    yield from write(tested, store, size, docs or folder, sum(record["minutes"] for record in times))


def write(
    tested: dict[str, experiment.Tested], store: Store, size: experiment.Size, docs: Path, minutes: float
) -> Iterator[str]:
    """Write page, pictures and tables from what was found."""
    from studies.real import figures, page, summary

    wanted = [list(task) for task in experiment.tasks(size)]
    records = sorted((r for r in store if r["task"] in wanted), key=lambda record: wanted.index(record["task"]))
    found = summary.Findings.of(tested, records)
    (docs / "studies").mkdir(parents=True, exist_ok=True)
    for what, table in found.tables().items():
        table.to_csv(docs / "studies" / f"real_{what}.csv", index=False, float_format="%.5g")
    images = docs / "images"
    yield f"figure: {figures.injected(found.ranks, images / 'real_injected.png')}"
    surfaces, nulls = ({name: getattr(each, what) for name, each in tested.items()} for what in ("surface", "scaled"))
    yield f"figure: {figures.side_by_side(surfaces, 5.2, images / 'real_surfaces.png')}"
    yield f"figure: {figures.side_by_side(nulls, 4.6, images / 'real_null.png')}"
    path = docs / "studies" / "real.md"
    path.write_text(page.page(found, size, minutes), encoding="utf-8")
    for goal, reached, met in page.verdicts(found):
        yield f"{'met' if met else 'MISSED'}: {goal}: {reached}"
    yield f"page: {path}"
