"""A posterior of one's own is one small class, and a wrong one is refused in words."""

from contextlib import contextmanager

import numpy as np
import pytest
from drawing import explain, local_hessians, network, points, same, with_twins
from torch import nn

import geh_explain as geh
from geh_explain.posterior import PointEstimate

pytestmark = pytest.mark.usefixtures("seeded")


class Tempered:
    """A user's own posterior, in a few lines: the sharpness of the activations is drawn."""

    def draws(self, model, n, seed):
        generator = np.random.default_rng(seed)
        for _ in range(n):
            yield self.sharpened(model, 0.5 + generator.random())

    @contextmanager
    def sharpened(self, model, factor):
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
    model, inputs = network(), points()
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

    assert len(explain(network(), Unaligned()).signed) == 4
    with pytest.raises(geh.GEHError, match="do not correspond"):
        geh.GEHExplainer(network(), "0", posterior=Unaligned())


class Returning:
    def __init__(self, draws):
        self._draws = draws

    def draws(self, model, n, seed):
        return self._draws


@pytest.mark.parametrize("draws", [[], None, [1, 2], iter(())], ids=["no draws", "None", "numbers", "empty iterator"])
def test_a_posterior_of_ones_own_that_yields_no_draws_is_refused_in_words(draws):
    with pytest.raises(geh.GEHError, match=r"posterior.*draws"):
        explain(network(), Returning(draws))


def test_a_posterior_that_does_not_name_itself_goes_by_its_class():
    result = explain(network(), Tempered())
    assert "draws of Tempered()" in repr(result)
