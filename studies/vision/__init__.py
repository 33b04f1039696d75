"""Study of trained vision networks: are interactions of hidden channels right, faithful and stable?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from geh_explain.inference.jsonl import Store, complete
from studies.vision import experiment


def run(folder: Path, docs: Path | None = None, *, quick: bool = False, workers: int = 2) -> Iterator[str]:
    """Study all layers, write the page, and yield lines of progress.

    Parameters
    ----------
    folder
        Records go here, one file of JSON lines; layers that it already holds are not studied again.
    docs
        Page, table and figures go here; by default to ``folder``.
    quick
        Run the small version.
    workers
        Processes, each with one thread.
    """
    size = experiment.QUICK if quick else experiment.FULL
    store = Store(folder / f"vision_{'quick' if quick else 'full'}.jsonl")
    work = partial(experiment.run, pictures=(docs or folder) / "images")
    for done, total in complete(store, experiment.tasks(size), work, workers):
        yield f"vision: {done} of {total} samples of layers"
    yield from write(store, size, docs or folder)


def write(store: Store, size: experiment.Size, docs: Path) -> Iterator[str]:
    """Write page and table from the records in ``store``, and yield the files."""
    from studies.vision import page, summary

    tasks = [list(task) for task in experiment.tasks(size)]
    records = sorted(
        (record for record in store if record["task"] in tasks), key=lambda each: tasks.index(each["task"])
    )
    table = summary.tabulate(records)
    (docs / "studies").mkdir(parents=True, exist_ok=True)
    table.to_csv(docs / "studies" / "vision.csv", index=False, float_format="%.4g")
    path = docs / "studies" / "vision.md"
    path.write_text(page.build_page(table, records, size), encoding="utf-8")
    yield f"page: {path}"
