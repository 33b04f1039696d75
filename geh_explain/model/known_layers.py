"""Networks of torch's own layers, which are functions of each row by their construction.

What checks find out about other models by forward passes is known of these: an output depends on its own row alone, the
same call gives the same outputs with and without gradients, and a forward pass draws no random numbers in eval mode and
writes to nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as torch_module

#: Layers that are smooth functions of each row in eval mode. Those with the dimension of the rows as an argument, with
#: running statistics or with an argument that works in place are not among them.
_SMOOTH = (nn.Sequential, nn.Linear, nn.Identity, nn.Dropout, nn.Softplus, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU)
#: The same with a kink.
_KINKED = (nn.ReLU, nn.LeakyReLU, nn.ELU)
#: Methods by which a layer is called; attributes of a layer of these names take their place.
_METHODS = ("forward", "__call__", "_call_impl")
#: These methods as torch defines them: a class that was changed since is not known.
_AS_MADE: dict[type[nn.Module], list[object]] = {
    kind: [getattr(kind, name) for name in _METHODS] for kind in (*_SMOOTH, *_KINKED)
}
#: The functions of torch that these layers call, by module: another one in the place of one of them is not known.
_FUNCTIONS = {
    module: {name: getattr(module, name) for name in names.split()}
    for module, names in (
        (torch, "tanh sigmoid"),
        (functional, "linear dropout softplus gelu silu relu leaky_relu elu"),
    )
}
#: Names of the hooks of all modules, in torch's own module.
_GLOBAL_HOOKS = (
    *("_global_forward_hooks", "_global_forward_pre_hooks"),
    *("_global_backward_hooks", "_global_backward_pre_hooks"),
)
#: Attributes of a module that hold its hooks.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
#: Attributes of a module that are called in the place of its methods: code by Module.compile(), for instance.
_REPLACED = (*_METHODS, "_compiled_call_impl")


def has_known_layers(model: nn.Module) -> bool:
    """Return whether all layers of a model are torch's own, as they were made, and treat rows one by one.

    Subclasses, hooks, parametrisations, forward methods of an instance, parameters of a type of their own, functions in
    the place of torch's own, a function or dispatch mode around the call, and autocast make it unknown what a forward
    pass does.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> has_known_layers(net), has_known_layers(nn.Sequential(net, nn.Softmax(dim=0)))
    (True, False)
    >>> hook = net[1].register_forward_hook(lambda module, args, out: out.mean(dim=0))
    >>> has_known_layers(net)
    False
    """
    if any(getattr(torch_module, name) for name in _GLOBAL_HOOKS) or _is_intercepted():
        return False
    return all(_is_known(layer) for layer in model.modules())


def is_smooth(model: nn.Module) -> bool:
    """Return whether no layer of a model with known layers has a kink.

    >>> is_smooth(nn.Sequential(nn.Linear(3, 4), nn.Tanh())), is_smooth(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))
    (True, False)
    """
    return all(type(layer) in _SMOOTH for layer in model.modules())


def layers_of(model: nn.Module) -> tuple[tuple[str, type[nn.Module], str], ...]:
    """Return places, types and settings of the layers, without those of the weights: equal for equal architectures.

    >>> net, other = (nn.Sequential(nn.Linear(3, 4), nn.Softplus(beta)) for beta in (1.0, 10.0))
    >>> layers_of(net) == layers_of(nn.Sequential(nn.Linear(3, 4), nn.Softplus())), layers_of(net) == layers_of(other)
    (True, False)
    """
    # A layer that occurs twice counts twice.
    layers = model.named_modules(remove_duplicate=False)
    return tuple((name, type(layer), layer.extra_repr()) for name, layer in layers)


def _is_known(layer: nn.Module) -> bool:
    """Return whether a layer is of a known type, without anything of its own."""
    kind = type(layer)
    if kind not in _AS_MADE or _AS_MADE[kind] != [getattr(kind, name) for name in _METHODS]:
        return False
    if any(name in vars(layer) for name in _REPLACED):
        return False
    if getattr(layer, "inplace", False) or layer._buffers or any(getattr(layer, name) for name in _HOOKS):
        return False
    if any(isinstance(value, Tensor) for value in vars(layer).values()):
        return False
    values = (value for value in layer._parameters.values() if value is not None)
    return all(type(value) in (nn.Parameter, Tensor) and value.layout == torch.strided for value in values)


def _is_intercepted() -> bool:
    """Return whether functions of torch were replaced, or a mode is active that may change what they do."""
    replaced = any(
        getattr(module, name) is not as_made
        for module, functions in _FUNCTIONS.items()
        for name, as_made in functions.items()
    )
    modes = torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()
    return replaced or modes > 0 or torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
