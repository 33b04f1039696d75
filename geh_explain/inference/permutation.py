"""Permutation tests: pairs against the strongest pairs of networks that were fitted to permuted targets."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm.auto import tqdm

from geh_explain._types import Floats
from geh_explain._validation import check_int, check_level
from geh_explain.errors import GEHRuntimeError, GEHValueError, warn
from geh_explain.inference.jsonl import Record, Store
from geh_explain.inference.refits import Refits, fingerprint
from geh_explain.inference.workers import Failure, one_thread, run_parallel
from geh_explain.plots.permutation_null import draw_permutation_null
from geh_explain.scores.ranking import PairRanking

if TYPE_CHECKING:
    import pandas as pd

#: Permutations that a warning lists by number.
_MAX_LISTED = 8
#: Rounding errors of (1 - level) * (1 + B) are below this, so that it does not fall short of a whole number.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class PermutationTest:
    """Scores of all pairs, and the strongest score of each permutation of the target.

    The p-value of a pair with score s, from the strongest scores m_1 ... m_B of B permutations, is ::

        p = (1 + #{b : m_b >= s}) / (1 + B)

    Comparing with the *strongest* pair of each permutation controls the chance of any false discovery among all pairs.
    The added ones count the observed target among the permutations, so p is never 0.

    Attributes
    ----------
    observed : PairRanking
        Scores (P,) of all pairs with the target as it is.
    null : ndarray
        Strongest scores (B,) of the permutations, in the order of their numbers.
    kept : list of dict
        What ``keep`` returned for each of these permutations.
    failures : dict
        Reasons, by number, of permutations that could not be fitted. They are not part of ``null`` and ``kept``.

    Examples
    --------
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
        """Permutation p-values (P,) of all pairs, in row-major order i < j."""
        n_at_least = len(self.null) - np.searchsorted(np.sort(self.null), self.observed.scores, side="left")
        return np.asarray((1 + n_at_least) / (1 + len(self.null)), dtype=float)

    def threshold(self, level: float = 0.95) -> float:
        """Return the score above which a pair has a p-value of at most 1 - ``level``.

        It is infinite for fewer than 1 / (1 - level) - 1 permutations, as no p-value can be that small.

        >>> test = PermutationTest(PairRanking("GEH", [3.0, 0.5, 0.1], ["a", "b", "c"]), np.arange(19.0))
        >>> test.threshold(level=0.95), test.threshold(level=0.8)
        (18.0, 15.0)
        """
        check_level(level)
        may_exceed = int(np.floor((1 - level) * (1 + len(self.null)) - 1 + _ROUNDING))
        return float(np.sort(self.null)[::-1][may_exceed]) if may_exceed >= 0 else float("inf")

    def table(self) -> pd.DataFrame:
        """Return all pairs as a DataFrame, the strongest first: unit_i, unit_j, score, p_value."""
        table = self.observed.table().drop(columns="rank")
        # p-values fall with the score, so sorting both keeps them together.
        return table.assign(p_value=np.sort(self.p_values, kind="stable"))

    def plot(self, *, pairs: int = 3, ax: Any = None) -> Any:
        """Draw a histogram of ``null`` with the strongest ``pairs`` marked, on ``ax`` or a new figure; return axes."""
        strongest = self.table().head(check_int("pairs", pairs, 1))
        names = list(zip(strongest["unit_i"].astype(str), strongest["unit_j"].astype(str), strict=True))
        return draw_permutation_null(
            self.null,
            names,
            strongest["score"].tolist(),
            strongest["p_value"].tolist(),
            method=self.observed.method,
            ax=ax,
        )

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

    The p-value of a pair is the share of permutations whose strongest pair is at least as strong, with the observed
    target counted as one of them. The chance of one false discovery among all pairs is thereby controlled. Permutation
    b is the same whatever the number of workers.

    Parameters
    ----------
    fit
        ``fit(X, y)`` or ``fit(X, y, seed=...)``: trains a network on these data and returns it, or its scores: an
        :class:`~geh_explain.Interactions`, a :class:`~geh_explain.baselines.PairRanking`, or an array (P,) or (D, D).
        Results must have the same groups for all targets, such as ``explain(X, groups=10)``.
    X, y
        Tensors, arrays, DataFrames or Series with the same number of rows.
    permutations
        Number B of permutations; the smallest possible p-value is 1 / (B + 1).
    observed
        The outcome for ``y`` as it is, in any of the forms that ``fit`` returns; by default ``fit`` is called.
    measure
        ``"geh"``, ``"aeh"`` or ``"eah"``, where ``fit`` returns a network or an Interactions.
    explain
        Where ``fit`` returns a network: arguments of :meth:`~geh_explain.GEHExplainer.explain`, such as
        ``{"draws": 50, "groups": 10}``. Groups chosen automatically are those of the observed network, for all.
    keep
        A function of what ``fit`` returned (of its explanation, if that is a network) that returns a dict of plain
        values, to be kept for every permutation.
    workers
        Number of processes, of one thread each; -1 for all processors. None follows ``joblib.parallel_config``, and is
        1 without it. Inside ``joblib.parallel_config(backend="dask")`` or ``"ray"`` tasks run on a cluster.
    checkpoint
        A folder to which every permutation is written when it is done: the same call resumes after an interruption,
        bit-identically.
    seed
        Decides on the permutations, and on every fit.
    progress
        Show a progress bar.

    Returns
    -------
    PermutationTest
        Scores, null distribution and p-values. After an interruption by the keyboard it has the permutations that were
        finished.

    Raises
    ------
    GEHTypeError, GEHValueError
        If an argument cannot be used, ``fit`` returns something else than scores or a network, or ``checkpoint``
        belongs to a test with other data or settings.
    GEHRuntimeError
        If ``fit`` fails for ``y`` as it is, or for all permutations. A single permutation that fails twice is left
        out, with a warning.

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
    store = None if checkpoint is None else _open_store(Path(checkpoint), refits)
    stored = {} if store is None else {record["number"]: record for record in store if "number" in record}
    # With the workers' number of threads, or the observed network would differ from theirs in its last digits.
    with one_thread():
        original = refits.observed(observed, stored.get(0))
    if store is not None and 0 not in stored:
        store.add(original)
    refits = replace(refits, groups=original["groups"])
    done = {number: record for number, record in stored.items() if 1 <= number <= total}
    records, failures = _fit_missing(refits, total, done, store, workers, progress)
    _report_failures(failures, len(records))
    return PermutationTest(
        PairRanking(original["method"], original["scores"], original["names"]),
        np.array([record["strongest"] for record in records]),
        [record["kept"] for record in records],
        failures,
    )


def _fit_missing(
    refits: Refits, total: int, done: Mapping[int, Record], store: Store | None, workers: int | None, progress: bool
) -> tuple[list[Record], dict[int, str]]:
    """Fit to all permutations that are not ``done``, add their records to ``store``.

    Returns
    -------
    tuple
        Records of all permutations by number, those done before included, and the reasons of failures by number.
    """
    records = dict(done)
    failures: dict[int, str] = {}
    missing = [number for number in range(1, total + 1) if number not in records]
    with tqdm(total=total, initial=len(done), desc="permutations", disable=not progress, leave=False) as bar:
        try:
            for number, outcome in run_parallel(refits, missing, workers):
                bar.update()
                if isinstance(outcome, Failure):
                    failures[number] = outcome.reason
                    continue
                records[number] = outcome
                if store is not None:
                    store.add(outcome)
        except KeyboardInterrupt:
            if not records:
                raise
            warn("permutation_test was interrupted; the permutations that were finished are used.")
    # Permutations end in any order; the null distribution is ordered by number, the same for any workers.
    return [records[number] for number in sorted(records)], failures


def _open_store(folder: Path, refits: Refits) -> Store:
    """Return the store of a checkpoint folder, which is new or belongs to the same test."""
    if folder.exists() and not folder.is_dir():
        raise GEHValueError(f"checkpoint={str(folder)!r} is a file; give a folder.")
    store = Store(folder / "permutations.jsonl")
    current = fingerprint(refits)
    stored = next((record["test"] for record in store if "test" in record), None)
    if stored is None:
        store.add({"test": current})
    elif stored != current:
        differences = ", ".join(
            f"{key} ({stored.get(key)} there, {value} here)"
            for key, value in current.items()
            if stored.get(key) != value
        )
        raise GEHValueError(
            f"checkpoint={str(folder)!r} belongs to another test: {differences}; give another folder, or remove this "
            "one."
        )
    return store


def _report_failures(failures: Mapping[int, str], done: int) -> None:
    """Warn of permutations that failed; raise GEHRuntimeError if none of them is ``done``."""
    if not failures:
        return
    number, reason = next(iter(failures.items()))
    if not done:
        raise GEHRuntimeError(f"fit: it failed for all permuted targets; the first, permutation {number}: {reason}")
    numbers = ", ".join(map(str, sorted(failures)[:_MAX_LISTED]))
    more = " and others" if len(failures) > _MAX_LISTED else ""
    warn(f"fit: permutation {numbers}{more} failed twice and is left out ({reason}); {done} are used.")
