"""Linear layers with other weights: those of one draw, or of several draws at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

from geh_explain._process import safe_contextmanager
from geh_explain.errors import GEHRuntimeError
from geh_explain.posterior.forward import replace_forward
from geh_explain.posterior.loading import StateDict, check_sample

#: Weights (B, ...) and biases (B, C) of a layer in B draws; None for a layer without a bias.
LayerDraws = tuple[Tensor, Tensor | None]

#: Numbers that the weights of all draws of one forward pass may have together.
MAX_NUMBERS = 2**24
#: Draws of several layers that are computed at once, at least.
_MIN_OF_SEVERAL = 8


def linear_by_draw(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x W_b^T + c_b for rows of B draws: the first n rows with b = 0, the next n with b = 1, and so on.

    A function of its own for modes that intercept torch functions, so that the structured engine has a rule for it.

    Parameters
    ----------
    x
        Rows (B * n, ..., F).
    weight
        Weights (B, C, F).
    bias
        Biases (B, C), or None.

    Raises
    ------
    GEHRuntimeError
        If the rows cannot be divided among the draws.

    Examples
    --------
    >>> x, weight = torch.ones(4, 1), torch.tensor([[[2.0]], [[3.0]]])
    >>> linear_by_draw(x, weight, None).flatten().tolist()
    [2.0, 2.0, 3.0, 3.0]
    """
    if has_torch_function((x, weight)):
        result: Tensor = handle_torch_function(linear_by_draw, (x, weight), x, weight, bias)
        return result
    if len(x) % len(weight):
        raise GEHRuntimeError(f"{len(x)} rows cannot be divided among {len(weight)} draws.")
    rows, maps = x.reshape(len(weight), -1, x.shape[-1]), weight.transpose(1, 2)
    out = torch.bmm(rows, maps) if bias is None else torch.baddbmm(bias[:, None], rows, maps)
    return out.reshape(*x.shape[:-1], weight.shape[1])


@safe_contextmanager
def replace_layers(model: nn.Module, layers: Mapping[str, LayerDraws]) -> Iterator[None]:
    """Give linear layers of a model the weights of one or several draws; its parameters are not touched.

    With several draws the first forward pass of the model has a single row, which gets the weights of the first draw.
    Later ones have the rows of each draw in turn.

    Parameters
    ----------
    model
        The network.
    layers
        Weights and biases by the name of an ``nn.Linear``, or of a convolution at one position; weights (B, C, F).
    """
    passes = _Passes()
    with ExitStack() as stack:
        stack.callback(model.register_forward_hook(passes.end).remove)
        for name, (weight, bias) in layers.items():
            module: Any = model.get_submodule(name)
            draws = weight.to(module.weight), None if bias is None else bias.to(module.weight)
            stack.enter_context(replace_forward(module, _forward(module, draws, passes)))
        yield


def linear_layers_of(model: nn.Module, names: Iterable[str]) -> set[str] | None:
    """Return the names of the linear layers that own all parameters of these names; None if others are among them.

    Subclasses of ``nn.Linear`` may compute something else, and shared parameters belong to several modules.
    """
    owners = Counter(parameter for module in model.modules() for parameter in module._parameters.values())
    modules = dict(model.named_modules())
    layers = set()
    for name in dict.fromkeys(names):
        path, _, leaf = name.rpartition(".")
        module = modules.get(path)
        parameter = None if module is None else module._parameters.get(leaf)
        if type(module) is not nn.Linear or parameter is None or owners[parameter] > 1:
            return None
        layers.add(path)
    return layers


def stack_samples(model: nn.Module, samples: Sequence[StateDict], layers: Iterable[str]) -> dict[str, LayerDraws]:
    """Return the weights of linear layers in each sample; entries that a sample lacks are those of the model."""
    stacked: dict[str, LayerDraws] = {}
    for path in layers:
        module: Any = model.get_submodule(path)
        prefix = f"{path}." if path else ""
        parts = {
            leaf: torch.stack([sample.get(prefix + leaf, value).detach().to(value) for sample in samples])
            for leaf, value in module._parameters.items()
            if value is not None
        }
        stacked[path] = parts["weight"].detach(), parts.get("bias")
    return stacked


def batch_samples(
    model: nn.Module, samples: Sequence[StateDict], first: int, source: str
) -> AbstractContextManager[None]:
    """Return a context in which the model evaluates several samples of its linear layers at once.

    ``first`` is the number of the first sample and ``source`` the name of the posterior, for error messages.
    """
    for number, sample in enumerate(samples, start=first):
        check_sample(model, sample, number, source)
    layers = linear_layers_of(model, chain.from_iterable(samples))
    assert layers is not None
    return replace_layers(model, stack_samples(model, samples, layers))


def draws_at_once(model: nn.Module, names: Iterable[str], fitting: int) -> int:
    """Return how many samples of the parameters of these names are computed in one forward pass.

    ``fitting`` is the number of draws that fit into a chunk of rows. If several layers are drawn, rows of different
    draws share no Jacobians, so that few draws at once would take longer than one by one.
    """
    layers = linear_layers_of(model, names)
    if not layers or (len(layers) > 1 and fitting < _MIN_OF_SEVERAL):
        return 1
    n_weights = sum(parameter.numel() for path in layers for parameter in model.get_submodule(path).parameters())
    return max(1, min(fitting, MAX_NUMBERS // n_weights))


class _Passes:
    """Knows whether the first forward pass of the model is over."""

    def __init__(self) -> None:
        self.first = True

    def end(self, module: nn.Module, args: Any, out: Any) -> None:
        """End a forward pass; a hook of the model."""
        self.first = False


def _forward(module: nn.Module, draws: LayerDraws, passes: _Passes) -> Callable[[Tensor], Tensor]:
    """Return the forward method of a linear layer with the weights of the draws."""
    function = partial(_call_single, *draws) if len(draws[0]) == 1 else partial(_call_by_draw, *draws, passes)
    if isinstance(module, nn.Linear):
        return function
    # A convolution with one position is a linear map of its channels.
    return lambda x: function(x.flatten(1)).reshape(len(x), -1, *x.shape[2:])


def _call_single(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    return F.linear(x, weight[0], None if bias is None else bias[0])


def _call_by_draw(weight: Tensor, bias: Tensor | None, passes: _Passes, x: Tensor) -> Tensor:
    if passes.first:
        # By draw also here: a layer below the cut must not pass for one that the draws leave as it is.
        return linear_by_draw(x, weight[:1], None if bias is None else bias[:1])
    return linear_by_draw(x, weight, bias)
