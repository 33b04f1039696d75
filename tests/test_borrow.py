"""The model is borrowed: whatever happens in between, everything about it and around it comes back as it was."""

import random
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh
from geh_explain import posterior as posteriors

DRAWS = 3


@pytest.fixture(autouse=True)
def _seeded_and_on_one_core():
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for tensors this small, waking other cores takes longer than the work
    yield
    torch.set_num_threads(threads)


# What is looked at


def tensor_state(tensor):
    grad = None if tensor.grad is None else (id(tensor.grad), tensor.grad.tolist())
    return id(tensor), tensor.data_ptr(), tensor.requires_grad, tensor.dtype, tensor.tolist(), grad


def entry_state(value):
    """Everything a module's ``__dict__`` can hold: tables (of hooks, parameters, modules), tensors, flags, objects."""
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


def world_state():
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
    """Fail if the block leaves a trace in the models or in the world around them."""
    keep_alive = [dict(module.__dict__) for model in models for module in model.modules()]
    keep_alive += [[*model.parameters(), *model.buffers()] for model in models]
    before = {**model_state(*models), **world_state()}
    yield
    after = {**model_state(*models), **world_state()}
    assert list(after) == list(before)
    assert {key: (before[key], after[key]) for key in before if before[key] != after[key]} == {}
    del keep_alive


def test_the_looking_itself_sees_every_kind_of_change():
    changes = [
        lambda m: m.first.weight.data.add_(1),
        lambda m: setattr(m.first, "weight", nn.Parameter(m.first.weight.detach().clone())),
        lambda m: setattr(m.first.weight, "data", m.first.weight.data.clone()),
        lambda m: m.first.weight.requires_grad_(False),
        lambda m: setattr(m.first.weight, "grad", None),
        lambda m: m.norm.running_mean.add_(1),
        lambda m: m.drop.eval(),
        lambda m: m.middle.register_forward_hook(nothing),
        lambda m: m.middle.register_forward_pre_hook(nothing),
        lambda m: m.middle.register_full_backward_hook(nothing),
        lambda m: m.middle._forward_hooks.clear(),
        lambda m: m.__dict__.update(forward=nothing),
        lambda m: torch.rand(1),
        lambda m: np.random.rand(),
        lambda m: random.random(),
    ]
    for change in changes:
        model = Lived()
        with pytest.raises(AssertionError), untouched(model):
            change(model)


# Who is borrowed


class Fuse:
    """Blows at one call: raises ``error`` when it is called for the ``blows``-th time."""

    def __init__(self):
        self.calls, self.blows, self.error = 0, 0, None

    def __call__(self, value=None):
        self.calls += 1
        if self.calls == self.blows:
            raise self.error
        return value


def nothing(*args):
    """Hook that only looks."""


class Lived(nn.Module):
    """A network with a past: mixed modes, a frozen bias, gradients, batch statistics and its owner's hooks."""

    def __init__(self, fuse=None, hidden=5):
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(3, hidden), nn.BatchNorm1d(hidden), nn.Dropout(0.3)
        self.middle, self.last = nn.Linear(hidden, 4), nn.Linear(4, 1)
        self.kink = nn.LeakyReLU(inplace=True)
        self.fuse = fuse or Fuse()
        self.double()
        self(torch.randn(20, 3, dtype=torch.double)).sum().backward()  # leaves gradients and running statistics
        self.fuse.calls = 0
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
        self.fuse()
        return self.last(torch.tanh(self.middle(hidden)))


class Noisy(Lived):
    """Draws its own weights."""

    def below(self, x):
        weight = self.first.weight + 0.1 * torch.randn_like(self.first.weight)
        return self.first(x) + x @ (weight - self.first.weight).T * (1 + random.random() + np.random.rand())


class Kinked(Lived):
    """Has kinks that are smoothed while explaining, in a module, a function and a method."""

    def below(self, x):
        hidden = self.first(x)
        return self.kink(torch.relu(hidden) - 0.5 * hidden.clamp(-1, 1))


class Own:
    """A user's own posterior: the first layer is scaled."""

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
# torch remarks that a user's full backward hook at the cut sees no gradients of its inputs; that is so by design.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")


def points(rows=12):
    return torch.randn(rows, 3, dtype=torch.double, generator=torch.Generator().manual_seed(1))


def explain(model, posterior, layer=None, inputs=None, output="probability", groups=2, **options):
    explainer = geh.GEHExplainer(model, layer, posterior=posterior, output=output)
    inputs = points() if inputs is None else inputs
    return explainer.explain(inputs, groups=groups, draws=DRAWS, progress=False, **options)


# It comes back


@each_case
def test_the_model_comes_back_untouched_after_success(case, layer):
    model, posterior, members = case(Fuse())
    with untouched(model, *members):
        result = explain(model, posterior, layer)
    assert result.eah.mean.any()


@each_case
def test_the_model_comes_back_untouched_after_choosing_groups(case, layer):
    model, posterior, members = case(Fuse())
    explainer = geh.GEHExplainer(model, layer, posterior=posterior, output="probability")
    with untouched(model, *members):
        explainer.choose_groups(points(), max_groups=4, draws=2, progress=False)


@each_case
@pytest.mark.parametrize("error", [ZeroDivisionError("in forward"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_the_model_comes_back_untouched_after_an_error_in_its_forward(case, layer, error):
    fuse = Fuse()
    model, posterior, members = case(fuse)
    explain(model, posterior, layer)
    calls = fuse.calls
    assert calls >= 5
    for call in sorted({1, 2, 5, calls // 2, calls - 1, calls}):
        fuse.calls, fuse.blows, fuse.error = 0, call, error
        with untouched(model, *members), pytest.raises(type(error)):
            explain(model, posterior, layer)


@each_case
@pytest.mark.parametrize("error", [ZeroDivisionError("in output"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_the_model_comes_back_untouched_after_an_error_in_the_output_callable(case, layer, error):
    model, posterior, members = case(Fuse())
    output = Fuse()
    output.blows, output.error = 5, error
    with untouched(model, *members), pytest.raises(type(error)):
        explain(model, posterior, layer, output=output)


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
@pytest.mark.parametrize("smooth", ["auto", None, 5.0])
@pytest.mark.parametrize("layer", [None, "first"])
def test_a_network_with_kinks_comes_back_untouched(smooth, layer):
    fuse = Fuse()
    model, inputs = Kinked(fuse), points()
    explainer = geh.GEHExplainer(model, layer, output="probability", smooth=smooth)
    with untouched(model):
        explainer.explain(inputs, groups=2, draws=DRAWS, progress=False)
    with untouched(model):
        explainer.choose_groups(inputs, max_groups=3, draws=2, progress=False)
    for call in (1, 3, 5, 7):
        for error in (ZeroDivisionError(), KeyboardInterrupt()):
            fuse.calls, fuse.blows, fuse.error = 0, call, error
            with untouched(model), pytest.raises(type(error)):
                explainer.explain(inputs, groups=2, draws=DRAWS, progress=False)


@each_case
def test_the_model_comes_back_untouched_after_a_user_error(case, layer):
    model, posterior, members = case(Fuse())
    with untouched(model, *members), pytest.raises(geh.GEHError, match="names"):
        explain(model, posterior, layer, names=["too", "many", "names", "for", "any", "of", "them"] * 2)


def test_the_model_comes_back_untouched_after_an_error_in_a_later_draw():
    model = Lived()
    samples = samples_of(model)
    samples[2]["first.weight"] = torch.full((5, 3), torch.nan)
    with untouched(model), pytest.raises(geh.GEHError, match="sample 2"):
        explain(model, posteriors.WeightSamples(samples))


def test_the_model_comes_back_untouched_after_an_error_in_a_backward_pass():
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ZeroDivisionError("in backward")

    model = Lived()
    for posterior in (posteriors.MCDropout(), posteriors.WeightSamples(samples_of(model)), Own()):
        for layer in (None, "first"):
            with untouched(model), pytest.raises(ZeroDivisionError, match="in backward"):
                explain(model, posterior, layer, output=Failing.apply)


def test_the_model_comes_back_untouched_when_a_warning_is_an_error():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    with untouched(model), pytest.raises(geh.GEHWarning):
        explain(model, None)


def test_two_calls_in_a_row_see_the_same_model():
    model = Lived()
    first, second = explain(model, None), explain(model, None)
    assert np.array_equal(first.signed, second.signed)


def test_the_owner_can_train_on_after_explaining():
    model = Lived()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    explain(model, posteriors.WeightSamples(samples_of(model)), "first")
    before = model.first.weight.detach().clone()
    model(points()).sum().backward()
    optimiser.step()
    assert not torch.equal(before, model.first.weight)


def test_hooks_of_the_owner_are_called_and_stay():
    model, seen = Lived(), []
    handle = model.middle.register_forward_hook(lambda *args: seen.append(1))
    explain(model, None, "first")
    assert seen
    del seen[:]
    model(points())
    assert seen == [1]
    handle.remove()


def test_a_forward_set_on_the_object_comes_back_after_an_ensemble():
    model, other = Lived(), Lived()
    model.forward = lambda x: Lived.forward(model, x)
    with untouched(model, other):
        explain(model, posteriors.Ensemble([other, model]))


@pytest.mark.parametrize("enabled", [True, False])
def test_the_fast_path_of_attention_is_left_as_it_was(enabled):
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(enabled)
    try:
        model = Lived()
        with untouched(model):
            explain(model, None)
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def test_a_clusterer_and_a_shuffling_loader_leave_the_global_generators_alone():
    from sklearn.cluster import KMeans

    model = Lived()
    loader = DataLoader(TensorDataset(points(30)), batch_size=7, shuffle=True)
    with untouched(model):
        explain(model, None, inputs=loader, groups=KMeans(2, n_init=1))


def test_a_loaders_own_generator_is_left_as_it_was():
    model, generator = Lived(), torch.Generator().manual_seed(5)
    before = generator.get_state()
    explain(model, None, inputs=DataLoader(TensorDataset(points()), batch_size=5, shuffle=True, generator=generator))
    assert torch.equal(generator.get_state(), before)


# Models that change something of themselves, or of the data, while they run


class Remembering(nn.Module):
    """Changes a buffer in its forward, in one of several ways, without its output depending on it."""

    def __init__(self, way):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1)).double()
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("late", None)
        self.way = way

    def forward(self, x):
        if self.way == "adds":
            self.seen += 1
        elif self.way == "replaces":
            self.seen = self.seen + 1
        elif self.way == "writes past autograd":
            self.seen.data += 1
        elif self.way == "fills an empty one":
            self.late = torch.ones(len(x))
        elif self.way == "registers a new one":
            self.register_buffer("new", torch.ones(2))
        return self.net(x)


ways = pytest.mark.parametrize(
    "way", ["adds", "replaces", "writes past autograd", "fills an empty one", "registers a new one"]
)


@ways
@pytest.mark.parametrize("layer", [None, "net.0"])
def test_a_buffer_that_the_forward_changes_comes_back(way, layer):
    model = Remembering(way)
    with untouched(model):
        explain(model, None, layer)


@ways
def test_a_buffer_that_the_forward_changes_comes_back_after_an_error(way):
    model, output = Remembering(way), Fuse()
    output.blows, output.error = 4, ZeroDivisionError()
    with untouched(model), pytest.raises(ZeroDivisionError):
        explain(model, None, output=output)


def test_samples_of_the_weights_are_not_written_to_by_the_model():
    model = Remembering("adds")
    samples = [{"seen": torch.zeros(2), "net.0.bias": torch.full((4,), 0.1 * k, dtype=torch.double)} for k in range(3)]
    with untouched(model):
        explain(model, posteriors.WeightSamples(samples))
    assert [sample["seen"].tolist() for sample in samples] == [[0, 0]] * 3


class Overwriting(nn.Module):
    """Writes into its own inputs."""

    def __init__(self, write):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)).double()
        self.write = write

    def forward(self, x):
        return self.net(self.write(x))


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
@pytest.mark.parametrize("write", [lambda x: x.mul_(0.5), lambda x: x.clamp_(-0.5, 0.5)], ids=["halves", "clips"])
@pytest.mark.parametrize("layer", [None, "net.0"])
@pytest.mark.parametrize("kind", ["tensor", "array", "loader"])
def test_the_users_data_are_not_written_to_by_the_model(layer, kind, write):
    data = points()
    given = {"tensor": data, "array": data.numpy(), "loader": DataLoader(TensorDataset(data), batch_size=5)}[kind]
    explain(Overwriting(write), posteriors.PointEstimate(), layer, inputs=given)
    assert torch.equal(data, points())


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
def test_additional_arguments_are_not_written_to_by_the_model():
    class Weighted(Overwriting):
        def forward(self, x, weight):
            return self.net(x * self.write(weight))

    weights = points()
    model = Weighted(lambda x: x.clamp_(-0.5, 0.5))
    explain(model, posteriors.PointEstimate(), additional_forward_args=weights)
    assert torch.equal(weights, points())


def test_a_model_that_writes_into_its_inputs_is_explained_like_one_that_does_not():
    writing = Overwriting(lambda x: x.mul_(0.5))
    polite = nn.Sequential(nn.Linear(3, 3, bias=False).double(), *writing.net)
    with torch.no_grad():
        polite[0].weight.copy_(0.5 * torch.eye(3))
    expected = explain(polite, posteriors.PointEstimate())
    assert np.allclose(explain(writing, posteriors.PointEstimate()).signed, expected.signed, rtol=1e-12, atol=1e-15)


# Callers who have turned gradients off


@each_case
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_numbers_are_the_same_where_the_caller_has_turned_gradients_off(case, layer, mode):
    model, posterior, members = case(Fuse())
    expected = explain(model, posterior, layer)
    with mode(), untouched(model, *members):
        result = explain(model, posterior, layer)
    assert np.array_equal(result.signed, expected.signed)
    assert np.array_equal(result.absolute, expected.absolute)


@pytest.mark.parametrize("layer", [None, "first"])
def test_inputs_may_be_made_in_inference_mode(layer):
    model = Lived()
    expected = explain(model, None, layer)
    with torch.inference_mode():
        inputs = points()
        inside = explain(model, None, layer, inputs=inputs)
    outside = explain(model, None, layer, inputs=inputs)
    assert np.array_equal(inside.signed, expected.signed)
    assert np.array_equal(outside.signed, expected.signed)


def test_targets_may_be_made_in_inference_mode():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(), nn.Linear(4, 2)).double()
    expected = explain(model, None, target=torch.arange(12) % 2)
    with torch.inference_mode():
        result = explain(model, None, target=torch.arange(12) % 2)
    assert np.array_equal(result.signed, expected.signed)


def test_additional_arguments_may_be_made_in_inference_mode():
    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(), nn.Linear(4, 1)).double()

        def forward(self, x, weight):
            return self.net(x * weight)

    model = Weighted()
    expected = explain(model, None, additional_forward_args=points()[:, :1])
    with torch.inference_mode():
        result = explain(model, None, additional_forward_args=points()[:, :1].clone())
    assert np.array_equal(result.signed, expected.signed)


def test_samples_of_the_weights_may_be_made_in_inference_mode():
    model = Lived()
    expected = explain(model, posteriors.WeightSamples(samples_of(model)))
    with torch.inference_mode():
        samples = samples_of(model)
    with untouched(model):
        result = explain(model, posteriors.WeightSamples(samples))
    assert np.array_equal(result.signed, expected.signed)


def in_inference_mode():
    with torch.inference_mode():
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1)).double()


@pytest.mark.parametrize("where", ["all of it", "its last layer", "a buffer", "a member"])
def test_a_model_made_in_inference_mode_is_refused_in_words(where):
    made = in_inference_mode()
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1)).double()
    posterior = None
    if where == "all of it":
        model = made
    elif where == "its last layer":
        model[-1] = made[-1]
    elif where == "a buffer":
        with torch.inference_mode():
            model[1].running_mean = torch.zeros(4, dtype=torch.double)
    else:
        posterior = posteriors.Ensemble([model, made])
    with pytest.raises(geh.GEHError, match="inference_mode"):
        explain(model, posterior)
