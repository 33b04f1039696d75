"""The smooth forms of kinked functions: close to the hard ones, twice differentiable, and complete."""

import math

import torch
from kinked_functions import ELEMENTWISE, ESSENTIAL, KINKS, Kink, check_second_derivative, doubles, for_kinks, values_of
from torch import Tensor

from geh_explain.engines.smoothing.smooth_functions import FORMS


def test_every_smooth_form_is_tested_and_can_be_called() -> None:
    # The slope of CELU does not jump: it is smoothed by a radius only, see test_means.py.
    assert {kink.name for kink in KINKS} | {"celu"} == set(FORMS)
    assert all(list(kink.ways()) for kink in KINKS)


@for_kinks(KINKS)
def test_the_smooth_form_is_off_by_at_most_a_constant_over_beta(kink: Kink) -> None:
    """On multiples of a half: all kinks and many ties are met; no discontinuity is, and none is nearer than 1/4."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-14, 15, (1 if kink.rows == 1 else 40, *kink.shape), generator=generator).double() / 2
    x[0] = 0.5
    hard = values_of(kink.hard(x)).detach()

    def error(beta: float) -> float:
        soft = values_of(kink.soft(beta, x))
        assert soft.shape == hard.shape
        return float((soft - hard).abs().max())

    blunt, sharp = error(100.0), error(1000.0)
    assert blunt <= kink.bound * (1 + 1e-9) / 100
    assert sharp <= blunt / 9 + 1e-13


@for_kinks(KINKS)
def test_the_smooth_form_gives_back_what_the_function_does(kink: Kink) -> None:
    x = torch.randn(kink.rows, *kink.shape, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    hard, soft = kink.hard(x), kink.soft(5.0, x)
    assert isinstance(soft, tuple) == isinstance(hard, tuple)
    if isinstance(hard, tuple):
        assert torch.equal(soft[1], hard[1])  # the indices are those of the largest values, not smoothed
        assert hasattr(soft, "values") == hasattr(hard, "values")


@for_kinks(ESSENTIAL)
def test_the_smooth_form_is_differentiated_twice_correctly(kink: Kink) -> None:
    check_second_derivative(kink)


def test_a_padded_window_counts_only_what_is_there() -> None:
    """Three windows over (1, 2), padded by one on both sides: log(e^b) / b, log(e^b + e^2b) / b, log(e^2b) / b."""
    pooled = FORMS["max_pool1d"](2.0, doubles(1.0, 2.0).reshape(1, 1, 2), 2, 1, 1)
    expected = doubles(1.0, math.log(math.exp(2.0) + math.exp(4.0)) / 2, 2.0)
    torch.testing.assert_close(pooled.flatten(), expected, rtol=1e-14, atol=0)


def test_forms_stay_finite_far_from_the_kink() -> None:
    x = doubles(-1e6, -50.0, 0.0, 50.0, 1e6).requires_grad_()
    for kink in ELEMENTWISE:
        if all(not isinstance(value, Tensor) or value.numel() == 1 for value in (*kink.args, *kink.kwargs.values())):
            value = kink.soft(100.0, x)
            (first,) = torch.autograd.grad(value.sum(), x, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), x)
            assert all(bool(torch.isfinite(part).all()) for part in (value, first, second)), str(kink)
            # Five hundred widths of the rounded corner away, the smooth form is the hard one.
            far = torch.tensor([0, 1, 3, 4])
            torch.testing.assert_close(value[far], kink.hard(x.detach())[far], rtol=1e-9, atol=1e-9, msg=str(kink))
