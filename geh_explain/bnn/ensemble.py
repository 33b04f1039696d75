"""Several networks, each fitted to rows drawn anew: the spread between them is that of the whole procedure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm.auto import tqdm

from geh_explain._validation import check_int
from geh_explain.bnn.training import fit
from geh_explain.errors import GEHTypeError, warn


def fit_ensemble(
    make: Callable[[int], nn.Module],
    X: Any,
    y: Any,
    members: int = 10,
    *,
    bootstrap: bool = True,
    seed: int = 0,
    progress: bool = True,
    **options: Any,
) -> list[nn.Module]:
    """Fit ``members`` networks ``make(seed)``, and return them; explain them with ``posterior.Ensemble``.

    With ``bootstrap`` each is trained on as many rows as there are, drawn with replacement, and stopped by the
    rows it never saw. Draws around one solution, such as dropout's, know nothing of other solutions that fit as well;
    members differ in data, start and order, so that intervals of pairs of *inputs* become honest, at the price of
    training them. Other ``options`` are those of :func:`fit`.

    >>> import torch, geh_explain as geh
    >>> x = torch.rand(400, 3)
    >>> make = lambda seed: geh.bnn.HybridNet(3, hidden=(10,), weights="point", seed=seed)
    >>> nets = geh.bnn.fit_ensemble(make, x, x[:, 0] * x[:, 1], members=3, epochs=3, progress=False)
    >>> explainer = geh.GEHExplainer(nets[0], posterior=geh.posterior.Ensemble(nets))
    >>> explainer.explain(x, groups=2, progress=False).geh.draws.shape
    (3, 3)
    """
    if not callable(make) or isinstance(make, nn.Module):
        raise GEHTypeError(
            "make must be a callable that returns a new network for a seed, such as "
            "lambda seed: HybridNet(8, seed=seed)."
        )
    for name, value in (("X", X), ("y", y)):
        if bootstrap and not hasattr(value, "iloc") and not isinstance(value, (Tensor, np.ndarray)):
            raise GEHTypeError(f"{name} is a {type(value).__name__}; pass a tensor, ndarray or DataFrame.")
    found: list[nn.Module] = []
    for member in tqdm(range(check_int("members", members, 2)), desc="members", disable=not progress, leave=False):
        own = int(np.random.SeedSequence([seed, member]).generate_state(1)[0])
        net = make(own)
        data: dict[str, Any] = _resampled(X, y, own) if bootstrap else {"X": X, "y": y}
        if fit(net, seed=own, progress=False, **{**data, **options}).interrupted:
            warn(f"fit_ensemble was interrupted; the {len(found)} members before this one are kept.")
            break
        found.append(net)
    return found


def _resampled(X: Any, y: Any, seed: int) -> dict[str, Any]:
    """Return as many rows as there are, drawn with replacement, and the others to validate with."""
    drawn = np.random.default_rng(seed).integers(0, len(X), len(X))
    left = np.setdiff1d(np.arange(len(X)), drawn)
    return {"X": _taken(X, drawn), "y": _taken(y, drawn), "validation": (_taken(X, left), _taken(y, left))}


def _taken(value: Any, rows: NDArray[np.int64]) -> Any:
    return value.iloc[rows] if hasattr(value, "iloc") else value[rows]
