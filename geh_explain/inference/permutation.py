"""Permutation tests: pairs against those of networks that were fitted to targets without interactions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats
from geh_explain._validation import check_int, check_level
from geh_explain.errors import GEHRuntimeError, GEHValueError, warn
from geh_explain.inference.checkpoint import Checkpoint
from geh_explain.inference.jsonl import Record
from geh_explain.inference.null_targets import describe_main, make_null
from geh_explain.inference.refits import MAX_KEPT_PAIRS, Refits, check_fit, check_record, fingerprint, unpack_scores
from geh_explain.inference.rows import check_rows
from geh_explain.plots.permutation_null import draw_permutation_null
from geh_explain.run.threads import one_thread
from geh_explain.scores.pair_names import join_names
from geh_explain.scores.ranking import PairRanking

if TYPE_CHECKING:
    import pandas as pd

#: Permutations that a warning lists by number.
_MAX_LISTED = 8
#: Rounding errors of (1 - level) * (1 + B) are below this, so that it does not fall short of a whole number.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class PermutationTest:
    """Scores of all pairs, and the scores of networks that were fitted to targets without interactions.

    A pair with score s has two p-values, from its own scores s_1 ... s_B under the null hypothesis, and from the
    strongest scores m_1 ... m_B of all pairs ::

        pair_p_value = (1 + #{b : s_b >= s}) / (1 + B)
        p_value      = (1 + #{b : m_b >= s}) / (1 + B)

    ``p_value`` controls the chance of any false discovery among all pairs (familywise error), but compares a pair with
    others whose scores may be larger by nature. ``pair_p_value`` is a test of one pair that was chosen beforehand; for
    a decision on many pairs, correct it, as by :func:`benjamini_hochberg`. The added ones count the observed target
    among the permutations, so p-values are never 0.

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
    pair_null : ndarray or None
        Scores (B, P) of all pairs, in single precision. None for more than 50,000 pairs.
    resampled : str
        How targets were made: ``"residuals permuted"``, ``"classes drawn"`` or ``"target permuted"``.

    Examples
    --------
    >>> import numpy as np, geh_explain as geh
    >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    >>> test = geh.inference.permutation_test(geh.baselines.lasso, X, X[:, 0] * X[:, 1], permutations=9, progress=False)
    >>> test.null.shape, test.pair_null.shape, float(test.table()["p_value"].iloc[0])
    ((9,), (9, 3), 0.1)
    """

    observed: PairRanking
    null: Floats
    kept: list[Record] = field(default_factory=list, repr=False)
    failures: dict[int, str] = field(default_factory=dict)
    pair_null: NDArray[np.float32] | None = None
    resampled: str = "target permuted"

    @property
    def p_values(self) -> Floats:
        """P-values (P,) of all pairs against the strongest pair of each permutation, in row-major order i < j."""
        n_at_least = len(self.null) - np.searchsorted(np.sort(self.null), self.observed.scores, side="left")
        return np.asarray((1 + n_at_least) / (1 + len(self.null)), dtype=float)

    @property
    def pair_p_values(self) -> Floats:
        """P-values (P,) of all pairs, each against its own scores; an error if these were not kept."""
        if self.pair_null is None:
            raise GEHValueError(
                f"pair_p_values: the scores of all pairs were not kept, as there are {len(self.observed.scores)}, more "
                f"than {MAX_KEPT_PAIRS}; use p_values, or explain fewer units."
            )
        # Both in single precision, or equal scores would differ by rounding.
        n_at_least = (self.pair_null >= self.observed.scores.astype(np.float32)).sum(axis=0)
        return np.asarray((1 + n_at_least) / (1 + len(self.pair_null)), dtype=float)

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
        """Return all pairs as a DataFrame, the strongest first: unit_i, unit_j, score, p_value, pair_p_value.

        Without ``pair_null`` there is no column pair_p_value.
        """
        # The order of ``observed.table()``.
        order = np.argsort(self.observed.ranks, kind="stable")
        table = self.observed.table().drop(columns="rank").assign(p_value=self.p_values[order])
        return table if self.pair_null is None else table.assign(pair_p_value=self.pair_p_values[order])

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
            f"PermutationTest({self.resampled} {len(self.null)} times{failed}; "
            f"strongest: {join_names(first['unit_i'], first['unit_j'])}, "
            f"score {first['score']:.4g}, p = {first['p_value']:.3g})"
        )


def permutation_test(
    fit: Callable[..., Any],
    X: Any,
    y: Any,
    permutations: int = 200,
    *,
    null: str = "main",
    main: Any = None,
    observed: Any = None,
    measure: str = "geh",
    explain: Mapping[str, Any] | None = None,
    keep: Callable[[Any], Record] | None = None,
    workers: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: bool = True,
) -> PermutationTest:
    """Test every pair against the pairs of networks that were fitted to targets without interactions.

    The default null hypothesis is that the target is a sum of main effects and noise. A main-effect model is fitted to
    X and y; its residuals are permuted B times, added to its fitted values, and a network is fitted to each sum. Where
    y holds classes, residuals cannot be permuted: classes are drawn with the probabilities of an additive logistic
    model instead (a parametric bootstrap).

    The p-value of a pair is the share of permutations whose strongest pair is at least as strong, with the observed
    target counted as one of them. The chance of one false discovery among all pairs is thereby controlled. The table
    also has the p-value of each pair against its own scores. Permutation b is the same whatever the number of workers.

    Parameters
    ----------
    fit
        ``fit(X, y)`` or ``fit(X, y, seed=...)``: trains a network on these data and returns it, or its scores: an
        :class:`~geh_explain.Interactions`, a :class:`~geh_explain.baselines.PairRanking`, or an array (P,) or (D, D).
        Results must have the same groups for all targets, such as ``explain(X, groups=10)``.
    X, y
        Tensors, arrays, DataFrames or Series with the same number of rows. Words, booleans, pandas categories, integers
        with at most 20 distinct values and floats with two are classes; give other numbers for a regression as floats.
        ``fit`` receives targets of the type, shape and dtype of ``y``.
    permutations
        Number B of permutations; the smallest possible p-value is 1 / (B + 1).
    null
        ``"main"`` for targets with main effects and no interactions. ``"y"`` permutes the target itself: the null
        hypothesis is that it is independent of all inputs. Main effects then become noise, and p-values too large; or
        too small, if ``fit`` takes a part of the main effects for interactions.
    main
        Model of the main effects for ``null="main"``, with ``fit(X, y)`` and ``predict(X)`` as in scikit-learn, or
        ``predict_proba(X)`` for classes. It must not contain interactions. By default an additive model with splines
        and steps of every numeric feature and one effect per value of the others.
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
    seed = check_int("seed", seed, 0)
    check_fit(fit)
    check_rows(X, y)
    refits = Refits(fit, X, make_null(null, main, X, y, seed), seed, measure, dict(explain or {}), keep)
    identity = {**fingerprint(refits), "null": null, "main": describe_main(main)}
    numbers = range(1, total + 1)
    failures: dict[int, str] = {}
    with Checkpoint(checkpoint, "permutations", identity, check_record) as store:
        # With the workers' number of threads, or the observed network would differ from theirs in its last digits.
        with one_thread():
            original = refits.observed(observed, store.records.get(0))
        if 0 not in store.records:
            store.add(original)
        refits = replace(refits, groups=original["groups"])
        try:
            failures = store.run(refits, numbers, workers=workers, progress=progress, label="permutations")
        except KeyboardInterrupt:
            if not any(number in store.records for number in numbers):
                raise
            warn("permutation_test was interrupted; the permutations that were finished are used.")
    # Permutations end in any order; the null distribution is ordered by number, the same for any workers.
    records = [store.records[number] for number in numbers if number in store.records]
    _report_failures(failures, len(records))
    return PermutationTest(
        PairRanking(original["method"], original["scores"], original["names"]),
        np.array([record["strongest"] for record in records]),
        [record["kept"] for record in records],
        failures,
        _pair_null(records, len(original["scores"])),
        refits.null.words,
    )


def _pair_null(records: Sequence[Record], n_pairs: int) -> NDArray[np.float32] | None:
    """Return the scores (B, P) of all permutations; None if there are too many pairs to keep them."""
    if n_pairs > MAX_KEPT_PAIRS:
        return None
    rows = [unpack_scores(record["scores"] or "") for record in records]
    wrong = next((row for row in rows if len(row) != n_pairs), None)
    if wrong is not None:
        raise GEHValueError(
            f"fit: it returned {len(wrong)} scores for a permutation and {n_pairs} for y as it is; return the scores "
            "of the same pairs."
        )
    return np.stack(rows)


def _report_failures(failures: Mapping[int, str], done: int) -> None:
    """Warn of permutations that failed; raise GEHRuntimeError if none of them is ``done``."""
    if not failures:
        return
    number, reason = next(iter(failures.items()))
    if not done:
        raise GEHRuntimeError(f"fit: it failed for all permutations; the first, permutation {number}: {reason}")
    numbers = ", ".join(map(str, sorted(failures)[:_MAX_LISTED]))
    more = " and others" if len(failures) > _MAX_LISTED else ""
    warn(f"fit: permutation {numbers}{more} failed twice and is left out ({reason}); {done} are used.")
