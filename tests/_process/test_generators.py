"""Generators in the place of the global ones: the same numbers as from a seeded global one, which stays as it is."""

import random
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import distributions

from geh_explain._process import OwnGenerators, OwnStates, OwnTorchGenerator, draws_are_redirected, seeded_generators
from geh_explain._process import torch_generator as implementation

X = torch.linspace(0.1, 0.9, 40).reshape(8, 5)


@torch.jit.script
def scripted(x: torch.Tensor):
    return torch.nn.functional.dropout(x + torch.rand(5), 0.4)


DRAWS = {
    "rand": lambda: torch.rand(3, 20),
    "rand, out": lambda: torch.rand(3, 20, out=torch.empty(3, 20)),
    "randn": lambda: torch.randn(40),
    "randint": lambda: torch.randint(10, (20,)),
    "randint, low": lambda: torch.randint(5, 10, (20,)),
    "randperm": lambda: torch.randperm(20),
    "rand_like": lambda: torch.rand_like(X),
    "randn_like": lambda: torch.randn_like(X),
    "randint_like": lambda: torch.randint_like(X, 10),
    "normal": lambda: torch.normal(0.0, 1.0, (20,)),
    "normal of tensors": lambda: torch.normal(X, X),
    "bernoulli": lambda: torch.bernoulli(X),
    "bernoulli_": lambda: torch.empty(20).bernoulli_(0.3),
    "multinomial": lambda: torch.multinomial(X, 3),
    "poisson": lambda: torch.poisson(X),
    "binomial": lambda: torch.binomial(10 * torch.ones_like(X), X),
    "uniform_": lambda: torch.empty(20).uniform_(),
    "exponential_": lambda: torch.empty(20).exponential_(),
    "random_": lambda: torch.empty(20).random_(100),
    "dropout": lambda: F.dropout(X, 0.4),
    "dropout of channels": lambda: F.dropout2d(X[None, :, :, None], 0.4),
    "alpha dropout": lambda: F.alpha_dropout(X, 0.4, training=True),
    "native dropout": lambda: torch.native_dropout(X, 0.4, True)[0],
    "rrelu": lambda: F.rrelu(-X, training=True),
    "attention": lambda: F.scaled_dot_product_attention(X[None], X[None], X[None], dropout_p=0.4),
    "gamma": lambda: distributions.Gamma(X, X).sample(),
    "dirichlet": lambda: distributions.Dirichlet(X).sample(),
    "the global generator by name": lambda: torch.rand(20, generator=torch.default_generator),
    "recurrent dropout": lambda: torch.nn.LSTM(5, 4, 2, dropout=0.5)(X)[0].detach(),
    "scripted function": lambda: scripted(X),
    "vmap, different": lambda: torch.vmap(lambda x: x + torch.randn(5), randomness="different")(X),
    "vmap, same": lambda: torch.vmap(lambda x: x * torch.rand_like(x), randomness="same")(X),
    "gradient": lambda: torch.func.grad(lambda x: (x * torch.rand(5)).sum())(X),
    "a seed": lambda: (torch.manual_seed(5), torch.rand(20))[1],
    "a state": lambda: (torch.set_rng_state(torch.Generator().manual_seed(5).get_state()), torch.rand(20))[1],
}


def twice(draw):
    return torch.cat([draw().flatten() for _ in range(2)])


@pytest.mark.parametrize("draw", DRAWS)
def test_an_own_generator_gives_the_numbers_of_the_global_one_and_leaves_that_alone(draw):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        expected = twice(DRAWS[draw])
    own, before = OwnTorchGenerator(seed=3), torch.get_rng_state()
    with own.active():
        drawn = twice(DRAWS[draw])
    assert torch.equal(drawn, expected)
    assert own.drew
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("draw", ["rand_like", "randn_like", "randint_like"])
def test_an_operation_without_a_form_for_generators_draws_in_the_place_of_the_global_one(draw, monkeypatch):
    """As in versions of torch before these operations took a generator."""
    torch.manual_seed(3)
    expected = twice(DRAWS[draw])
    monkeypatch.setattr(implementation, "_with_generator", lambda func: None)
    own, before = OwnTorchGenerator(seed=3), torch.get_rng_state()
    with own.active():
        assert torch.equal(twice(DRAWS[draw]), expected)
    assert torch.equal(torch.get_rng_state(), before)


def test_numbers_continue_from_one_context_to_the_next():
    own, again = OwnGenerators(seed=3), OwnGenerators(seed=3)
    with again.active():
        expected = [(torch.rand(()).item(), np.random.rand(), random.gauss(0, 1)) for _ in range(3)]
    drawn = []
    for _ in range(3):
        with own.active():
            drawn.append((torch.rand(()).item(), np.random.rand(), random.gauss(0, 1)))
    assert drawn == expected
    assert len(set(drawn)) == 3


def test_a_generator_that_is_passed_is_used():
    given, expected = torch.Generator().manual_seed(1), torch.rand(4, generator=torch.Generator().manual_seed(1))
    own = OwnTorchGenerator(seed=3)
    with own.active():
        assert torch.equal(torch.rand(4, generator=given), expected)
    assert not own.drew


def test_the_innermost_generator_is_used():
    with OwnTorchGenerator(seed=1).active():
        with OwnTorchGenerator(seed=2).active():
            inner = torch.rand(4)
            assert draws_are_redirected()
        outer = torch.rand(4)
    assert not draws_are_redirected()
    assert torch.equal(inner, torch.rand(4, generator=torch.Generator().manual_seed(2)))
    assert torch.equal(outer, torch.rand(4, generator=torch.Generator().manual_seed(1)))


def test_a_forked_state_is_that_of_the_own_generator():
    with OwnTorchGenerator(seed=1).active():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            assert torch.initial_seed() == 7
            seeded = torch.rand(4)
        after = torch.rand(4)
    assert torch.equal(seeded, torch.rand(4, generator=torch.Generator().manual_seed(7)))
    assert torch.equal(after, torch.rand(4, generator=torch.Generator().manual_seed(1)))
    assert torch.random.default_generator is torch.default_generator


def test_other_threads_draw_from_and_seed_the_global_generator_meanwhile():
    drawn = []

    def seed_and_draw():
        torch.manual_seed(5)
        drawn.append(torch.rand(4))

    with OwnTorchGenerator(seed=1).active():
        thread = threading.Thread(target=seed_and_draw)
        thread.start()
        thread.join()
        own = torch.rand(4)
    assert torch.equal(drawn[0], torch.rand(4, generator=torch.Generator().manual_seed(5)))
    assert torch.equal(own, torch.rand(4, generator=torch.Generator().manual_seed(1)))
    assert torch.initial_seed() == 5


def states():
    return torch.get_rng_state().tolist(), repr(np.random.get_state()), random.getstate()


def test_seeded_generators_are_as_after_the_functions_that_seed_and_are_restored():
    random.gauss(0, 1)  # computes a number ahead, which is part of the state
    before = states()
    with seeded_generators(11):
        drawn = torch.rand(()).item(), np.random.rand(), random.random(), random.gauss(0, 1)
    assert states() == before
    torch.manual_seed(11)
    np.random.seed(11)
    random.seed(11)
    assert drawn == (torch.rand(()).item(), np.random.rand(), random.random(), random.gauss(0, 1))


@pytest.mark.parametrize(
    "draw", [np.random.rand, random.random, np.random.standard_normal], ids=lambda draw: draw.__name__
)
def test_draws_of_numpy_and_python_are_noticed(draw):
    own, before = OwnStates(seed=None), states()
    with own.active():
        pass
    assert not own.drew
    with own.active():
        draw()
    assert own.drew
    assert states() == before


def test_another_thread_gets_no_number_of_numpy_or_python_twice():
    drawn, stop = [], threading.Event()

    def draw():
        while not stop.is_set():
            drawn.append((np.random.rand(), random.random(), random.gauss(0, 1)))

    thread = threading.Thread(target=draw)
    thread.start()
    own = OwnStates(seed=None)
    for _ in range(300):
        with own.active():
            sum(range(1000))
    for _ in range(300):
        with OwnStates(seed=None).active():
            sum(range(1000))
    stop.set()
    thread.join()
    assert len(drawn) > 100
    for numbers in zip(*drawn, strict=True):
        assert len(set(numbers)) == len(drawn)
