"""Study of public yardsticks: tasks that other authors defined, with their methods beside ours.

``nid``, ``diamond``, ``archipelago`` and ``effector`` hold one yardstick each; ``functions`` has those of the first
two, ``ours`` what the package does, ``peers`` the other methods. ``parts`` runs them; ``summary``, ``verdicts``,
``figures`` and ``page`` write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from geh_explain.inference.jsonl import complete
from studies.yardsticks import parts


def run(
    folder: Path,
    docs: Path | None = None,
    *,
    quick: bool = False,
    workers: int = 2,
    names: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
) -> Iterator[str]:
    """Run all parts, write the page, and yield lines of progress.

    Parameters
    ----------
    folder
        Records go here, one file of JSON lines per part and seed; cases that they already hold are not run again.
        Several processes may run at the same time if their parts or seeds differ.
    docs
        Page, tables and figure go here; by default to ``folder``. Cases that its tables hold are not run again either;
        to run all of them, remove the tables.
    quick
        Run the small version.
    workers
        Processes, each with one thread.
    names
        Parts to run; None for all. The page has all parts of which there are records.
    seeds
        Seeds to run; None for those of the study. The page has all seeds of the tables, too.
    """
    chosen = parts.available(quick) if names is None else parts.check_names(names)
    used = parts.choose_seeds(chosen, seeds, quick)
    tasks = parts.tasks(used, quick)
    store = parts.SeedFiles(folder, used, quick, _table_folder(docs or folder))
    for done, total in complete(store, tasks, partial(parts.run_task, quick=quick), workers):
        yield f"yardsticks: {done} of {total} cases"
    yield from write(folder, docs or folder, seeds, quick)


def write(folder: Path, docs: Path, seeds: Sequence[int] | None, quick: bool) -> Iterator[str]:
    """Write page, figure and tables from the records in ``folder``, and yield the files."""
    from studies.yardsticks import figures, page, summary

    used = parts.choose_seeds(parts.NAMES, seeds, quick)
    store = parts.SeedFiles(folder, used, quick, _table_folder(docs))
    tables = summary.tabulate(store)
    _table_folder(docs).mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(parts.table_path(_table_folder(docs), name), index=False, float_format="%.5g")
    if "nid" in tables:
        yield f"figure: {figures.draw_areas(tables['nid'], docs / 'images' / 'yardsticks.png')}"
    path = _table_folder(docs) / "yardsticks.md"
    path.write_text(page.build_page(tables), encoding="utf-8")
    yield f"page: {path}"


def _table_folder(docs: Path) -> Path:
    """Return the folder of page and tables."""
    return docs / "studies"
