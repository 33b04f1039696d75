"""Fitting again to permuted targets: what one worker of a permutation test does."""

from __future__ import annotations

import hashlib
import inspect
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geh_explain._version import __version__
from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError, GEHWarning
from geh_explain.inference.jsonl import Record
from geh_explain.model.borrow import global_generators
from geh_explain.scores.ranking import PairRanking


class Refits:
    """Fits to permutation ``number`` of the target, or to the target itself (0), and scores what comes out."""

    def __init__(
        self,
        fit: Callable[..., Any],
        X: Any,
        y: Any,
        seed: int,
        measure: str,
        explain: dict[str, Any],
        keep: Callable[[Any], Record] | None,
    ) -> None:
        if not callable(fit):
            raise GEHTypeError(f"fit={fit!r} is not callable; give a function of X and y.")
        if keep is not None and not callable(keep):
            raise GEHTypeError(f"keep={keep!r} is not callable; give a function of what fit returns.")
        if measure not in ("geh", "aeh", "eah"):
            raise GEHValueError(f"measure={measure!r} is unknown; use 'geh', 'aeh' or 'eah'.")
        self.rows = _rows("y", y)
        if _rows("X", X) != self.rows:
            raise GEHValueError(f"X has {_rows('X', X)} rows and y {self.rows}; they must be of the same rows.")
        if self.rows < 2:
            raise GEHValueError("y has one row; there is nothing to permute.")
        self.fit, self.X, self.y, self.seed = fit, X, y, seed
        self.measure, self.explain, self.keep = measure, explain, keep
        #: The groups of the observed network, which those of permuted targets take over.
        self.groups: Any = None
        self._takes_seed = _takes_seed(fit)

    def __call__(self, number: int) -> Record:
        """Fit to one permutation, and return its strongest score."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GEHWarning)  # said of the target as it is, if it is worth saying
            ranking, kept, _ = self._scored(self._fitted(number), number)
        return {"number": number, "strongest": float(ranking.scores.max()), "kept": kept}

    def observed(self, given: Any, known: Record | None) -> Record:
        """Return the scores of all pairs with the target as it is: those ``known``, if nothing else is ``given``."""
        if known is not None and given is None:
            return known
        try:
            outcome = self._fitted(0) if given is None else given
        except Exception as error:
            raise GEHRuntimeError(f"fit: it failed with y as it is: {type(error).__name__}: {error}") from error
        ranking, _, groups = self._scored(outcome, 0)
        if known is not None and not np.allclose(known["scores"], ranking.scores, rtol=1e-3):
            raise GEHValueError("observed: the checkpoint was made with other scores; give another folder.")
        about = {"method": ranking.method, "names": ranking.names, "groups": groups}
        return {"number": 0, "scores": ranking.scores.tolist(), **about}

    def _fitted(self, number: int) -> Any:
        with global_generators():
            seed = self._seed(number)
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            y = self.y if number == 0 else _taken(self.y, self._order(number))
            return self.fit(self.X, y, seed=seed) if self._takes_seed else self.fit(self.X, y)

    def _order(self, number: int) -> NDArray[np.int64]:
        return np.random.default_rng([self.seed, number]).permutation(self.rows)

    def _seed(self, number: int) -> int:
        return self.seed if number == 0 else int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0] >> 1)

    def _scored(self, outcome: Any, number: int) -> tuple[PairRanking, Record, Any]:
        """Return the scores of what ``fit`` returned, what is to be kept of it, and its groups."""
        if isinstance(outcome, nn.Module):
            outcome = self._explained(outcome, number)
        ranking = _ranking(outcome, self.measure)
        if not np.isfinite(ranking.scores).all():
            raise GEHValueError("fit: some of the scores it returned are NaN or infinite.")
        return ranking, dict(self.keep(outcome)) if self.keep is not None and number else {}, self._groups(outcome)

    def _groups(self, outcome: Any) -> Any:
        """Return the groups of a result: a label for each row, or how many, if it is about other rows."""
        labels = getattr(outcome, "labels", None)
        if labels is None:
            return None
        return labels.tolist() if len(labels) == self.rows else len(outcome.group_names)

    def _explained(self, net: nn.Module, number: int) -> Any:
        from geh_explain.explainer import GEHExplainer

        options = {"seed": self.seed, "progress": False, "distributed": False, **self.explain}
        if number and self.groups is not None:
            options["groups"] = self.groups if isinstance(self.groups, int) else np.asarray(self.groups)
        return GEHExplainer(net).explain(self.X, **options)


def fingerprint(refits: Refits) -> dict[str, str]:
    """Return what tells one test from another; code is known by its name only."""
    return {
        "X": _digest(refits.X),
        "y": _digest(refits.y),
        "fit": _name(refits.fit),
        "measure": refits.measure,
        "explain": repr(sorted(refits.explain.items())),
        "keep": "" if refits.keep is None else _name(refits.keep),
        "seed": str(refits.seed),
        "version": __version__,
    }


def _takes_seed(function: Callable[..., Any]) -> bool:
    try:
        return "seed" in inspect.signature(function).parameters
    except ValueError:  # written in C
        return False


def _name(function: Any) -> str:
    of = getattr(function, "func", function)
    return getattr(of, "__qualname__", type(of).__qualname__)


def _digest(value: Any) -> str:
    digest = hashlib.sha256()
    for part in value if isinstance(value, (tuple, list)) else (value,):
        array = np.ascontiguousarray(part.detach().cpu().numpy() if isinstance(part, Tensor) else np.asarray(part))
        digest.update(repr((array.shape, str(array.dtype))).encode())
        digest.update(array.tobytes() if array.dtype != object else repr(array.tolist()).encode())
    return digest.hexdigest()[:16]


def _rows(name: str, value: Any) -> int:
    part = value[0] if isinstance(value, tuple) and value else value
    try:
        return len(part)
    except TypeError:
        raise GEHTypeError(f"{name} is a {type(value).__name__}; give a tensor, an array or a DataFrame.") from None


def _taken(y: Any, order: NDArray[np.int64]) -> Any:
    """Return the rows of ``y`` in another order; a Series keeps its index, by which it may be joined to X."""
    if hasattr(y, "iloc"):
        taken = y.iloc[order]
        taken.index = y.index
        return taken
    if isinstance(y, (tuple, list)):
        return type(y)(y[i] for i in order)
    return y[torch.as_tensor(order, device=y.device)] if isinstance(y, Tensor) else np.asarray(y)[order]


def _ranking(outcome: Any, measure: str) -> PairRanking:
    """Return the scores of an Interactions, a ranking or an array."""
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
    units = round((1 + np.sqrt(1 + 8 * scores.size)) / 2)
    if scores.ndim != 1 or not scores.size or units * (units - 1) // 2 != scores.size:
        raise GEHValueError(
            f"fit: it returned an array of shape {scores.shape}; return the scores of all pairs i < j, or a symmetric "
            "matrix."
        )
    return PairRanking(measure.upper(), scores, [f"x{unit}" for unit in range(units)])
