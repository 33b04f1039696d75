"""Simulated data whose interactions are known: ranks, intervals and error rates against the truth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from geh_explain.inference.jsonl import Store, complete
from studies.simulated import experiment


def run(folder: Path, docs: Path | None = None, *, quick: bool = False, workers: int = 2) -> Iterator[str]:
    """Run the study, and yield what happens; records are kept in ``folder``, page and pictures written to ``docs``."""
    size = experiment.QUICK if quick else experiment.FULL
    store = Store(folder / f"simulated_{'quick' if quick else 'full'}.jsonl")
    wanted = experiment.tasks(size)
    for done, total in complete(store, wanted, experiment.run, workers):
        yield f"simulated: {done} of {total} data sets"
    yield from write(store, size, docs or folder)


def write(store: Store, size: experiment.Size, docs: Path) -> Iterator[str]:
    """Write page, pictures and table from the records that are there."""
    from studies.simulated import figures, page, summary

    wanted = [list(task) for task in experiment.tasks(size)]
    records = sorted((r for r in store if r["task"] in wanted), key=lambda r: (r["sn"], r["seed"]))
    table = summary.tidy(records)
    (docs / "studies").mkdir(parents=True, exist_ok=True)
    table.to_csv(docs / "studies" / "simulated.csv", index=False, float_format="%.5g")
    images = docs / "images"
    yield f"figure: {figures.ranks(table, page.LINES, images / 'simulated_ranks.png')}"
    yield f"figure: {figures.intervals(records[-1], images / 'simulated_intervals.png')}"
    middle = 1.0 if any(record["sn"] == 1.0 for record in records) else records[-1]["sn"]
    yield f"figure: {figures.roc_and_groups(records, middle, 'concrete dropout', images / 'simulated_roc.png')}"
    minutes = sum(sum(record["seconds"].values()) for record in records) / 60
    path = docs / "studies" / "simulated.md"
    path.write_text(page.page(table, records, size, minutes), encoding="utf-8")
    yield f"page: {path}"
