"""Study of the paper's three real data sets: false positives, injected interactions, and strongest pairs."""

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
    """Test and rank the pairs of all data sets, write the page, and yield lines of progress.

    Parameters
    ----------
    folder
        Records go here, as JSON lines; work that they hold is not repeated.
    docs
        Page, tables and figures go here; by default to ``folder``.
    quick
        Run the small version.
    workers
        Processes, each with one thread.
    data
        Folder of the data files. None: the folder that ``GEH_EXPLAIN_DATA`` names, else a download.
    """
    size = experiment.QUICK if quick else experiment.FULL
    records = folder / f"real_{'quick' if quick else 'full'}"
    # Minutes of all runs are added up, so that the page states the total of an interrupted study.
    times = Store(records / "minutes.jsonl")
    store = Store(records / "injected.jsonl")
    tests = {}
    for name, setting in SETTINGS.items():
        start = perf_counter()
        tests[name] = experiment.analyse_data_set(name, size, records / name, workers, data)
        times.add({"minutes": (perf_counter() - start) / 60})
        yield f"real: {setting.title}, {len(tests[name].raw.null)} permutations"
    start = perf_counter()
    work = partial(experiment.rank_injected_pair, folder=data)
    for done, total in complete(store, experiment.tasks(size), work, workers):
        yield f"real: {done} of {total} injected interactions"
    times.add({"minutes": (perf_counter() - start) / 60})
    yield from write(tests, store, size, docs or folder, sum(record["minutes"] for record in times))


def write(
    tests: dict[str, experiment.DataSetTests], store: Store, size: experiment.Size, docs: Path, minutes: float
) -> Iterator[str]:
    """Write page, figures and tables, and yield the files and verdicts; ``minutes`` is the computing time."""
    from studies.real import figures, page, summary, verdicts

    # The file may also hold records of other sizes.
    tasks = [list(task) for task in experiment.tasks(size)]
    records = sorted((r for r in store if r["task"] in tasks), key=lambda record: tasks.index(record["task"]))
    findings = summary.Findings.collect(tests, records)
    (docs / "studies").mkdir(parents=True, exist_ok=True)
    for suffix, table in findings.tables().items():
        table.to_csv(docs / "studies" / f"real_{suffix}.csv", index=False, float_format="%.5g")
    images = docs / "images"
    yield f"figure: {figures.draw_injected(findings.ranks, images / 'real_injected.png')}"
    surfaces = {name: test.surface for name, test in tests.items()}
    nulls = {name: test.scaled for name, test in tests.items()}
    yield f"figure: {figures.draw_side_by_side(surfaces, 5.2, images / 'real_surfaces.png')}"
    yield f"figure: {figures.draw_side_by_side(nulls, 4.6, images / 'real_null.png')}"
    path = docs / "studies" / "real.md"
    path.write_text(page.build_page(findings, size, minutes), encoding="utf-8")
    for target, reached, met in verdicts.verdicts(findings):
        yield f"{'met' if met else 'MISSED'}: {target}: {reached}"
    yield f"page: {path}"
