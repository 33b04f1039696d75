"""Fits to targets without interactions: the task of one worker of a permutation test."""

from __future__ import annotations

import base64
import inspect
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from geh_explain._hashing import digest
from geh_explain._process import seeded_generators
from geh_explain._types import Floats
from geh_explain._version import __version__
from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError, GEHWarning
from geh_explain.explainer import GEHExplainer
from geh_explain.groups.pairwise import PAIRWISE
from geh_explain.inference.jsonl import Record
from geh_explain.inference.null_targets import NullTarget
from geh_explain.inference.rows import data_digest
from geh_explain.scores.ranking import PairRanking

#: Scores of one network on two machines agree to this relative tolerance.
_SAME_SCORES = 1e-3
#: Pairs whose scores are kept for every permutation; of more pairs only the strongest score is kept.
MAX_KEPT_PAIRS = 50_000


@dataclass(frozen=True, eq=False, repr=False)
class Refits:
    """Fits to targets without interactions, and the scores of what was fitted.

    An instance is a function of the number of a permutation, 1, 2, ...; 0 is the target as it is. The number and
    ``seed`` alone decide on the new target and on the seed of the fit, so results do not depend on which worker
    computes them.

    Attributes
    ----------
    fit, X, measure, keep
        As in :func:`geh_explain.inference.permutation_test`.
    null : NullTarget
        The target, and a function of a number that returns one without interactions.
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
    null: NullTarget
    seed: int
    measure: str
    explain: dict[str, Any]
    keep: Callable[[Any], Record] | None
    groups: Any = None

    def __post_init__(self) -> None:
        if self.keep is not None and not callable(self.keep):
            raise GEHTypeError(f"keep={self.keep!r} is not callable; give a function of what fit returns.")
        if self.measure not in ("geh", "aeh", "eah"):
            raise GEHValueError(f"measure={self.measure!r} is unknown; use 'geh', 'aeh' or 'eah'.")

    @property
    def y(self) -> Any:
        """The target as it is."""
        return self.null.y

    def __call__(self, number: int) -> Record:
        """Fit to one target; returns its number, its strongest score, all scores, and what ``keep`` returned."""
        with warnings.catch_warnings():
            # Warnings about data and settings were shown for the observed target.
            warnings.simplefilter("ignore", GEHWarning)
            outcome = self._explained(self._fitted(number), number)
            scores = _checked_ranking(outcome, self.measure).scores
            kept = {} if self.keep is None else dict(self.keep(outcome))
        packed = pack_scores(scores) if len(scores) <= MAX_KEPT_PAIRS else None
        return {"number": number, "strongest": float(scores.max()), "scores": packed, "kept": kept}

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
        if record is not None and not _same_scores(np.asarray(record["scores"]), ranking.scores):
            raise GEHValueError("observed: the checkpoint was made with other scores; give another folder.")
        return {
            "number": 0,
            "scores": ranking.scores.tolist(),
            "method": ranking.method,
            "names": ranking.names,
            "groups": self._groups_of(outcome),
        }

    def _fitted(self, number: int) -> Any:
        """Return what ``fit`` returns for one target."""
        y = self.y if number == 0 else self.null(number)
        return call_fit(self.fit, self.X, y, fit_seed(self.seed, number))

    def _explained(self, outcome: Any, number: int) -> Any:
        """Return the result of explaining a network; any other outcome of ``fit`` unchanged."""
        if not isinstance(outcome, nn.Module):
            return outcome
        options = {"seed": self.seed, "progress": False, "distributed": False, **self.explain}
        if number and self.groups is not None:
            options["groups"] = self.groups if isinstance(self.groups, (int, str)) else np.asarray(self.groups)
        return GEHExplainer(outcome).explain(self.X, **options)

    def _groups_of(self, outcome: Any) -> Any:
        """Return the groups of a result as labels of the rows, or their number if it describes other rows."""
        labels = getattr(outcome, "labels", None)
        if labels is None:
            return None
        if getattr(outcome, "pair_cells", None) is not None:
            return PAIRWISE
        return labels.tolist() if len(labels) == len(self.y) else len(outcome.group_names)


def fingerprint(refits: Refits) -> dict[str, str]:
    """Return what identifies a test: checkpoints with another fingerprint belong to another test.

    Data are compared by their contents, functions by their names only.
    """
    return {
        "X": data_digest(refits.X),
        "y": data_digest(refits.y),
        "fit": function_name(refits.fit),
        "measure": refits.measure,
        "explain": describe_options(refits.explain),
        "keep": "" if refits.keep is None else function_name(refits.keep),
        "seed": str(refits.seed),
        "version": __version__,
    }


def call_fit(fit: Callable[..., Any], X: Any, y: Any, seed: int) -> Any:
    """Return what ``fit`` returns, with all global generators seeded before and restored after the call."""
    with seeded_generators(seed):
        return fit(X, y, seed=seed) if _takes_seed(fit) else fit(X, y)


def fit_seed(seed: int, number: int) -> int:
    """Return the seed of one fit, below 2^31 as some generators need; that of number 0 is ``seed`` itself."""
    if number == 0:
        return seed
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0] >> 1)


def check_fit(fit: Any) -> None:
    """Raise GEHTypeError if ``fit`` is not callable."""
    if not callable(fit):
        raise GEHTypeError(f"fit={fit!r} is not callable; give a function of X and y.")


def function_name(function: Any) -> str:
    """Return the qualified name of a function, of the function inside a partial, or of a callable's class."""
    wrapped = getattr(function, "func", function)
    return getattr(wrapped, "__qualname__", type(wrapped).__qualname__)


def describe_options(options: Mapping[str, Any]) -> str:
    """Return options as text that is the same in every process.

    Functions are given by their name. Arrays, networks, posteriors and other objects have their digest, as their text
    may be the same although they differ.

    >>> describe_options({"units": [1, 2], "output": describe_options})
    'output=describe_options, units=[1, 2]'
    """
    return ", ".join(f"{name}={_describe(value)}" for name, value in sorted(options.items()))


def _describe(value: Any) -> str:
    """Return a text of one option that is the same in every process."""
    if hasattr(value, "__array__"):
        return data_digest(value)
    if inspect.isroutine(value):
        return function_name(value)
    if isinstance(value, (list, tuple)):
        entries = ", ".join(map(_describe, value))
        return f"[{entries}]" if isinstance(value, list) else f"({entries})"
    if isinstance(value, Mapping):
        return f"{{{describe_options({str(key): entry for key, entry in value.items()})}}}"
    # The address of an object differs between processes.
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    return text if value is None or isinstance(value, (str, int, float)) else f"{text} {digest(value)}"


def pack_scores(scores: Floats) -> str:
    """Return scores in single precision as text of a JSON record: 4 bytes each, in base 64."""
    return base64.b64encode(scores.astype("<f4").tobytes()).decode()


def unpack_scores(text: str) -> NDArray[np.float32]:
    """Return the scores (P,) of a record.

    >>> unpack_scores(pack_scores(np.array([0.5, 2.0]))).tolist()
    [0.5, 2.0]
    """
    return np.frombuffer(base64.b64decode(text), dtype="<f4").astype(np.float32)


def check_record(record: Record) -> None:
    """Raise an exception unless a record of a checkpoint is one that :class:`Refits` returns.

    Scores are finite, one for each pair, and the strongest one is their maximum.
    """
    if record["number"] == 0:
        ranking = PairRanking(record["method"], record["scores"], record["names"])
        valid = np.isfinite(ranking.scores).all() and _are_groups(record["groups"])
    elif record["scores"] is None:
        valid = np.isfinite(float(record["strongest"])) and isinstance(record["kept"], dict)
    else:
        scores = unpack_scores(record["scores"])
        strongest = np.float32(record["strongest"])
        valid = np.isfinite(scores).all() and scores.max() == strongest and isinstance(record["kept"], dict)
    if not valid:
        raise ValueError("the record is impossible")


def _same_scores(first: Floats, second: Floats) -> bool:
    """Return whether two arrays are the scores of one network."""
    # Scores near 0 differ by rounding errors of the largest ones.
    rounding = 1e-6 * np.abs(first).max()
    return first.shape == second.shape and np.allclose(first, second, rtol=_SAME_SCORES, atol=rounding)


def _are_groups(groups: Any) -> bool:
    """Return whether a value can be the groups of a record: None, their number, "pairwise", or labels from 0 on."""
    labels = groups if isinstance(groups, list) else [groups]
    return groups in (None, PAIRWISE) or all(type(label) is int and label >= 0 for label in labels)


def _takes_seed(function: Callable[..., Any]) -> bool:
    """Return whether a function has a parameter called ``seed``."""
    try:
        return "seed" in inspect.signature(function).parameters
    except ValueError:  # functions written in C may have no signature
        return False


def _checked_ranking(outcome: Any, measure: str) -> PairRanking:
    """Return the ranking of an outcome of ``fit``, with finite scores."""
    ranking = _ranking(outcome, measure)
    if not ranking.pairs.complete:
        raise GEHValueError(
            f"fit: it returned scores of some pairs, {ranking.pairs!r}, and the test compares the maximum over all of "
            "them; explain all pairs, without unit=, pairs= and rows=."
        )
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
            "scores of all pairs as an array. Explain other models inside fit: return "
            "GEHExplainer(model).explain(X, groups=10)."
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
