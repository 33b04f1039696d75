"""Cross-fitted tests: networks fitted to all folds but one, each tested on the labels of the fold that it never saw."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from geh_explain._types import Floats, Ints
from geh_explain._validation import check_int, check_rate
from geh_explain._version import __version__
from geh_explain.errors import GEHRuntimeError, GEHValueError
from geh_explain.evidence.nuisance import rows_needed
from geh_explain.explainer import GEHExplainer
from geh_explain.inference.checkpoint import Checkpoint
from geh_explain.inference.jsonl import Record
from geh_explain.inference.null_targets import class_codes, holds_classes
from geh_explain.inference.refits import call_fit, check_fit, describe_options, fit_seed, function_name
from geh_explain.inference.rows import check_rows, data_digest, take_rows
from geh_explain.results.evidence_files import parse_evidence
from geh_explain.scores.evidence import Evidence
from geh_explain.scores.pair_names import join_names
from geh_explain.statistics.combination import cauchy_combination
from geh_explain.statistics.p_values import discoveries
from geh_explain.units.pair_set import count_pairs

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class CrossfitTest:
    """Held-out tests of all pairs in each fold, and their combination.

    The p-value of a pair is the Cauchy combination of its p-values in the folds (:func:`cauchy_combination`). Slopes of
    the folds are averaged for description only: the fitted networks share training data, so that a test of the average,
    as if folds were independent, finds too many pairs.

    Attributes
    ----------
    folds : list of Evidence
        Outcome of the held-out test in each fold.
    names : list of str
        Names of the D units.
    fdr : float
        False discovery rate of ``significant``.

    Examples
    --------
    >>> fold = Evidence(np.array([0.9, 0.1, 0.0]), np.full(3, 0.2), np.array([0.001, 0.4, 0.6]), 50)
    >>> test = CrossfitTest([fold, fold], ["a", "b", "c"])
    >>> test.p_value.round(3).tolist(), test.significant.tolist()
    ([0.001, 0.4, 0.6], [True, False, False])
    """

    folds: list[Evidence]
    names: list[str]
    fdr: float = 0.05

    @property
    def p_value(self) -> Floats:
        """P-values (P,) of all pairs, in row-major order i < j; NaN for pairs that no fold tested."""
        return cauchy_combination(np.stack([fold.p_value for fold in self.folds]))

    @property
    def slope(self) -> Floats:
        """Slopes (P,), averaged over the folds whose networks have the interaction."""
        return _mean_present(np.stack([fold.slope for fold in self.folds]))

    @property
    def slope_se(self) -> Floats:
        """Standard errors (P,) of the slopes, sqrt(sum of se_k^2) / K.

        They treat folds as independent, which is not exact: use ``p_value`` for decisions.
        """
        errors = np.stack([fold.slope_se for fold in self.folds])
        count = (~np.isnan(errors)).sum(axis=0)
        return np.asarray(np.sqrt(_mean_present(errors**2) / np.maximum(count, 1)))

    @property
    def significant(self) -> NDArray[np.bool_]:
        """Which pairs (P,) are supported by the data, at the false discovery rate ``fdr``."""
        return discoveries(self.p_value, self.fdr)

    @property
    def evidence(self) -> Evidence:
        """The combination as :class:`~geh_explain.scores.evidence.Evidence`, for a network fitted to all rows."""
        n_rows = sum(fold.n_rows for fold in self.folds)
        names = tuple(self.names)
        return Evidence(self.slope, self.slope_se, self.p_value, n_rows, self.folds[0].link, names=names)

    def table(self, fdr: float | None = None) -> pd.DataFrame:
        """Return all pairs as a DataFrame, the smallest p-value first.

        Columns are unit_i, unit_j, slope, slope_se, p_value and significant, at the false discovery rate ``fdr``; by
        default that of the test.
        """
        import pandas as pd

        i, j = np.triu_indices(len(self.names), 1)
        names = np.array(self.names, dtype=object)
        table = pd.DataFrame(
            {
                "unit_i": names[i],
                "unit_j": names[j],
                "slope": self.slope,
                "slope_se": self.slope_se,
                "p_value": self.p_value,
                "significant": discoveries(self.p_value, self.fdr if fdr is None else check_rate(fdr)),
            }
        )
        return table.sort_values("p_value", kind="stable", ignore_index=True)

    def __repr__(self) -> str:
        tested = int((~np.isnan(self.p_value)).sum())
        pairs = "pairs" if tested == len(self.p_value) else "tested pairs"
        found = f"{len(self.folds)} folds; {self.significant.sum()} of {tested} {pairs} significant at FDR {self.fdr:g}"
        first = self.table().iloc[0]
        if np.isnan(first["slope"]):
            return f"CrossfitTest({found})"
        return (
            f"CrossfitTest({found}; first: {join_names(first['unit_i'], first['unit_j'])}, slope {first['slope']:.2f}, "
            f"p = {first['p_value']:.3g})"
        )


def crossfit_test(
    fit: Callable[..., Any],
    X: Any,
    y: Any,
    folds: int | Sequence[Any] = 5,
    *,
    fdr: float = 0.05,
    target: Any = None,
    explainer: Mapping[str, Any] | None = None,
    test: Mapping[str, Any] | None = None,
    workers: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: bool = True,
) -> CrossfitTest:
    """Test all pairs by cross-fitting: every row is held out once, so that no labels are set aside.

    Rows are divided into K folds. For each fold a network is fitted to all other rows, and its interactions are tested
    on the labels of the fold (:meth:`~geh_explain.GEHExplainer.test_pairs`). The p-values of a pair are combined by
    :func:`cauchy_combination`. The test is about the data, for interactions that ``fit`` finds; apply it to the network
    that was fitted to all rows by ``result.with_evidence(test.evidence)``.

    Parameters
    ----------
    fit
        ``fit(X, y)`` or ``fit(X, y, seed=...)``: trains a network on these rows and returns it, or any other function
        of inputs that :class:`~geh_explain.GEHExplainer` accepts.
    X, y
        Tensors, arrays, DataFrames or Series with the same number of rows; several inputs as a tuple.
    folds
        Number K of folds, or the fold of every row (n,). Rows that belong together, such as those of one patient, must
        be in the same fold: give the folds then. Otherwise rows are assigned at random; the folds of classes have
        equal shares of each class.
    fdr
        False discovery rate of ``significant``.
    target
        Output that is tested, as in :meth:`~geh_explain.GEHExplainer.explain`.
    explainer
        Arguments of :class:`~geh_explain.GEHExplainer`, such as ``{"units": ...}``. Layers are refused: hidden units of
        networks that were fitted separately do not correspond.
    test
        Further arguments of :meth:`~geh_explain.GEHExplainer.test_pairs`.
    workers
        Number of processes, of one thread each; -1 for all processors. None follows ``joblib.parallel_config``, and is
        1 without it.
    checkpoint
        A folder to which every fold is written when it is done: the same call resumes after an interruption.
    seed
        Decides on the folds, and on every fit.
    progress
        Show a progress bar.

    Returns
    -------
    CrossfitTest
        P-values, slopes and decisions.

    Raises
    ------
    GEHTypeError, GEHValueError
        If an argument cannot be used, a class is missing outside of a fold, or ``checkpoint`` belongs to a test with
        other data or settings.
    GEHRuntimeError
        If ``fit`` or the test fails in a fold; it names the fold. Other folds are kept in ``checkpoint``.

    Examples
    --------
    >>> import numpy as np, torch, geh_explain as geh
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-1, 1, (1000, 3))
    >>> y = X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * generator.normal(size=1000)
    >>> def fit(X, y):
    ...     first, second = np.linalg.lstsq(np.column_stack([X[:, 0] * X[:, 1], X[:, 0] * X[:, 2]]), y, rcond=None)[0]
    ...     return lambda x: first * x[:, 0] * x[:, 1] + second * x[:, 0] * x[:, 2]
    >>> point = geh.posterior.PointEstimate()
    >>> test = geh.inference.crossfit_test(fit, X, y, folds=3, explainer={"posterior": point}, progress=False)
    >>> test.table()[["unit_i", "unit_j", "significant"]].values.tolist()[0]
    ['x0', 'x1', True]
    """
    check_rate(fdr)
    check_fit(fit)
    seed, n_rows = check_int("seed", seed, 0), check_rows(X, y)
    codes = class_codes(y)[0] if holds_classes(y) else None
    fold_of = _assign_folds(folds, n_rows, codes, seed)
    _check_classes(fold_of, codes)
    constructor = dict(explainer or {})
    if constructor.get("layer") is not None:
        raise GEHValueError(
            f"explainer: layer={constructor['layer']!r} cannot be tested by refits, as hidden units of different "
            "networks do not correspond; test inputs, or hold out rows and test one network."
        )
    work = FoldTests(fit, X, y, fold_of, seed, target, constructor, dict(test or {}))
    _check_fold_sizes(work)
    numbers = range(1, int(fold_of.max()) + 2)
    with Checkpoint(checkpoint, "folds", _fingerprint(work), _to_evidence) as store:
        failures = store.run(work, numbers, workers=workers, progress=progress, label="folds")
    if failures:
        number = min(failures)
        raise GEHRuntimeError(
            f"fold {number} of {len(numbers)} failed twice ({failures[number]}); all folds are needed."
        )
    records = [store.records[number] for number in numbers]
    return CrossfitTest([_to_evidence(record) for record in records], _unit_names(records), fdr)


@dataclass(frozen=True, eq=False, repr=False)
class FoldTests:
    """The task of one worker: fit to all rows outside of a fold, and test all pairs on the rows inside.

    An instance is a function of the number of a fold, 1, 2, ...; ``fold_of`` (n,) has these numbers minus 1. Other
    attributes are arguments of :func:`crossfit_test`.
    """

    fit: Callable[..., Any]
    X: Any
    y: Any
    fold_of: Ints
    seed: int
    target: Any
    explainer: dict[str, Any]
    test: dict[str, Any]

    def __call__(self, number: int) -> Record:
        """Return the record of one fold."""
        inside = self.fold_of == number - 1
        train, held = np.flatnonzero(~inside), np.flatnonzero(inside)
        model = call_fit(self.fit, take_rows(self.X, train), take_rows(self.y, train), fit_seed(self.seed, number))
        evidence = self.held_out(model, take_rows(self.X, held), take_rows(self.y, held))
        return {
            "number": number,
            "names": list(evidence.names),
            "slope": evidence.slope.tolist(),
            "slope_se": evidence.slope_se.tolist(),
            "p_value": evidence.p_value.tolist(),
            "n_rows": evidence.n_rows,
            "link": evidence.link,
        }

    def held_out(self, model: Any, X: Any, y: Any) -> Evidence:
        """Return the held-out test of one network."""
        options = {"seed": self.seed, "progress": False, **self.test}
        return GEHExplainer(model, **self.explainer).test_pairs(X, y, self.target, **options)


def _assign_folds(folds: Any, n_rows: int, codes: Ints | None, seed: int) -> Ints:
    """Return the fold 0 ... K - 1 of every row; random folds have equal shares of each class."""
    if np.ndim(folds):
        labels = np.asarray(folds)
        if labels.shape != (n_rows,):
            raise GEHValueError(f"folds has shape {labels.shape}; give a number, or the fold of each of {n_rows} rows.")
        fold_of = np.unique(labels, return_inverse=True)[1].astype(np.int64)
        if fold_of.max() == 0:
            raise GEHValueError(f"folds: all rows are in fold {labels[0]!r}; give at least two folds.")
        return fold_of
    n_folds = check_int("folds", folds, 2)
    if n_folds > n_rows:
        raise GEHValueError(f"folds={n_folds} is more than the {n_rows} rows.")
    order = np.random.default_rng(seed).permutation(n_rows)
    if codes is not None:
        order = order[np.argsort(codes[order], kind="stable")]
    # Rows of one class are next to each other, so dealing them out in turn gives each fold its share.
    fold_of = np.empty(n_rows, dtype=np.int64)
    fold_of[order] = np.arange(n_rows) % n_folds
    return fold_of


def _check_classes(fold_of: Ints, codes: Ints | None) -> None:
    """Raise GEHValueError if the rows outside of a fold lack a class."""
    if codes is None:
        return
    for fold in range(int(fold_of.max()) + 1):
        missing = np.setdiff1d(codes, codes[fold_of != fold])
        if len(missing):
            count = int((codes == missing[0]).sum())
            raise GEHValueError(
                f"y: all {count} row(s) of a class, the {missing[0] + 1}. in sorted order, are in fold {fold + 1}, so "
                "that no network can learn it there; merge rare classes, give other folds, or floats if y is a number."
            )


def _check_fold_sizes(work: FoldTests) -> None:
    """Raise GEHValueError before any fit if the smallest fold has too few rows for the columns of a table."""
    shape: tuple[int, ...] = getattr(work.X, "shape", ())
    if len(shape) == 2 and "units" not in work.explainer:
        smallest, needed = int(np.bincount(work.fold_of).min()), rows_needed(shape[1])
        if smallest < needed:
            raise GEHValueError(
                f"folds: the smallest has {smallest} rows, too few to test pairs of {shape[1]} units; at least "
                f"{needed} are needed, because the effects of all units are estimated beside the pair's. Give fewer "
                "folds, more rows, or fewer units, such as explainer={'units': Subset([...])}."
            )


def _fingerprint(work: FoldTests) -> dict[str, str]:
    """Return what identifies a test: checkpoints with another fingerprint belong to another test."""
    return {
        "X": data_digest(work.X),
        "y": data_digest(work.y),
        "fit": function_name(work.fit),
        "folds": data_digest(work.fold_of),
        "target": describe_options({"target": work.target}),
        "explainer": describe_options(work.explainer),
        "test": describe_options(work.test),
        "seed": str(work.seed),
        "version": __version__,
    }


def _to_evidence(record: Record) -> Evidence:
    """Return the outcome of one fold from its record; raises an exception if its names or numbers are impossible."""
    names = record["names"]
    if type(names) is not list or count_pairs(len(names)) != len(record["p_value"]):
        raise ValueError("its names do not fit its pairs")
    arrays = {f"evidence_{key}": np.asarray(record[key], dtype=float) for key in ("slope", "slope_se", "p_value")}
    evidence = parse_evidence(
        {"n_rows": record["n_rows"], "link": record["link"]}, arrays, pairs=len(record["p_value"])
    )
    assert evidence is not None
    return evidence


def _unit_names(records: Sequence[Record]) -> list[str]:
    """Return the names of the units, which must be the same in all folds."""
    names: list[str] = records[0]["names"]
    for record in records:
        if record["names"] != names:
            raise GEHValueError(
                f"fit: the network of fold {record['number']} has the units {record['names'][:5]}, and that of the "
                f"first fold {names[:5]}; return networks with the same inputs."
            )
    return names


def _mean_present(values: Floats) -> Floats:
    """Return the mean (P,) over folds (K, P) of the values that are not NaN; NaN if there are none."""
    present = ~np.isnan(values)
    count = present.sum(axis=0)
    total = np.where(present, values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
