"""Permutation tests: how strong would the strongest pair be if the target had nothing to do with the inputs?"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from geh_explain._types import Floats
from geh_explain._validation import check_fraction, check_int
from geh_explain.errors import GEHRuntimeError, GEHValueError, warn
from geh_explain.inference.jsonl import Record, Store
from geh_explain.inference.refits import Refits, fingerprint
from geh_explain.inference.workers import Failure, one_thread, spread
from geh_explain.scores.ranking import PairRanking

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PermutationTest:
    """The score of every pair, and the strongest score of each permutation of the target.

    ``null`` (B,) is in the order of the permutations' numbers, ``kept`` what was to be kept of each. ``failures``
    tells, by number, which permutations could not be fitted, and why; they are in no other number.

    >>> import numpy as np, geh_explain as geh
    >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    >>> test = geh.inference.permutation_test(geh.baselines.lasso, X, X[:, 0] * X[:, 1], permutations=9, progress=False)
    >>> test.null.shape, float(test.table()["p_value"].iloc[0])
    ((9,), 0.1)
    """

    observed: PairRanking
    null: Floats
    kept: list[Record] = field(default_factory=list, repr=False)
    failures: dict[int, str] = field(default_factory=dict)

    @property
    def p_values(self) -> Floats:
        """How often chance alone makes some pair at least as strong as each (P,), by the add-one rule."""
        above = len(self.null) - np.searchsorted(np.sort(self.null), self.observed.scores, side="left")
        return np.asarray((1 + above) / (1 + len(self.null)), dtype=float)

    def threshold(self, level: float = 0.05) -> float:
        """Return the score above which a pair has a p-value of at most ``level``; infinite for too few permutations."""
        check_fraction("level", level, 0.05)
        may_be_above = int(np.floor(level * (1 + len(self.null)) - 1 + 1e-9))
        return float(np.sort(self.null)[::-1][may_be_above]) if may_be_above >= 0 else float("inf")

    def table(self) -> pd.DataFrame:
        """Return all pairs, the strongest first: unit_i, unit_j, score, p_value."""
        table = self.observed.table().drop(columns="rank")
        return table.assign(p_value=np.sort(self.p_values, kind="stable"))

    def plot(self, *, pairs: int = 3, ax: Any = None) -> Any:
        """Draw the strongest scores of permuted targets, mark the strongest ``pairs``, and return the axes."""
        from geh_explain.plots.null import null

        return null(self, pairs=check_int("pairs", pairs, 1), ax=ax)

    def __repr__(self) -> str:
        first = self.table().iloc[0]
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return (
            f"PermutationTest({len(self.null)} permutations{failed}; strongest: {first['unit_i']} x {first['unit_j']}, "
            f"score {first['score']:.4g}, p = {first['p_value']:.3g})"
        )


def permutation_test(
    fit: Callable[..., Any],
    X: Any,
    y: Any,
    permutations: int = 200,
    *,
    observed: Any = None,
    measure: str = "geh",
    explain: Mapping[str, Any] | None = None,
    keep: Callable[[Any], Record] | None = None,
    workers: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: bool = True,
) -> PermutationTest:
    """Test every pair against the strongest pairs of networks that were fitted to permuted targets.

    The p-value of a pair is the share of permutations whose strongest pair is at least as strong, so that the chance
    of one false discovery among all pairs is kept. Permutation b is the same whatever the number of workers.

    Parameters
    ----------
    fit
        ``fit(X, y)`` or ``fit(X, y, seed=...)``: trains a network on these data and returns it, or what it finds: an
        :class:`~geh_explain.Interactions`, a :class:`~geh_explain.baselines.PairRanking`, or scores (P,) or (D, D).
        Results must have the same groups for all targets, such as ``explain(X, groups=10)``.
    X, y
        Tensors, arrays, DataFrames or Series with the same number of rows.
    permutations
        How many; the smallest p-value is one over one more.
    observed
        What was found with ``y`` as it is, in any of the forms that ``fit`` returns; by default ``fit`` is called.
    measure
        ``"geh"``, ``"aeh"`` or ``"eah"``, where ``fit`` returns a network or an Interactions.
    explain
        Where ``fit`` returns a network: arguments of :meth:`~geh_explain.GEHExplainer.explain`, such as
        ``{"draws": 50, "groups": 10}``. Groups chosen automatically are those of the observed network, for all.
    keep
        A function of what ``fit`` returned (explained, if that is a network) to a dict of plain values, which are kept
        of every permutation.
    workers
        Processes, of one thread each; -1 for all processors. By default what ``joblib.parallel_config`` says, else 1.
        Inside ``joblib.parallel_config(backend="dask")`` or ``"ray"`` a cluster does the work.
    checkpoint
        A folder where results are kept as they come: the same call goes on where it was interrupted.
    seed
        Decides on the permutations, and on every fit.
    progress
        Show a progress bar.

    Examples
    --------
    >>> import numpy as np, geh_explain as geh
    >>> X = np.random.default_rng(0).uniform(-1, 1, (300, 3))
    >>> y = X[:, 0] * X[:, 1] + 0.1 * X[:, 2]
    >>> test = geh.inference.permutation_test(geh.baselines.lasso, X, y, permutations=19, progress=False)
    >>> test.table().head(1)["p_value"].round(3).tolist()
    [0.05]
    """
    total = check_int("permutations", permutations, 1)
    refits = Refits(fit, X, y, check_int("seed", seed, 0), measure, dict(explain or {}), keep)
    store = None if checkpoint is None else _opened(Path(checkpoint), refits)
    records = {} if store is None else {record["number"]: record for record in store if "number" in record}
    with one_thread():
        found = refits.observed(observed, records.get(0))
    if store is not None and 0 not in records:
        store.add(found)
    refits.groups = found["groups"]
    failures: dict[int, str] = {}
    left = [number for number in range(1, total + 1) if number not in records]
    with tqdm(total=total, initial=total - len(left), desc="permutations", disable=not progress, leave=False) as bar:
        try:
            for number, outcome in spread(refits, left, workers):
                bar.update()
                if isinstance(outcome, Failure):
                    failures[number] = outcome.reason
                    continue
                records[number] = outcome
                if store is not None:
                    store.add(outcome)
        except KeyboardInterrupt:
            if not any(number in records for number in range(1, total + 1)):
                raise
            warn("permutation_test was interrupted; the permutations that were finished are used.")
    done = [records[number] for number in range(1, total + 1) if number in records]
    _report(failures, len(done))
    null = np.array([record["strongest"] for record in done])
    ranking = PairRanking(found.get("method", measure.upper()), found["scores"], found["names"])
    return PermutationTest(ranking, null, [record["kept"] for record in done], failures)


def _opened(folder: Path, refits: Refits) -> Store:
    """Return the store in a folder, if it belongs to the same test."""
    if folder.exists() and not folder.is_dir():
        raise GEHValueError(f"checkpoint={str(folder)!r} is a file; give a folder.")
    store = Store(folder / "permutations.jsonl")
    mine = fingerprint(refits)
    theirs = next((record["test"] for record in store if "test" in record), None)
    if theirs is None:
        store.add({"test": mine})
    elif theirs != mine:
        differ = ", ".join(
            f"{key} ({theirs.get(key)} there, {mine.get(key)} here)" for key in mine if theirs.get(key) != mine.get(key)
        )
        raise GEHValueError(
            f"checkpoint={str(folder)!r} belongs to another test: {differ}; give another folder, or remove this one."
        )
    return store


def _report(failures: Mapping[int, str], done: int) -> None:
    if not failures:
        return
    number, reason = next(iter(failures.items()))
    if not done:
        raise GEHRuntimeError(f"fit: it failed for all permuted targets; the first, permutation {number}: {reason}")
    numbers = ", ".join(str(each) for each in sorted(failures)[:8]) + (" and others" if len(failures) > 8 else "")
    warn(f"fit: permutation {numbers} failed twice and is left out ({reason}); {done} are used.")
