"""Ensembles of independently trained networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from torch import nn

from geh_explain._process import safe_contextmanager
from geh_explain.errors import GEHTypeError
from geh_explain.model.preserve import as_module, device_and_dtype, preserved
from geh_explain.posterior.forward import replace_forward


class Ensemble:
    """Independently trained networks; each is one draw. They may differ in architecture.

    For interactions between inputs only (``layer=None``): hidden unit 3 of one network has nothing to do with hidden
    unit 3 of another.

    Parameters
    ----------
    models
        The networks (modules or plain callables), at least one. The model that is passed to the explainer may be
        among them; it is not added by itself.

    Raises
    ------
    GEHTypeError
        If ``models`` is empty, a single network, or holds something that cannot be called.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> nets = [torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)) for _ in range(5)]
    >>> explainer = geh.GEHExplainer(nets[0], posterior=geh.posterior.Ensemble(nets))
    >>> explainer.explain(torch.randn(50, 3), groups=2, progress=False).geh.draws.shape
    (5, 3)
    """

    #: Hidden units do not correspond between members, see :class:`~geh_explain.posterior.Posterior`.
    inputs_only = True

    def __init__(self, models: Sequence[nn.Module | Callable[..., Any]]) -> None:
        if isinstance(models, nn.Module) and not isinstance(models, nn.ModuleList):
            raise GEHTypeError("Ensemble: models is a single network; pass a list of networks.")
        if not isinstance(models, Iterable):
            raise GEHTypeError(f"Ensemble: models={models!r} is not a list of networks.")
        self.models = [as_module(model) for model in models]
        if not self.models:
            raise GEHTypeError("Ensemble: models is empty; pass at least two networks.")

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield the first ``n`` members in order, or all if there are fewer. The seed has no effect."""
        for member in self.models[:n]:
            yield _delegate(model, member)

    def __len__(self) -> int:
        return len(self.models)

    def __repr__(self) -> str:
        return f"Ensemble({len(self.models)})"


@safe_contextmanager
def _delegate(model: nn.Module, member: nn.Module) -> Iterator[None]:
    """Return the outputs of ``member``, in eval mode, from the forward pass of ``model``."""
    if member is model:
        yield
        return
    device_and_dtype(member)  # refuses members without values
    original = vars(model).get("forward")

    def forward(*args: Any, **kwargs: Any) -> Any:
        # The member may contain the model, which then needs its original forward method.
        with replace_forward(model, original):
            return member(*args, **kwargs)

    with preserved(member), replace_forward(model, forward):
        yield
