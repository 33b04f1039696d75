"""Bootstrap ensembles: networks fitted to resampled rows, whose spread is that of the whole training procedure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor, nn
from tqdm.auto import tqdm

from geh_explain._types import Ints
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
    """Fit several networks to resampled rows, and return them; explain them with ``posterior.Ensemble``.

    Draws around one solution, such as those of dropout, do not include other solutions that fit as well. Members
    differ in data, initial weights and order of batches, so their spread includes those. The price is one training
    per member. Only pairs of inputs can be explained: hidden units of different networks do not correspond.

    Parameters
    ----------
    make
        ``make(seed)`` returns a new, untrained network.
    X, y
        Inputs and targets as in :func:`fit`; with ``bootstrap`` tensors, arrays, DataFrames or Series.
    members
        Number of networks, at least 2.
    bootstrap
        Train each network on as many rows as there are, drawn with replacement, and use the rows that were not drawn
        for early stopping. False trains all networks on all rows.
    seed
        Decides on the seed of every member, which decides on its weights, rows and training.
    progress
        Show a progress bar over the members.
    **options
        Further arguments of :func:`fit`.

    Returns
    -------
    list of nn.Module
        The fitted networks in eval mode. After an interruption by the keyboard, those that were finished.

    Raises
    ------
    GEHTypeError
        If ``make`` is a network instead of a function, or rows of ``X`` or ``y`` cannot be chosen.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> x = torch.rand(400, 3)
    >>> make = lambda seed: geh.bnn.HybridNet(3, hidden=(10,), weights="point", seed=seed)
    >>> nets = geh.bnn.fit_ensemble(make, x, x[:, 0] * x[:, 1], members=3, epochs=3, progress=False)
    >>> explainer = geh.GEHExplainer(nets[0], posterior=geh.posterior.Ensemble(nets))
    >>> explainer.explain(x, groups=2, progress=False).geh.draws.shape
    (3, 3)
    """
    # A module is callable too, but calling it runs it instead of making a new one.
    if not callable(make) or isinstance(make, nn.Module):
        raise GEHTypeError(
            "make must be a callable that returns a new network for a seed, such as "
            "lambda seed: HybridNet(8, seed=seed)."
        )
    for name, value in (("X", X), ("y", y)):
        if bootstrap and not hasattr(value, "iloc") and not isinstance(value, (Tensor, np.ndarray)):
            raise GEHTypeError(f"{name} is a {type(value).__name__}; pass a tensor, ndarray or DataFrame.")
    networks: list[nn.Module] = []
    for member in tqdm(range(check_int("members", members, 2)), desc="members", disable=not progress, leave=False):
        member_seed = int(np.random.SeedSequence([seed, member]).generate_state(1)[0])
        net = make(member_seed)
        data: dict[str, Any] = _bootstrap(X, y, member_seed) if bootstrap else {"X": X, "y": y}
        if fit(net, seed=member_seed, progress=False, **{**data, **options}).interrupted:
            warn(f"fit_ensemble was interrupted; the {len(networks)} members before this one are kept.")
            break
        networks.append(net)
    return networks


def _bootstrap(X: Any, y: Any, seed: int) -> dict[str, Any]:
    """Return arguments of :func:`fit`: n rows drawn with replacement, and the rows not drawn as ``validation``."""
    # About exp(-1) = 37 % of the rows are not drawn.
    drawn = np.random.default_rng(seed).integers(0, len(X), len(X))
    left_out = np.setdiff1d(np.arange(len(X)), drawn)
    validation = (_select_rows(X, left_out), _select_rows(y, left_out))
    return {"X": _select_rows(X, drawn), "y": _select_rows(y, drawn), "validation": validation}


def _select_rows(value: Any, rows: Ints) -> Any:
    """Return these rows of a tensor, array, DataFrame or Series, in this order."""
    return value.iloc[rows] if hasattr(value, "iloc") else value[rows]
