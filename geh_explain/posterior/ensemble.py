"""Ensembles of independently trained networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from torch import nn

from geh_explain._process import safe_contextmanager
from geh_explain.errors import GEHTypeError
from geh_explain.model.known_layers import has_known_layers, layers_of
from geh_explain.model.preserve import as_module, device_and_dtype, had_known_layers, preserved
from geh_explain.posterior.by_draw import batch_samples, draws_at_once
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

    def prepared(self, model: nn.Module, output: Any) -> Ensemble:
        """Return the ensemble, with members that are computed together if all of them have the layers of ``model``."""
        if type(self) is not Ensemble or not _differ_in_weights_only(model, self.models):
            return self
        return _OneArchitecture(self.models)

    def __len__(self) -> int:
        return len(self.models)

    def __repr__(self) -> str:
        return f"Ensemble({len(self.models)})"


class _OneArchitecture(Ensemble):
    """Members with the same layers of torch's own, whose weights are stacked: several of them are one forward pass."""

    def batched(self, model: nn.Module, draws: range, seed: int) -> AbstractContextManager[Any]:
        """Return several members at once, see :class:`~geh_explain.posterior.protocols.BatchedPosterior`."""
        samples = [self.models[draw].state_dict() for draw in draws]
        return batch_samples(model, samples, draws.start, "Ensemble")

    def draws_at_once(self, model: nn.Module, fitting: int) -> int:
        """Return how many members are computed at once; one if parameters are shared by several layers."""
        return draws_at_once(model, model.state_dict(), fitting)


def _differ_in_weights_only(model: nn.Module, members: Sequence[nn.Module]) -> bool:
    """Return whether the members have known layers, those of ``model``, and parameters of its type and device."""
    if not had_known_layers(model) or not all(member is model or has_known_layers(member) for member in members):
        return False
    kinds = {(parameter.dtype, parameter.device) for each in (model, *members) for parameter in each.parameters()}
    return len(kinds) == 1 and all(layers_of(member) == layers_of(model) for member in members)


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
