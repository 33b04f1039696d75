"""Study of coverage: how often intervals over points, clusters of points and draws hold the score of the population."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from geh_explain.inference.jsonl import Store, complete
from studies.coverage import experiment


def run(folder: Path, docs: Path | None = None, *, quick: bool = False, workers: int = 2) -> Iterator[str]:
    """Explain all samples, write the page, and yield lines of progress.

    Parameters
    ----------
    folder
        Records go here, one file of JSON lines; blocks of samples that it already holds are not explained again.
    docs
        Page, table and figure go here; by default to ``folder``.
    quick
        Run the small version.
    workers
        Processes, each with one thread.
    """
    size = experiment.QUICK if quick else experiment.FULL
    store = Store(folder / f"coverage_{'quick' if quick else 'full'}.jsonl")
    for done, total in complete(store, experiment.tasks(size), experiment.run, workers):
        yield f"coverage: {done} of {total} blocks of samples"
    yield from write(store, size, docs or folder)


def write(store: Store, size: experiment.Size, docs: Path) -> Iterator[str]:
    """Write page, figure and table from the records in ``store``, and yield the files."""
    from studies.coverage import figures, page, summary

    tasks = [list(task) for task in experiment.tasks(size)]
    records = [record for record in store if record["task"] in tasks]
    table = summary.tabulate(sample for record in records for sample in record["samples"])
    minutes = sum(record["seconds"] for record in records) / 60
    (docs / "studies").mkdir(parents=True, exist_ok=True)
    table.to_csv(docs / "studies" / "coverage.csv", index=False, float_format="%.4g")
    yield f"figure: {figures.draw_coverage(table, docs / 'images' / 'coverage.png')}"
    path = docs / "studies" / "coverage.md"
    path.write_text(page.build_page(table, size, minutes), encoding="utf-8")
    yield f"page: {path}"
