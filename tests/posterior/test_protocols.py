"""A user's own posterior, the functions that enter draws, and the reprs of posteriors."""

import re
from contextlib import contextmanager, nullcontext
from functools import partial

import numpy as np
import pytest
import torch
from explaining import explain_draws, random_points, uniform_points
from posterior_cases import dropping, local_hessians, network, same, with_twins
from torch import nn

import geh_explain as geh
from geh_explain.posterior import (
    SWAG,
    Ensemble,
    Laplace,
    MCDropout,
    MeanField,
    PointEstimate,
    Stochastic,
    WeightSamples,
)
from geh_explain.posterior.protocols import enter_draws, fixed

pytestmark = pytest.mark.usefixtures("seeded")


class Tempered:
    """A user's own posterior in a few lines: it samples a factor of the first layer's output."""

    def draws(self, model, n, seed):
        generator = np.random.default_rng(seed)
        for _ in range(n):
            yield self.scaled(model, 0.5 + generator.random())

    @contextmanager
    def scaled(self, model, factor):
        handle = model[0].register_forward_hook(lambda module, args, out: factor * out)
        yield
        handle.remove()


@pytest.mark.parametrize("layer", [None, "0"])
def test_a_posterior_of_ones_own_is_one_small_class(layer):
    model, inputs = network(), with_twins()
    hessians = local_hessians(model, inputs, Tempered(), layer)
    assert same(hessians[:, 0], hessians[:, 3])
    assert len(np.unique(hessians[:, 0].round(12), axis=0)) == 6
    assert len(model[0]._forward_hooks) == 0


def test_a_posterior_of_ones_own_gives_the_draws_it_says():
    model, inputs = network(), random_points(6, 3)
    factors = [0.5 + value for value in np.random.default_rng(3).random(4)]
    draws = local_hessians(model, inputs, Tempered(), draws=4, seed=3)
    for found, factor in zip(draws, factors, strict=True):
        by_hand = nn.Sequential(model[0], Times(factor), *model[1:])
        assert same(found, local_hessians(by_hand, inputs, PointEstimate())[0])


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


def test_a_posterior_of_ones_own_can_say_that_hidden_units_do_not_correspond():
    class Unaligned(Tempered):
        inputs_only = True

    assert len(explain_draws(network(), random_points(20, 3), posterior=Unaligned(), groups=2).signed) == 4
    with pytest.raises(geh.GEHError, match="do not correspond"):
        geh.GEHExplainer(network(), "0", posterior=Unaligned())


class Returning:
    def __init__(self, draws):
        self._draws = draws

    def draws(self, model, n, seed):
        return self._draws


@pytest.mark.parametrize("draws", [[], None, [1, 2], iter(())], ids=["no draws", "None", "numbers", "empty iterator"])
def test_a_posterior_of_ones_own_that_yields_no_draws_is_refused(draws):
    with pytest.raises(geh.GEHError, match=r"posterior.*draws"):
        explain_draws(network(), random_points(20, 3), posterior=Returning(draws), groups=2)


def test_a_posterior_without_a_repr_is_named_by_its_class():
    result = explain_draws(network(), random_points(20, 3), posterior=Tempered(), groups=2)
    assert "draws of Tempered()" in repr(result)


# enter_draws: all draws, one after the other


class Logged:
    """Adds 10, 20, ... to the bias of a linear model, and logs what happens in which order."""

    def __init__(self):
        self.log = []

    def draws(self, model, n, seed):
        try:
            for number in range(n):
                yield self.shifted(model.bias, number)
        finally:
            self.log.append("generator closed")

    @contextmanager
    def shifted(self, bias, number):
        self.log.append(f"enter {number}")
        before = bias.data
        bias.data = before + 10 * (number + 1)
        try:
            yield
        finally:
            bias.data = before
            self.log.append(f"leave {number}")


@pytest.fixture
def linear():
    """Return a linear model whose output is its bias, 1."""
    model = nn.Linear(2, 1)
    model.load_state_dict({"weight": torch.zeros(1, 2), "bias": torch.ones(1)})
    return model


def test_draws_are_entered_in_order_with_one_first_forward_each(linear):
    posterior = Logged()

    def first_forward():
        posterior.log.append(f"first forward {linear.bias.item():.0f}")

    with enter_draws(posterior, linear, 3, 0, first_forward) as draws:
        for number in draws:
            posterior.log.append(f"body {number}")
    assert posterior.log == [
        *("enter 0", "first forward 11", "body 0", "leave 0"),
        *("enter 1", "first forward 21", "body 1", "leave 1"),
        *("enter 2", "first forward 31", "body 2", "leave 2"),
        "generator closed",
    ]
    assert linear.bias.item() == 1


def nothing():
    """A first forward pass that is not needed."""


def visit(posterior, model, body, n=3, first_forward=nothing):
    with enter_draws(posterior, model, n, 0, first_forward) as draws:
        for number in draws:
            body(number)


def raise_in(draw, error):
    """Return a body that raises inside one of the draws."""

    def body(number):
        if number == draw:
            raise error

    return body


def test_an_exception_in_the_body_restores_the_model_before_it_is_caught(linear):
    posterior = Logged()
    with pytest.raises(KeyError, match="mine") as error:
        visit(posterior, linear, raise_in(1, KeyError("mine")))
    # The traceback still refers to the generators, so that nothing has been garbage collected.
    assert error.tb is not None
    assert linear.bias.item() == 1
    assert posterior.log == ["enter 0", "leave 0", "enter 1", "leave 1", "generator closed"]


def test_an_interrupt_restores_the_model(linear):
    with pytest.raises(KeyboardInterrupt):
        visit(Logged(), linear, raise_in(0, KeyboardInterrupt()))
    assert linear.bias.item() == 1


def test_an_exception_in_the_first_forward_restores_the_model(linear):
    posterior = Logged()

    def fails():
        raise RuntimeError("no forward")

    with pytest.raises(RuntimeError, match="no forward"):
        visit(posterior, linear, raise_in(0, AssertionError), first_forward=fails)
    assert linear.bias.item() == 1
    assert posterior.log == ["enter 0", "leave 0", "generator closed"]


def test_a_draw_gets_the_exception_and_cannot_suppress_it(linear):
    class Suppressing:
        def draws(self, model, n, seed):
            yield from [self] * n

        def __enter__(self):
            return self

        def __exit__(self, kind, error, traceback):
            self.kind = kind
            return True

    posterior = Suppressing()
    with pytest.raises(ValueError, match="seen"):
        visit(posterior, linear, raise_in(0, ValueError("seen")))
    assert posterior.kind is ValueError


def test_an_early_break_restores_the_model_at_the_end_of_the_block(linear):
    posterior = Logged()
    with enter_draws(posterior, linear, 3, 0, nothing) as draws:
        for number in draws:
            if number == 1:
                break
    assert linear.bias.item() == 1
    assert posterior.log == ["enter 0", "leave 0", "enter 1", "leave 1", "generator closed"]
    assert list(draws) == []


def test_no_more_than_n_draws_are_entered_and_fewer_are_accepted(linear):
    samples = WeightSamples([{"bias": torch.full((1,), float(k))} for k in range(3)])
    for n, numbers in ((2, [0, 1]), (3, [0, 1, 2]), (9, [0, 1, 2])):
        with enter_draws(samples, linear, n, 0, nothing) as draws:
            assert list(draws) == numbers
    many = Returning(samples.draws(linear, 3, 0))
    with enter_draws(many, linear, 1, 0, nothing) as draws:
        assert list(draws) == [0]


@pytest.mark.parametrize("no_draws", [None, [], iter(())], ids=["None", "list", "iterator"])
def test_no_draws_are_no_error_here(no_draws, linear):
    with enter_draws(Returning(no_draws), linear, 3, 0, nothing) as draws:
        assert list(draws) == []


def test_draws_that_are_no_context_managers_are_refused(linear):
    with pytest.raises(geh.GEHError, match="draw 0 is a int; draws must yield context managers") as error:
        visit(Returning([1, 2]), linear, raise_in(0, AssertionError))
    assert isinstance(error.value, TypeError)
    with pytest.raises(geh.GEHError, match="returned a int; it must be a generator"):
        visit(Returning(3), linear, raise_in(0, AssertionError))


def test_masks_are_sampled_in_the_first_forward_of_each_draw():
    model, x = dropping().eval(), random_points(5, 3)
    outputs = []
    with torch.no_grad(), enter_draws(MCDropout(), model, 4, 0, lambda: model(x[:1])) as draws:
        for _ in draws:
            outputs.append(model(x))
            assert torch.equal(outputs[-1], model(x))
    assert len(torch.stack(outputs).unique(dim=0)) == 4


# fixed: one function outside of draws


def test_fixed_is_the_posteriors_own_method_or_nothing(linear):
    class OwnFixed(Logged):
        def fixed(self, model, seed):
            return self.shifted(model.bias, seed)

    with fixed(OwnFixed(), linear, 4):
        assert linear.bias.item() == 51
    with fixed(Logged(), linear, 4):
        assert linear.bias.item() == 1


# Reprs


class FakeApproximation:
    """The attributes of a fitted laplace.Laplace that are used."""

    def __init__(self, model):
        self.model, self.params, self.mean = model, list(model.parameters()), torch.zeros(3)

    def sample(self, n, generator):
        return torch.zeros(n, 3)


class Sampler:
    def __call__(self, k):
        return {}


def named_sampler(k, shift=0):
    return {}


def block():
    return nn.Sequential(nn.Linear(100, 100), nn.Dropout(), nn.Linear(100, 100))


def states():
    return [nn.Linear(2, 1).state_dict()] * 3


REPRS = {
    "MCDropout()": lambda: MCDropout(),
    "MCDropout(modules=[Dropout, Sequential])": lambda: MCDropout([nn.Dropout(), block()]),
    "MCDropout(modules=[Dropout, Dropout, Dropout, 9 more])": lambda: MCDropout([nn.Dropout() for _ in range(12)]),
    "Ensemble(2)": lambda: Ensemble([block(), lambda x: x]),
    "WeightSamples(3)": lambda: WeightSamples(states()),
    "WeightSamples(named_sampler)": lambda: WeightSamples(named_sampler),
    "WeightSamples(<lambda>)": lambda: WeightSamples(lambda k: {}),
    "WeightSamples(partial)": lambda: WeightSamples(partial(named_sampler, shift=1)),
    "WeightSamples(Sampler)": lambda: WeightSamples(Sampler()),
    "SWAG(3, rank=20, scale=1.0, seed=0)": lambda: SWAG(states()),
    "Laplace(FakeApproximation, linearised=False)": lambda: Laplace(FakeApproximation(nn.Linear(2, 1)), False),
    "Stochastic()": Stochastic,
    "MeanField()": MeanField,
    "PointEstimate()": PointEstimate,
}


@pytest.mark.parametrize("words", REPRS)
def test_reprs_are_short_and_without_memory_addresses(words):
    assert repr(REPRS[words]()) == words
    assert not re.search("0x[0-9a-f]{4}", words)
    assert len(words) < 60


def test_a_posterior_that_never_ends_is_asked_for_as_many_draws_as_wanted():
    class Endless:
        def draws(self, model, n, seed):
            while True:
                yield nullcontext()

    with pytest.warns(geh.GEHWarning, match="same scores"):
        assert len(explain_draws(lambda x: x.prod(1), uniform_points(10, 3), posterior=Endless(), draws=4).signed) == 4
