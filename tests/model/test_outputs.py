"""The explained number: raw outputs, probabilities, keys of a container, and callables, against the reference."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from explaining import explain_point, random_points
from networks import mlp
from reference import local_hessians, mean_hessian
from reference_scores import assert_scores
from torch import Tensor, nn

import geh_explain as geh


@dataclass
class Output:
    logits: Tensor
    hidden: Tensor | None = None


def test_the_probability_of_one_column_is_its_sigmoid() -> None:
    net, x = mlp(4, 8, 1, gain=2.0), random_points(12, 4)
    local = local_hessians(lambda x: torch.sigmoid(net(x)[:, 0]), x)
    assert_scores(explain_point(net, x, output="probability", groups=3), local)
    assert_scores(explain_point(lambda x: net(x)[:, 0], x, output="probability", groups=3), local)


def test_the_probability_of_several_columns_is_their_softmax() -> None:
    net, x = mlp(4, 8, 3, gain=2.0), random_points(12, 4)

    def second_class(x: Tensor) -> Tensor:
        odds = net(x).exp()
        return odds[:, 1] / odds.sum(dim=1)

    assert_scores(explain_point(net, x, 1, output="probability", groups=3), local_hessians(second_class, x))


def test_the_probability_of_a_map_of_classes_is_over_the_classes() -> None:
    net, x = mlp(4, 8, 6, gain=2.0), random_points(12, 4)

    def class_1_at_place_2(x: Tensor) -> Tensor:
        odds = net(x).reshape(-1, 2, 3).exp()
        return odds[:, 1, 2] / (odds[:, 0, 2] + odds[:, 1, 2])

    result = explain_point(lambda x: net(x).reshape(-1, 2, 3), x, (1, 2), output="probability", groups=3)
    assert_scores(result, local_hessians(class_1_at_place_2, x))


def test_a_callable_output_defines_the_explained_number() -> None:
    net, x = mlp(4, 8, 3, gain=2.0), random_points(12, 4)
    margin = lambda out: out["logits"][:, 0] - out["logits"][:, 1] ** 2  # noqa: E731
    result = explain_point(lambda x: {"logits": net(x), "other": None}, x, output=margin, groups=3)
    assert_scores(result, local_hessians(lambda x: net(x)[:, 0] - net(x)[:, 1] ** 2, x))


def test_models_that_return_dataclasses_or_dicts_are_read_at_their_logits_or_at_a_key():
    x = random_points(6, 3)
    expected = mean_hessian(lambda u: u.prod(1), x)
    for model in (
        lambda x: Output(x.prod(1), x),
        lambda x: {"logits": x.prod(1), "loss": x.sum()},
    ):
        assert explain_point(model, x).geh.mean == pytest.approx(expected)
    assert explain_point(lambda x: {"a": x, "b": x.prod(1)}, x, output="b").geh.mean == pytest.approx(expected)
    assert explain_point(lambda x: Output(x, x.prod(1)), x, output="hidden").geh.mean == pytest.approx(expected)
    with pytest.raises(geh.GEHError, match=r"output='c'.*\['a', 'b'\]"):
        explain_point(lambda x: {"a": x, "b": x}, x, output="c")


# Confident predictions


def confident(outputs, logit, dtype):
    """Return a network whose first output is larger than 0, or than the others, by about ``logit``."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, outputs))
    with torch.no_grad():
        net[2].bias[0] += logit
    return net.to(dtype)


@pytest.mark.parametrize("engine", ["structured", "exact", "difference"])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("logit", [5.0, 18.0, 25.0])
def test_confident_probabilities_keep_their_digits_in_single_precision(engine, outputs, logit):
    x, target = random_points(20, 4), 0 if outputs > 1 else None
    single, double = (
        explain_point(confident(outputs, logit, dtype), x.to(dtype), target, output="probability", engine=engine)
        for dtype in (torch.float, torch.double)
    )
    pairs = np.triu_indices(4, 1)
    assert single.settings["engine"] == engine
    assert single.eah.mean[pairs] == pytest.approx(double.eah.mean[pairs], rel=1e-3)


@pytest.mark.parametrize("units", [3, 20])
def test_a_model_that_continues_in_double_precision_is_explained_by_the_structured_engine(units):
    torch.manual_seed(0)
    below, above = nn.Linear(units, 3), nn.Linear(3, 1).double()

    def model(x):
        return above(torch.tanh(below(x).double()))[:, 0]

    x = random_points(9, units, dtype=torch.float)
    structured, exact = (explain_point(model, x, engine=engine) for engine in ("structured", "exact"))
    assert structured.settings["engine"] == "structured"
    assert structured.signed == pytest.approx(exact.signed, rel=1e-4, abs=1e-7)
