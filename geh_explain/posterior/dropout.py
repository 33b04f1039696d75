"""MC dropout: one set of masks per draw, shared by all rows (Gal & Ghahramani, 2016)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from typing import Any

import torch
from torch import nn

from geh_explain._process import SafeContext, safe_contextmanager
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.posterior.dropout_kinds import DrawsMasks, path_rate
from geh_explain.posterior.dropout_mode import DropoutMode, NoDropout
from geh_explain.posterior.dropout_places import DropoutPlaces, PlaceRecord
from geh_explain.posterior.masks import MaskRecord
from geh_explain.posterior.protocols import seed_of_draw
from geh_explain.posterior.train_only import TrainOnlyDropout, TrainOnlySwitch

#: Number of modules that a repr names.
_MAX_NAMED = 3


class MCDropout:
    """Dropout as an approximate posterior: each draw drops one fixed set of nodes, the same for all rows.

    In a draw k the input h of a dropout layer of rate p becomes h * m_k / (1 - p), with a mask m_k of independent
    Bernoulli(1 - p) entries. Masks are sampled in the first forward pass of the draw, which must have a single row.

    The model stays in eval mode, so that batch normalisation uses its running statistics. Dropout modules, functional
    dropout, dropout inside attention and stochastic depth are all drawn, also where a model applies them in train mode
    only. Dropout inside torch's recurrent kernels, scripted and compiled parts is not.

    An instance holds its arguments only, and can be shared by any number of explainers.

    Parameters
    ----------
    modules
        Modules of the model whose dropout is drawn, including that of their submodules. All other dropout is off.
        None, the default, takes all dropout.

    Raises
    ------
    GEHTypeError
        If ``modules`` is neither None nor a non-empty list of modules.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
    >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.MCDropout())
    >>> result = explainer.explain(torch.randn(50, 3), groups=2, draws=30, progress=False)
    >>> bool((result.geh.std[0, 1:] > 0).all())
    True
    """

    keeps_below = True
    #: The modules that drop in train mode only, if they were searched for already; set by :meth:`with_train_only`.
    _train_only: TrainOnlyDropout | None = None

    def __init__(self, modules: Sequence[nn.Module] | None = None) -> None:
        #: The chosen modules, None for all dropout.
        self.modules = None if modules is None else _check_modules(modules)

    def with_train_only(self, found: TrainOnlyDropout | None) -> MCDropout:
        """Return a posterior of the same draws that does not search for modules which drop in train mode only.

        ``found`` are those of the model that is drawn, None to search for them, by several forward passes.
        """
        known = copy.copy(self)
        known._train_only = found
        return known

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield ``n`` draws of the masks.

        Raises
        ------
        GEHValueError
            If one of the chosen modules is not part of ``model``.
        """
        modules_of_model = set(model.modules())
        for module in self.modules or ():
            if module not in modules_of_model:
                raise GEHValueError(
                    f"MCDropout: modules has a {type(module).__name__} that is not part of the model; choose among "
                    "model.modules()."
                )
        train_only = TrainOnlySwitch(model, self._train_only)
        for draw in range(n):
            yield self._dropped(model, train_only, MaskRecord([seed_of_draw(seed, draw)]))

    def batched(self, model: nn.Module, draws: range, seed: int) -> AbstractContextManager[Any]:
        """Return several draws at once, see :class:`~geh_explain.posterior.protocols.BatchedPosterior`.

        The first forward pass has a single row, every later one n rows for each draw: all n under the masks of the
        first of ``draws``, then all n under those of the second, and so on.
        """
        seeds = [seed_of_draw(seed, draw) for draw in draws]
        return self._dropped(model, TrainOnlySwitch(model, self._train_only), MaskRecord(seeds))

    def left_out(self, model: nn.Module, call: Callable[[], Any]) -> tuple[str, ...]:
        """Return the names of the classes of modules whose dropout is not drawn.

        They drop in train mode only and do other things there too, so that they stay in eval mode.

        Parameters
        ----------
        model
            The network, in eval mode.
        call
            Runs the model on a single row.
        """
        return self.search_train_only(model, call).mixed_classes

    def search_train_only(self, model: nn.Module, call: Callable[[], Any]) -> TrainOnlyDropout:
        """Return the modules that drop in train mode only, with the arguments of :meth:`left_out`."""
        return self.examine(model, call)[0] if self.modules is None else TrainOnlyDropout()

    def examine(
        self, model: nn.Module, call: Callable[[], Any], layer: nn.Module | None = None
    ) -> tuple[TrainOnlyDropout, DropoutPlaces]:
        """Return the modules that drop in train mode only, and where the model drops.

        Parameters
        ----------
        model, call
            As in :meth:`left_out`.
        layer
            The explained layer, None at the inputs.
        """
        train_only, record = TrainOnlySwitch(model, self._train_only), PlaceRecord([0])
        with suppress(NoDropout), self._dropped(model, train_only, record), record.watching(model, layer):
            call()
        return train_only.result or TrainOnlyDropout(), record.places()

    @safe_contextmanager
    def _dropped(self, model: nn.Module, train_only: TrainOnlySwitch, record: MaskRecord) -> Iterator[None]:
        """Replace dropout in ``model`` by the masks of ``record``."""
        if isinstance(model, torch.jit.ScriptModule):
            raise NoDropout(
                f"posterior={self!r}: the model is scripted or traced, so that its dropout cannot be drawn; pass the "
                "module from before torch.jit.script or torch.jit.trace, or another posterior."
            )
        everywhere = self.modules is None
        mode = DropoutMode(record, everywhere=everywhere)
        with ExitStack() as stack:
            for module in model.modules():
                if isinstance(module, DrawsMasks):
                    stack.callback(module.register_forward_hook(mode.drop_nodes).remove)
            for module in self.modules or ():
                stack.callback(module.register_forward_pre_hook(mode.open).remove)
                # Also after an exception in the module, or the mode would stay open.
                stack.callback(module.register_forward_hook(mode.close, always_call=True).remove)
            for module in model.modules():
                if everywhere and path_rate(module):
                    stack.callback(module.register_forward_hook(mode.drop_path).remove)
            if everywhere:
                search = partial(train_only.search, mode)
                stack.callback(model.register_forward_pre_hook(search, with_kwargs=True).remove)
                stack.enter_context(train_only.on())
            stack.callback(model.register_forward_pre_hook(mode.begin_forward, with_kwargs=True).remove)
            stack.callback(model.register_forward_hook(mode.end_forward).remove)
            stack.enter_context(mode)
            yield

    def __repr__(self) -> str:
        if self.modules is None:
            return "MCDropout()"
        names = [type(module).__name__ for module in self.modules[:_MAX_NAMED]]
        if len(self.modules) > _MAX_NAMED:
            names.append(f"{len(self.modules) - _MAX_NAMED} more")
        return f"MCDropout(modules=[{', '.join(names)}])"


def find_dropout(model: nn.Module, call: Callable[[], Any]) -> MCDropout | None:
    """Return MC dropout of all that ``call``, which runs the model on a single row, drops; None if that is nothing."""
    posterior, train_only = MCDropout(), TrainOnlySwitch(model)
    try:
        with posterior._dropped(model, train_only, MaskRecord([0])):
            call()
    except NoDropout:
        return None
    return posterior if train_only.result is None else posterior.with_train_only(train_only.result)


@torch.no_grad()
def drops_in_batch(call: Callable[[], Any]) -> bool:
    """Return whether ``call``, which runs a model on several rows, calls dropout with p > 0; nothing is dropped."""
    record = MaskRecord(seeds=())
    with SafeContext(DropoutMode(record, everywhere=True)):
        call()
    return len(record) > 0


def _check_modules(modules: Any) -> tuple[nn.Module, ...]:
    """Return the argument ``modules`` of :class:`MCDropout` as a tuple."""
    chosen = tuple(modules) if isinstance(modules, Iterable) and not isinstance(modules, nn.Module) else ()
    if not chosen or not all(isinstance(module, nn.Module) for module in chosen):
        raise GEHTypeError(
            f"MCDropout: modules is a {type(modules).__name__}; pass a non-empty list of modules of the model, or None "
            "for all dropout."
        )
    return chosen
