"""Engines against double backward, as in tests/engines, for more networks, seeds and batch sizes."""

import pytest
import torch
from scoring import check_deep_network
from structured_models import MODELS, check_model
from torch import nn

pytestmark = pytest.mark.usefixtures("seeded")


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
@pytest.mark.parametrize("name", MODELS)
def test_the_structured_engine_is_double_backward_in_single_precision(name: str) -> None:
    check_model(name, torch.float32)


@pytest.mark.parametrize("seed", range(1, 3))
@pytest.mark.parametrize("activation", [nn.Tanh, nn.Softplus, nn.GELU])
def test_deep_networks_agree_with_the_reference(activation: type[nn.Module], seed: int) -> None:
    check_deep_network(activation, seed)
