"""Fits to permuted targets: the task of one worker of a permutation test."""

from __future__ import annotations

import inspect
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geh_explain._hashing import digest
from geh_explain._types import Ints
from geh_explain._version import __version__
from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError, GEHWarning
from geh_explain.explainer import GEHExplainer
from geh_explain.inference.jsonl import Record
from geh_explain.model.preserve import global_generators
from geh_explain.scores.ranking import PairRanking

#: Scores of one network on two machines agree to this relative tolerance.
_SAME_SCORES = 1e-3


@dataclass(frozen=True, eq=False, repr=False)
class Refits:
    """Fits to permutations of the target, and the scores of what was fitted.

    An instance is a function of the number of a permutation, 1, 2, ...; 0 is the target in its own order. The number
    and ``seed`` alone decide on the permutation and on the seed of the fit, so results do not depend on which worker
    computes them.

    Attributes
    ----------
    fit, X, y, measure, keep
        As in :func:`geh_explain.inference.permutation_test`.
    seed : int
        Decides on all permutations and fits.
    explain : dict
        Arguments of ``GEHExplainer.explain`` for networks that ``fit`` returns.
    groups : int, list or None
        Groups of points of the observed result, used for all permutations: labels of the rows, or the number of groups
        where the result describes other rows. Scores with different groups are not comparable.
    """

    fit: Callable[..., Any]
    X: Any
    y: Any
    seed: int
    measure: str
    explain: dict[str, Any]
    keep: Callable[[Any], Record] | None
    groups: Any = None

    def __post_init__(self) -> None:
        if not callable(self.fit):
            raise GEHTypeError(f"fit={self.fit!r} is not callable; give a function of X and y.")
        if self.keep is not None and not callable(self.keep):
            raise GEHTypeError(f"keep={self.keep!r} is not callable; give a function of what fit returns.")
        if self.measure not in ("geh", "aeh", "eah"):
            raise GEHValueError(f"measure={self.measure!r} is unknown; use 'geh', 'aeh' or 'eah'.")
        if _count_rows("X", self.X) != self.n_rows:
            raise GEHValueError(
                f"X has {_count_rows('X', self.X)} rows and y {self.n_rows}; give inputs and targets of the same rows."
            )
        if self.n_rows < 2:
            raise GEHValueError(f"y has {self.n_rows} row(s); give at least two, to have something to permute.")

    @property
    def n_rows(self) -> int:
        """Number of rows of the target."""
        return _count_rows("y", self.y)

    def __call__(self, number: int) -> Record:
        """Fit to one permutation; returns its number, its strongest score, and what ``keep`` returned."""
        with warnings.catch_warnings():
            # Warnings about data and settings were shown for the observed target.
            warnings.simplefilter("ignore", GEHWarning)
            outcome = self._explained(self._fitted(number), number)
            scores = _checked_ranking(outcome, self.measure).scores
            kept = {} if self.keep is None else dict(self.keep(outcome))
        return {"number": number, "strongest": float(scores.max()), "kept": kept}

    def observed(self, outcome: Any, record: Record | None) -> Record:
        """Return the record of the target in its own order: the scores of all pairs, their names and the groups.

        Parameters
        ----------
        outcome
            What the user computed already, in any form that ``fit`` returns; None to call ``fit``.
        record
            The record in the checkpoint, if any. It is returned where ``outcome`` is None.

        Raises
        ------
        GEHRuntimeError
            If ``fit`` fails.
        GEHValueError
            If ``outcome`` and ``record`` have different scores.
        """
        if record is not None and outcome is None:
            return record
        if outcome is None:
            try:
                outcome = self._fitted(0)
            except Exception as error:
                raise GEHRuntimeError(f"fit: it failed with y as it is: {type(error).__name__}: {error}") from error
        outcome = self._explained(outcome, 0)
        ranking = _checked_ranking(outcome, self.measure)
        if record is not None and not np.allclose(record["scores"], ranking.scores, rtol=_SAME_SCORES):
            raise GEHValueError("observed: the checkpoint was made with other scores; give another folder.")
        return {
            "number": 0,
            "scores": ranking.scores.tolist(),
            "method": ranking.method,
            "names": ranking.names,
            "groups": self._groups_of(outcome),
        }

    def _fitted(self, number: int) -> Any:
        """Return what ``fit`` returns for one permutation, with all global generators seeded and then restored."""
        seed = self._fit_seed(number)
        with global_generators():
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            y = self.y if number == 0 else _permute_rows(self.y, self._order(number))
            return self.fit(self.X, y, seed=seed) if _takes_seed(self.fit) else self.fit(self.X, y)

    def _order(self, number: int) -> Ints:
        """Return the permutation: row i of the permuted target is row ``order[i]`` of the target."""
        return np.random.default_rng([self.seed, number]).permutation(self.n_rows)

    def _fit_seed(self, number: int) -> int:
        """Return the seed of one fit, below 2^31 as some generators need."""
        if number == 0:
            return self.seed
        return int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0] >> 1)

    def _explained(self, outcome: Any, number: int) -> Any:
        """Return the result of explaining a network; any other outcome of ``fit`` unchanged."""
        if not isinstance(outcome, nn.Module):
            return outcome
        options = {"seed": self.seed, "progress": False, "distributed": False, **self.explain}
        if number and self.groups is not None:
            options["groups"] = self.groups if isinstance(self.groups, int) else np.asarray(self.groups)
        return GEHExplainer(outcome).explain(self.X, **options)

    def _groups_of(self, outcome: Any) -> Any:
        """Return the groups of a result as labels of the rows, or their number if it describes other rows."""
        labels = getattr(outcome, "labels", None)
        if labels is None:
            return None
        return labels.tolist() if len(labels) == self.n_rows else len(outcome.group_names)


def fingerprint(refits: Refits) -> dict[str, str]:
    """Return what identifies a test: checkpoints with another fingerprint belong to another test.

    Data are compared by their contents, functions by their names only.
    """
    return {
        "X": digest(_as_arrays(refits.X)),
        "y": digest(_as_arrays(refits.y)),
        "fit": _function_name(refits.fit),
        "measure": refits.measure,
        "explain": ", ".join(f"{name}={_describe(refits.explain[name])}" for name in sorted(refits.explain)),
        "keep": "" if refits.keep is None else _function_name(refits.keep),
        "seed": str(refits.seed),
        "version": __version__,
    }


def _as_arrays(value: Any) -> Any:
    """Return data as arrays, or lists of arrays, which :func:`digest` hashes by their contents.

    A DataFrame or Series does not keep its values in attributes that ``digest`` reads, and an array of objects holds
    addresses; the objects are compared by their repr.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (tuple, list)):
        return [_as_arrays(part) for part in value]
    if hasattr(value, "columns"):
        # Column names are the names of the units in the result.
        return [[str(name) for name in value.columns], _as_arrays(value.to_numpy())]
    array = np.asarray(value)
    return [array.shape, repr(array.tolist())] if array.dtype.hasobject else array


def _describe(value: Any) -> str:
    """Return an option as text; arrays by their digest, as numpy abbreviates the text of long ones."""
    return digest(_as_arrays(value)) if hasattr(value, "__array__") else repr(value)


def _takes_seed(function: Callable[..., Any]) -> bool:
    """Return whether a function has a parameter called ``seed``."""
    try:
        return "seed" in inspect.signature(function).parameters
    except ValueError:  # functions written in C may have no signature
        return False


def _function_name(function: Any) -> str:
    """Return the qualified name of a function, of the function inside a partial, or of a callable's class."""
    wrapped = getattr(function, "func", function)
    return getattr(wrapped, "__qualname__", type(wrapped).__qualname__)


def _count_rows(name: str, value: Any) -> int:
    """Return the number of rows of the argument ``name``; of its first part if it is a tuple."""
    part = value[0] if isinstance(value, tuple) and value else value
    try:
        return len(part)
    except TypeError:
        raise GEHTypeError(f"{name} is a {type(value).__name__}; give a tensor, an array or a DataFrame.") from None


def _permute_rows(y: Any, order: Ints) -> Any:
    """Return the rows of ``y`` in another order, of the same type."""
    if hasattr(y, "iloc"):
        # The index stays in its order: ``fit`` may align X and y by it, which would undo the permutation.
        return y.iloc[order].set_axis(y.index)
    if isinstance(y, (tuple, list)):
        return type(y)(y[i] for i in order)
    return y[torch.as_tensor(order, device=y.device)] if isinstance(y, Tensor) else np.asarray(y)[order]


def _checked_ranking(outcome: Any, measure: str) -> PairRanking:
    """Return the ranking of an outcome of ``fit``, with finite scores."""
    ranking = _ranking(outcome, measure)
    if not np.isfinite(ranking.scores).all():
        raise GEHValueError("fit: some of the scores it returned are NaN or infinite; return finite scores.")
    return ranking


def _ranking(outcome: Any, measure: str) -> PairRanking:
    """Return the scores of an Interactions, a PairRanking, or an array (P,) or (D, D)."""
    if isinstance(outcome, PairRanking):
        return outcome
    if callable(getattr(outcome, "ranking", None)):
        ranking: PairRanking = outcome.ranking(measure)
        return ranking
    if not isinstance(outcome, (Tensor, np.ndarray, list)):
        raise GEHTypeError(
            f"fit: it returned a {type(outcome).__name__}; return a network, an Interactions, a PairRanking, or the "
            "scores of all pairs as an array."
        )
    scores = outcome.detach().cpu().numpy() if isinstance(outcome, Tensor) else np.asarray(outcome, dtype=float)
    if scores.ndim == 2 and scores.shape[0] == scores.shape[1] and len(scores) > 1:
        scores = scores[np.triu_indices(len(scores), 1)]
    # P = D (D - 1) / 2, solved for D.
    n_units = round((1 + np.sqrt(1 + 8 * scores.size)) / 2)
    if scores.ndim != 1 or not scores.size or n_units * (n_units - 1) // 2 != scores.size:
        raise GEHValueError(
            f"fit: it returned an array of shape {scores.shape}; return the scores of all pairs i < j, or a symmetric "
            "matrix."
        )
    return PairRanking(measure.upper(), scores, [f"x{unit}" for unit in range(n_units)])
