"""Comparison of all state of models and of torch before and after a call, with models that have much state."""

import random
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from explaining import explain_draws, random_points
from torch import nn
from torch.overrides import _get_current_function_mode_stack

from geh_explain import posterior as posteriors

DRAWS = 3


# The state that is compared


def tensor_state(tensor):
    grad = None if tensor.grad is None else (id(tensor.grad), tensor.grad.tolist())
    return id(tensor), tensor.data_ptr(), tensor.requires_grad, tensor.dtype, tensor.tolist(), grad


def entry_state(value):
    """The state of one entry of a module's ``__dict__``: a table of hooks or modules, tensor, flag or object."""
    if isinstance(value, torch.Tensor):
        return tensor_state(value)
    if isinstance(value, dict):
        return [(key, entry_state(entry)) for key, entry in value.items()]
    if isinstance(value, (bool, int, float, str, set, type(None))):
        return value
    return id(value)


def model_state(*models):
    return {
        (number, name, key): entry_state(value)
        for number, model in enumerate(models)
        for name, module in model.named_modules()
        for key, value in module.__dict__.items()
    }


def global_state():
    return {
        "torch": torch.get_rng_state().tolist(),
        "numpy": [part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()],
        "random": random.getstate(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "memory efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "math": torch.backends.cuda.math_sdp_enabled(),
        "function modes": [id(mode) for mode in _get_current_function_mode_stack()],
        "dtype": torch.get_default_dtype(),
    }


@contextmanager
def untouched(*models):
    """Fail if the block changes the models or the global state."""
    keep_alive = [dict(module.__dict__) for model in models for module in model.modules()]
    keep_alive += [[*model.parameters(), *model.buffers()] for model in models]
    before = {**model_state(*models), **global_state()}
    yield
    after = {**model_state(*models), **global_state()}
    assert list(after) == list(before)
    changed = {key: (before[key], after[key]) for key in before if before[key] != after[key]}
    assert not changed, changed
    del keep_alive


# Models and posteriors


class Fuse:
    """Identity that raises ``error`` when it is called for the ``blows``-th time."""

    def __init__(self):
        self.calls, self.blows, self.error = 0, 0, None

    def __call__(self, value=None):
        self.calls += 1
        if self.calls == self.blows:
            raise self.error
        return value


def nothing(*args):
    """Hook that changes nothing."""


class Lived(nn.Module):
    """A network with much state: mixed modes, a frozen bias, gradients, batch statistics and hooks of its user."""

    def __init__(self, fuse=None, hidden=5):
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(3, hidden), nn.BatchNorm1d(hidden), nn.Dropout(0.3)
        self.middle, self.last = nn.Linear(hidden, 4), nn.Linear(4, 1)
        self.kink = nn.LeakyReLU(inplace=True)
        fuse = fuse or Fuse()
        # Behind a function: the calls are counted by a test, and an object of the model itself would be restored.
        self.fuse = lambda: fuse()
        self.double()
        self(torch.randn(20, 3, dtype=torch.double)).sum().backward()  # leaves gradients and running statistics
        fuse.calls = 0
        self.last.bias.grad = None
        self.middle.bias.requires_grad_(False)
        self.eval()
        self.drop.train()
        self.last.train()
        self.middle.register_forward_hook(nothing)
        self.middle.register_forward_pre_hook(nothing)
        self.middle.register_full_backward_hook(nothing)
        self.last.register_forward_hook(nothing, always_call=True)
        self.norm.register_forward_hook(lambda module, args, kwargs, out: None, with_kwargs=True)
        self.register_forward_pre_hook(lambda module, args, kwargs: None, with_kwargs=True)
        self.register_full_backward_pre_hook(nothing)
        self.register_state_dict_pre_hook(nothing)

    def below(self, x):
        return self.first(x)

    def forward(self, x):
        hidden = self.drop(torch.tanh(self.norm(self.below(x))))
        if not self.training:  # in train mode the search for hidden dropout calls it, where errors are ignored
            self.fuse()
        return self.last(torch.tanh(self.middle(hidden)))


class Noisy(Lived):
    """Draws its own weights in each forward."""

    def below(self, x):
        weight = self.first.weight + 0.1 * torch.randn_like(self.first.weight)
        return self.first(x) + x @ (weight - self.first.weight).T * (1 + random.random() + np.random.rand())


class Own:
    """A user-defined posterior: draw k scales the first layer by 1 + k."""

    def draws(self, model, n, seed):
        for draw in range(n):
            yield self.scaled(model.first, 1 + draw)

    @contextmanager
    def scaled(self, layer, factor):
        handle = layer.register_forward_hook(lambda module, args, out: out * factor)
        try:
            yield
        finally:
            handle.remove()


def samples_of(model):
    entries = {name: value for name, value in model.state_dict().items() if value.is_floating_point()}
    return [{name: value * (1 + 0.1 * k) for name, value in entries.items()} for k in range(DRAWS)]


def automatic(fuse):
    return Lived(fuse), None, ()


def dropout(fuse):
    return Lived(fuse), posteriors.MCDropout(), ()


def dropout_of_one_module(fuse):
    model = Lived(fuse)
    return model, posteriors.MCDropout(modules=[model.drop]), ()


def weights(fuse):
    model = Lived(fuse)
    return model, posteriors.WeightSamples(samples_of(model)), ()


def weights_on_call(fuse):
    model = Lived(fuse)
    samples = samples_of(model)
    return model, posteriors.WeightSamples(lambda k: samples[k]), ()


def ensemble(fuse):
    members = [Lived(fuse), Lived(fuse, hidden=7), Lived(fuse)]
    return members[0], posteriors.Ensemble(members), members


def ensemble_of_others(fuse):
    members = [Lived(fuse, hidden=6), Lived(fuse, hidden=7)]
    return Lived(fuse), posteriors.Ensemble(members), members


def stochastic(fuse):
    return Noisy(fuse), posteriors.Stochastic(), ()


def own(fuse):
    return Lived(fuse), Own(), ()


def point(fuse):
    return Lived(fuse), posteriors.PointEstimate(), ()


AT_LAYERS = [automatic, dropout, dropout_of_one_module, weights, weights_on_call, stochastic, own, point]
CASES = [(case, layer) for case in AT_LAYERS for layer in (None, "first", "middle")]
CASES += [(ensemble, None), (ensemble_of_others, None)]
each_case = pytest.mark.parametrize(("case", "layer"), CASES, ids=[f"{c.__name__}-{n or 'inputs'}" for c, n in CASES])
marks = [
    pytest.mark.usefixtures("seeded"),
    # torch warns that a user's full backward hook at the explained layer gets no gradients of its inputs.
    pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning"),
]


def explain_case(model, posterior, layer=None, *, inputs=None, **options):
    """Explain with 3 draws; by default 12 points, 2 groups, and the probability, which has curvature at any layer."""
    options = {"output": "probability", "groups": 2, "draws": DRAWS} | options
    inputs = random_points(12, 3, seed=1) if inputs is None else inputs
    return explain_draws(model, inputs, posterior=posterior, layer=layer, **options)
