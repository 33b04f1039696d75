"""Results do not depend on global settings of torch, nor on other threads that explain the same model."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pytest
import torch
from expected_errors import valid_points
from explaining import explain_draws
from networks import dropout_network
from torch import nn

from geh_explain.posterior import MCDropout, PointEstimate, WeightSamples


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def double_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def autocast() -> AbstractContextManager[None]:
    return torch.autocast("cpu", dtype=torch.bfloat16)


SETTINGS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "deterministic": deterministic,
    "autocast": autocast,
    "double_by_default": double_by_default,
}


ENGINES = ["exact", "structured", "difference", "stein"]


@pytest.mark.parametrize("posterior", [PointEstimate(), MCDropout()], ids=["point", "dropout"])
@pytest.mark.parametrize("layer", [None, "1"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_numbers_do_not_depend_on_the_global_settings(setting, engine, layer, posterior):
    model, x = dropout_network(), valid_points()
    expected = explain_draws(model, x, engine=engine, posterior=posterior, layer=layer, groups=2)
    with SETTINGS[setting]():
        result = explain_draws(model, x, engine=engine, posterior=posterior, layer=layer, groups=2)
    scale = np.abs(expected.signed).max()
    assert result.signed == pytest.approx(expected.signed, rel=1e-5, abs=1e-5 * scale)
    assert result.absolute == pytest.approx(expected.absolute, rel=1e-5, abs=1e-5 * scale)


def samples(model: nn.Module) -> WeightSamples:
    return WeightSamples([{name: w * (1 + k / 10) for name, w in model.state_dict().items()} for k in range(4)])


@pytest.mark.parametrize("layer", [None, "1"])
@pytest.mark.parametrize("kind", ["point", "dropout", "weights"])
def test_threads_that_explain_one_model_at_once_get_what_they_get_one_after_the_other(kind, layer):
    model = dropout_network().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    posterior = {"point": PointEstimate(), "dropout": MCDropout(), "weights": samples(model)}[kind]
    inputs = [valid_points() + shift for shift in range(3)]
    expected = [explain_draws(model, x, posterior=posterior, layer=layer, groups=2).signed for x in inputs]
    random_state, found, start = torch.get_rng_state(), [], threading.Barrier(len(inputs))

    def work(number: int) -> None:
        start.wait()
        for _ in range(5):
            try:
                result = explain_draws(model, inputs[number], posterior=posterior, layer=layer, groups=2).signed
                found.append(bool(np.array_equal(result, expected[number])))
            except Exception as error:
                found.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 15
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), random_state)
