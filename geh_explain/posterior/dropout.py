"""MC dropout: one mask per draw, shared by every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import nn

from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.posterior.masks import DrawsMasks, Masks, NoDropout, path_rate
from geh_explain.posterior.protocols import seed_of_draw
from geh_explain.posterior.train_only import TrainOnly


class MCDropout:
    """Dropout as a posterior: each draw drops one fixed set of nodes, for all rows alike.

    The model stays in eval mode, so that batch normalisation keeps its statistics; dropout modules and
    functional calls are both seen, also those a model makes in train mode only. ``modules`` restricts it to some
    dropout modules.

    >>> import torch, geh_explain as geh
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
    >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.MCDropout())
    >>> result = explainer.explain(torch.randn(50, 3), groups=2, draws=30, progress=False)
    >>> bool((result.geh.std[0, 1:] > 0).all())
    True
    """

    def __init__(self, modules: Sequence[nn.Module] | None = None) -> None:
        if modules is not None:
            modules = list(modules) if isinstance(modules, Iterable) and not isinstance(modules, nn.Module) else []
            if not modules or not all(isinstance(module, nn.Module) for module in modules):
                raise GEHTypeError("MCDropout: modules must be some modules of the model, in a list, or None for all.")
        self.modules = modules
        #: Classes of modules that drop in train mode only and do other things there too, so that they are left out.
        self.left_out: list[str] = []
        self._train_only: TrainOnly | None = None

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield ``n`` draws of the masks."""
        own = set(model.modules())
        for module in self.modules or ():
            if module not in own:
                raise GEHValueError(f"MCDropout: modules has {module}, which is not part of the model.")
        train_only = self._train_only = TrainOnly(model)
        self.left_out = train_only.mixed
        for draw in range(n):
            yield self._dropped(model, train_only, seed_of_draw(seed, draw))

    def together(self, model: nn.Module, draws: range, seed: int) -> AbstractContextManager[Any]:
        """Return several draws at once: the first forward has a single row, all others as many times their rows.

        All rows come under the first of ``draws``, then all of them under the second, and so on.
        """
        train_only = self._train_only
        if train_only is None or train_only.model is not model:
            train_only = TrainOnly(model)
        return self._dropped(model, train_only, *(seed_of_draw(seed, draw) for draw in draws))

    @contextmanager
    def _dropped(self, model: nn.Module, train_only: TrainOnly, *seeds: int) -> Iterator[None]:
        masks = Masks(*seeds, everywhere=self.modules is None)
        with ExitStack() as stack:
            for module in model.modules():
                if isinstance(module, DrawsMasks):
                    stack.callback(module.register_forward_hook(masks.drop_nodes).remove)
            for module in self.modules or ():
                stack.callback(module.register_forward_pre_hook(masks.open).remove)
                stack.callback(module.register_forward_hook(masks.close, always_call=True).remove)
            for module in model.modules():
                if self.modules is None and path_rate(module):
                    stack.callback(module.register_forward_hook(masks.drop_path).remove)
            if self.modules is None:
                look = partial(train_only.start, masks)
                stack.callback(model.register_forward_pre_hook(look, with_kwargs=True).remove)
                stack.enter_context(train_only.on())
            stack.callback(model.register_forward_pre_hook(masks.start, with_kwargs=True).remove)
            stack.callback(model.register_forward_hook(masks.finish).remove)
            stack.enter_context(masks)
            yield

    def __repr__(self) -> str:
        return "MCDropout()" if self.modules is None else f"MCDropout(modules={self.modules!r})"


def has_dropout(model: nn.Module, call: Callable[[], Any]) -> bool:
    """Tell whether ``call``, which runs the model on one row, drops anything."""
    try:
        with MCDropout()._dropped(model, TrainOnly(model), 0):
            call()
    except NoDropout:
        return False
    return True
