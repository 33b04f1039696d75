"""Study of decisions: error rates, power and intervals of the held-out test, on data whose interactions are known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from geh_explain.inference.jsonl import Store, complete
from studies.decisions import experiment


def run(folder: Path, docs: Path | None = None, *, quick: bool = False, workers: int = 2) -> Iterator[str]:
    """Analyse all data sets, write the page, and yield lines of progress.

    Parameters
    ----------
    folder
        Records go here, one file of JSON lines; blocks of data sets that it already holds are not analysed again.
    docs
        Page, table and figure go here; by default to ``folder``.
    quick
        Run the small version.
    workers
        Processes, each with one thread.
    """
    size = experiment.QUICK if quick else experiment.FULL
    store = Store(folder / f"decisions_{'quick' if quick else 'full'}.jsonl")
    for done, total in complete(store, experiment.tasks(size), experiment.run, workers):
        yield f"decisions: {done} of {total} blocks of data sets"
    yield from write(store, size, docs or folder)


def write(store: Store, size: experiment.Size, docs: Path) -> Iterator[str]:
    """Write page, figure and table from the records in ``store``, and yield the files."""
    from studies.decisions import figures, page, summary

    tasks = [list(task) for task in experiment.tasks(size)]
    records = [record for record in store if record["task"] in tasks]
    table = summary.tabulate(data_set for record in records for data_set in record["data_sets"])
    demonstrations = [record["significant"] for record in records if "significant" in record]
    (docs / "studies").mkdir(parents=True, exist_ok=True)
    table.to_csv(docs / "studies" / "decisions.csv", index=False, float_format="%.5g")
    yield f"figure: {figures.draw_levels(table, docs / 'images' / 'decisions.png')}"
    path = docs / "studies" / "decisions.md"
    path.write_text(page.build_page(table, demonstrations, size), encoding="utf-8")
    yield f"page: {path}"
