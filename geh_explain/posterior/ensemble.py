"""Independently trained networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import nn

from geh_explain.errors import GEHTypeError
from geh_explain.model.borrow import as_module, borrow, device_and_dtype


class Ensemble:
    """Networks trained independently; each is one draw. They may differ in architecture.

    For interactions between inputs only: unit 3 of one network is not unit 3 of another.

    >>> import torch, geh_explain as geh
    >>> nets = [torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)) for _ in range(5)]
    >>> explainer = geh.GEHExplainer(nets[0], posterior=geh.posterior.Ensemble(nets))
    >>> explainer.explain(torch.randn(50, 3), groups=2, progress=False).geh.draws.shape
    (5, 3)
    """

    inputs_only = True

    def __init__(self, models: Sequence[nn.Module | Callable[..., Any]]) -> None:
        if isinstance(models, nn.Module) and not isinstance(models, nn.ModuleList):
            raise GEHTypeError("Ensemble: models is a single network; pass a list of them.")
        if not isinstance(models, Iterable):
            raise GEHTypeError(f"Ensemble: models={models!r} is not a list of networks.")
        self.models = [as_module(model) for model in models]
        if not self.models:
            raise GEHTypeError("Ensemble: models is empty; pass at least two networks.")

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield the first ``n`` members, or all where there are fewer."""
        for member in self.models[:n]:
            yield _standing_in(model, member)

    def __len__(self) -> int:
        return len(self.models)

    def __repr__(self) -> str:
        return f"Ensemble({len(self.models)})"


@contextmanager
def _standing_in(model: nn.Module, member: nn.Module) -> Iterator[None]:
    """Let ``member`` answer for ``model``; a member that is the model itself needs nothing."""
    if member is model:
        yield
        return
    device_and_dtype(member)
    own = model.__dict__.get("forward")

    def leave() -> None:
        if own is None:
            model.__dict__.pop("forward", None)
        else:
            model.__dict__["forward"] = own

    def answer(*args: Any, **kwargs: Any) -> Any:
        leave()  # the member may contain the model
        try:
            return member(*args, **kwargs)
        finally:
            model.__dict__["forward"] = answer

    with borrow(member):
        model.__dict__["forward"] = answer
        try:
            yield
        finally:
            leave()
