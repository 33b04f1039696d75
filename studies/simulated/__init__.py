"""Study of simulated data with known interactions: ranks, intervals and error rates against the truth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from geh_explain.inference.jsonl import Store, complete
from studies.simulated import experiment


def run(folder: Path, docs: Path | None = None, *, quick: bool = False, workers: int = 2) -> Iterator[str]:
    """Analyse all data sets, write the page, and yield lines of progress.

    Parameters
    ----------
    folder
        Records go here, one file of JSON lines; data sets that it already holds are not analysed again.
    docs
        Page, table and figures go here; by default to ``folder``.
    quick
        Run the small version.
    workers
        Processes, each with one thread.
    """
    size = experiment.QUICK if quick else experiment.FULL
    store = Store(folder / f"simulated_{'quick' if quick else 'full'}.jsonl")
    for done, total in complete(store, experiment.tasks(size), experiment.run, workers):
        yield f"simulated: {done} of {total} data sets"
    yield from write(store, size, docs or folder)


def write(store: Store, size: experiment.Size, docs: Path) -> Iterator[str]:
    """Write page, figures and table from the records in ``store``, and yield the files."""
    from studies.simulated import figures, page, summary

    # The file may also hold records of other sizes.
    tasks = [list(task) for task in experiment.tasks(size)]
    records = sorted((r for r in store if r["task"] in tasks), key=lambda r: (r["sn"], r["seed"]))
    table = summary.tabulate(records)
    (docs / "studies").mkdir(parents=True, exist_ok=True)
    table.to_csv(docs / "studies" / "simulated.csv", index=False, float_format="%.5g")
    images = docs / "images"
    yield f"figure: {figures.draw_ranks(table, page.METHODS, images / 'simulated_ranks.png')}"
    yield f"figure: {figures.draw_intervals(records[-1], images / 'simulated_intervals.png')}"
    roc_sn = 1.0 if any(record["sn"] == 1.0 for record in records) else records[-1]["sn"]
    yield f"figure: {figures.draw_roc_and_delta(records, roc_sn, 'concrete dropout', images / 'simulated_roc.png')}"
    minutes = sum(sum(record["seconds"].values()) for record in records) / 60
    path = docs / "studies" / "simulated.md"
    path.write_text(page.build_page(table, records, size, minutes), encoding="utf-8")
    yield f"page: {path}"
