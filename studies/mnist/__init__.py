"""Pairs of MNIST digits: do the strongest interactions between hidden nodes read like the task?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from geh_explain.inference.jsonl import Store, complete
from studies.mnist import experiment


def run(
    folder: Path, docs: Path | None = None, *, quick: bool = False, workers: int = 2, data: str | None = None
) -> Iterator[str]:
    """Run the study, and yield what happens; records are kept in ``folder``, page and pictures written to ``docs``.

    ``data`` is the folder of MNIST's files; None for the environment's, or a download.
    """
    size = experiment.QUICK if quick else experiment.FULL
    store = Store(folder / f"mnist_{'quick' if quick else 'full'}.jsonl")
    work = partial(experiment.run, folder=data, images=(docs or folder) / "images")
    for done, total in complete(store, experiment.tasks(size), work, workers):
        yield f"mnist: {done} of {total} networks"
    yield from write(store, size, docs or folder)


def write(store: Store, size: experiment.Size, docs: Path) -> Iterator[str]:
    """Write page and table from the records that are there."""
    from studies.mnist import page, summary

    wanted = [list(task) for task in experiment.tasks(size)]
    records = sorted((r for r in store if r["task"] in wanted), key=lambda r: (r["recipe"], r["digits"], r["seed"]))
    table = summary.tidy(records)
    (docs / "studies").mkdir(parents=True, exist_ok=True)
    table.to_csv(docs / "studies" / "mnist.csv", index=False, float_format="%.5g")
    path = docs / "studies" / "mnist.md"
    path.write_text(page.page(table, records, size), encoding="utf-8")
    yield from page.lines(table)
    yield f"page: {path}"
