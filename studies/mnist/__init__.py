"""Study of pairs of MNIST digits: do the strongest pairs of hidden nodes respond to the digits of the task?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from geh_explain.inference.jsonl import Store, complete
from studies.mnist import experiment


def run(
    folder: Path, docs: Path | None = None, *, quick: bool = False, workers: int = 2, data: str | None = None
) -> Iterator[str]:
    """Train and explain all networks, write the page, and yield lines of progress.

    Parameters
    ----------
    folder
        Records go here, one file of JSON lines; networks that it already holds are not trained again.
    docs
        Page, table and figures go here; by default to ``folder``.
    quick
        Run the small version.
    workers
        Processes, each with one thread.
    data
        Folder of MNIST's files. None: the folder that ``GEH_EXPLAIN_DATA`` names, else a download.
    """
    size = experiment.QUICK if quick else experiment.FULL
    store = Store(folder / f"mnist_{'quick' if quick else 'full'}.jsonl")
    work = partial(experiment.run, folder=data, images=(docs or folder) / "images")
    for done, total in complete(store, experiment.tasks(size), work, workers):
        yield f"mnist: {done} of {total} networks"
    yield from write(store, size, docs or folder)


def write(store: Store, size: experiment.Size, docs: Path) -> Iterator[str]:
    """Write page and table from the records in ``store``, and yield the outcome in words."""
    from studies.mnist import page, summary

    # The file may also hold records of other sizes.
    tasks = [list(task) for task in experiment.tasks(size)]
    records = sorted((r for r in store if r["task"] in tasks), key=lambda r: (r["recipe"], r["digits"], r["seed"]))
    table = summary.tabulate(records)
    (docs / "studies").mkdir(parents=True, exist_ok=True)
    table.to_csv(docs / "studies" / "mnist.csv", index=False, float_format="%.5g")
    path = docs / "studies" / "mnist.md"
    path.write_text(page.build_page(table, records, size), encoding="utf-8")
    yield from page.summary_lines(table)
    yield f"page: {path}"
