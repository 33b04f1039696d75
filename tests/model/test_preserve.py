"""After any call, successful or not, the model and the global state are the same as before."""

import contextlib
import random
import warnings

import numpy as np
import pytest
import torch
from explaining import random_points
from state_comparison import DRAWS, Fuse, Lived, Own, each_case, explain_case, marks, nothing, samples_of, untouched
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh
from geh_explain import posterior as posteriors

pytestmark = marks


def test_the_comparison_detects_every_kind_of_change():
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


@each_case
def test_the_model_comes_back_untouched_after_success(case, layer):
    model, posterior, members = case(Fuse())
    with untouched(model, *members):
        result = explain_case(model, posterior, layer)
    assert result.eah.mean.any()


@each_case
def test_the_model_comes_back_untouched_after_choosing_groups(case, layer):
    model, posterior, members = case(Fuse())
    explainer = geh.GEHExplainer(model, layer, posterior=posterior, output="probability")
    with untouched(model, *members):
        explainer.choose_groups(random_points(12, 3, seed=1), max_groups=4, draws=2, progress=False)


@contextlib.contextmanager
def ended_by(error):
    """Expect the error; an interrupt may instead return the finished draws with a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except type(error):
            return
    assert isinstance(error, KeyboardInterrupt)
    assert any("was interrupted, and the result has the" in str(warning.message) for warning in caught)


@each_case
@pytest.mark.parametrize("error", [ZeroDivisionError("in forward"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_the_model_comes_back_untouched_after_an_error_in_its_forward(case, layer, error):
    fuse = Fuse()
    model, posterior, members = case(fuse)
    explain_case(model, posterior, layer)
    calls = fuse.calls
    assert calls >= 5
    for call in sorted({1, 2, 5, calls // 2, calls - 1, calls}):
        fuse.calls, fuse.blows, fuse.error = 0, call, error
        with untouched(model, *members), ended_by(error):
            explain_case(model, posterior, layer)


@each_case
@pytest.mark.parametrize("error", [ZeroDivisionError("in output"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_the_model_comes_back_untouched_after_an_error_in_the_output_callable(case, layer, error):
    model, posterior, members = case(Fuse())
    output = Fuse()
    output.blows, output.error = 5, error
    with untouched(model, *members), ended_by(error):
        explain_case(model, posterior, layer, output=output)


class Kinked(Lived):
    """Has kinks in a module, a function and a method, which are smoothed while explaining."""

    def below(self, x):
        hidden = self.first(x)
        return self.kink(torch.relu(hidden) - 0.5 * hidden.clamp(-1, 1))


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
@pytest.mark.parametrize("smooth", ["auto", None, 5.0])
@pytest.mark.parametrize("layer", [None, "first"])
def test_a_network_with_kinks_comes_back_untouched(smooth, layer):
    fuse = Fuse()
    model, inputs = Kinked(fuse), random_points(12, 3, seed=1)
    explainer = geh.GEHExplainer(model, layer, output="probability", smooth=smooth)
    with untouched(model):
        explainer.explain(inputs, groups=2, draws=DRAWS, progress=False)
    with untouched(model):
        explainer.choose_groups(inputs, max_groups=3, draws=2, progress=False)
    for call in (1, 3, 5, 7):
        for error in (ZeroDivisionError(), KeyboardInterrupt()):
            fuse.calls, fuse.blows, fuse.error = 0, call, error
            with untouched(model), ended_by(error):
                explainer.explain(inputs, groups=2, draws=DRAWS, progress=False)


@each_case
def test_the_model_comes_back_untouched_after_a_user_error(case, layer):
    model, posterior, members = case(Fuse())
    with untouched(model, *members), pytest.raises(geh.GEHError, match="names"):
        explain_case(model, posterior, layer, names=["too", "many", "names", "for", "any", "of", "them"] * 2)


def test_the_model_comes_back_untouched_after_an_error_in_a_later_draw():
    model = Lived()
    samples = samples_of(model)
    samples[2]["first.weight"] = torch.full((5, 3), torch.nan)
    with untouched(model), pytest.raises(geh.GEHError, match="sample 2"):
        explain_case(model, posteriors.WeightSamples(samples))


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
                explain_case(model, posterior, layer, output=Failing.apply)


def test_the_model_comes_back_untouched_when_a_warning_is_an_error():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    with untouched(model), pytest.raises(geh.GEHWarning):
        explain_case(model, None)


def test_two_calls_in_a_row_give_the_same_result():
    model = Lived()
    first, second = explain_case(model, None), explain_case(model, None)
    assert np.array_equal(first.signed, second.signed)


def test_training_continues_after_explaining():
    model = Lived()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    explain_case(model, posteriors.WeightSamples(samples_of(model)), "first")
    before = model.first.weight.detach().clone()
    model(random_points(12, 3, seed=1)).sum().backward()
    optimiser.step()
    assert not torch.equal(before, model.first.weight)


def test_hooks_of_the_user_are_called_and_kept():
    model, calls = Lived(), []
    handle = model.middle.register_forward_hook(lambda *args: calls.append(1))
    explain_case(model, None, "first")
    assert calls
    del calls[:]
    model(random_points(12, 3, seed=1))
    assert calls == [1]
    handle.remove()


def test_a_forward_set_on_the_object_comes_back_after_an_ensemble():
    model, other = Lived(), Lived()
    model.forward = lambda x: Lived.forward(model, x)
    with untouched(model, other):
        explain_case(model, posteriors.Ensemble([other, model]))


@pytest.mark.parametrize("enabled", [True, False])
def test_the_fast_path_of_attention_is_left_as_it_was(enabled):
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(enabled)
    try:
        model = Lived()
        with untouched(model):
            explain_case(model, None)
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def test_a_clusterer_and_a_shuffling_loader_leave_the_global_generators_alone():
    from sklearn.cluster import KMeans

    model = Lived()
    loader = DataLoader(TensorDataset(random_points(30, 3, seed=1)), batch_size=7, shuffle=True)
    with untouched(model):
        explain_case(model, None, inputs=loader, groups=KMeans(2, n_init=1))


def test_a_loaders_own_generator_is_left_as_it_was():
    model, generator = Lived(), torch.Generator().manual_seed(5)
    before = generator.get_state()
    explain_case(
        model,
        None,
        inputs=DataLoader(TensorDataset(random_points(12, 3, seed=1)), batch_size=5, shuffle=True, generator=generator),
    )
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_model_that_seeds_the_generators_leaves_the_global_ones_alone(seed):
    class Seeds(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 1))

        def forward(self, x):
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            return self.net(x)

    def states():
        return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()

    model = Seeds()
    before = states()
    geh.GEHExplainer(model).explain(torch.randn(20, 3, generator=torch.Generator()), groups=1, draws=3, progress=False)
    assert states() == before
